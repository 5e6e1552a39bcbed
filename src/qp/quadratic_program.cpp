// The shapes of a quadratic program's parts.
#include "onestep/quadratic_program.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace onestep {
namespace {

[[noreturn]] void wrong_shape(const char* name, const Array& part, const std::string& wanted) {
  throw MisuseError(
      fmt::format("[quadratic_program] {} has shape {}, which should be {}", name, to_string(part.shape()), wanted));
}

/// Rows of an (m, n) block; a number, which must be 0, is a block that is not there.
std::int64_t rows_of(const char* name, const Array& block, std::int64_t n) {
  if (block.shape().rank() == 0 && block.item() == 0) return 0;
  if (block.shape().rank() != 2 || block.shape()[1] != n) wrong_shape(name, block, fmt::format("(rows, {})", n));
  return block.shape()[0];
}

void check_vector(const char* name, const Array& part, std::int64_t n) {
  if (part.shape().rank() == 0) return;
  if (part.shape() != Shape{n}) wrong_shape(name, part, fmt::format("({}), or a number", n));
}

std::int64_t variables_of(const QuadraticProgram& p) {
  for (const Array* vector : {&p.q, &p.lo, &p.hi})
    if (vector->shape().rank() == 1) return vector->size();
  for (const Array* matrix : {&p.Q, &p.A, &p.G})
    if (matrix->shape().rank() == 2) return matrix->shape()[1];
  throw MisuseError("[quadratic_program] no part has a shape that says how many variables there are; give q as a vector");
}

}  // namespace

QuadraticProgramSizes sizes_of(const QuadraticProgram& p) {
  QuadraticProgramSizes sizes;
  const std::int64_t n = sizes.variables = variables_of(p);
  if (rows_of("Q", p.Q, n) != n && p.Q.shape().rank() != 0) wrong_shape("Q", p.Q, fmt::format("({0}, {0})", n));
  sizes.equalities = rows_of("A", p.A, n);
  sizes.inequalities = rows_of("G", p.G, n);
  const std::array<std::pair<const char*, const Array*>, 3> per_variable{{{"q", &p.q}, {"lo", &p.lo}, {"hi", &p.hi}}};
  for (const auto& [name, part] : per_variable) check_vector(name, *part, n);
  check_vector("b", p.b, sizes.equalities);
  check_vector("l", p.l, sizes.inequalities);
  check_vector("u", p.u, sizes.inequalities);
  return sizes;
}

}  // namespace onestep
