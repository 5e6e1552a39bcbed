// Makes the parts of a program contiguous, and vectors of numbers.
#include "qp/program_data.h"

namespace onestep::detail {
namespace {

const double* vector_of(const Array& part, std::int64_t size, Array& kept) {
  kept = part.shape().rank() == 0 ? full({size}, part.item()) : part.contiguous();
  return kept.data();
}

const double* matrix_of(const Array& part, Array& kept) {
  if (part.shape().rank() == 0) return nullptr;
  kept = part.contiguous();
  return kept.data();
}

}  // namespace

ProgramData::ProgramData(const QuadraticProgram& p) {
  const QuadraticProgramSizes sizes = sizes_of(p);
  data_.n = static_cast<std::size_t>(sizes.variables);
  data_.m = static_cast<std::size_t>(sizes.equalities);
  data_.p = static_cast<std::size_t>(sizes.inequalities);
  data_.Q = matrix_of(p.Q, parts_[0]);
  data_.A = matrix_of(p.A, parts_[1]);
  data_.G = matrix_of(p.G, parts_[2]);
  data_.q = vector_of(p.q, sizes.variables, parts_[3]);
  data_.b = vector_of(p.b, sizes.equalities, parts_[4]);
  data_.l = vector_of(p.l, sizes.inequalities, parts_[5]);
  data_.u = vector_of(p.u, sizes.inequalities, parts_[6]);
  data_.lo = vector_of(p.lo, sizes.variables, parts_[7]);
  data_.hi = vector_of(p.hi, sizes.variables, parts_[8]);
  data_.constant = p.constant;
}

}  // namespace onestep::detail
