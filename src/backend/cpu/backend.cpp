// The CPU backend: structural operations, each on whole arrays; row loops are in row_loop.cpp.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "backend/cpu/backend.h"
#include "backend/cpu/blas.h"
#include "backend/cpu/dense.h"
#include "backend/cpu/row_loop.h"
#include "backend/cpu/tile_kernels.h"
#include "graph/fail.h"
#include "graph/rules.h"
#include "parallel/pool.h"
#include "plan/program.h"

namespace onestep::cpu {
namespace {

using detail::Frame;
using detail::Instruction;

size_t rows(const Shape& s) { return size(s[0]); }
size_t columns(const Shape& s) { return size(s[1]); }
size_t inner(const Instruction& matmul) { return size(matmul.arg_shapes[0][matmul.attr.i != 0 ? 0 : 1]); }

// An instruction with its memory.
struct At {
  const Instruction& i;
  const Frame& frame;
  double* out() const { return frame.address[static_cast<size_t>(i.out)]; }
  const double* arg(size_t k) const { return frame.address[static_cast<size_t>(i.args[k])]; }
  const Shape& shape(size_t k) const { return i.arg_shapes[k]; }
  void clear() const { std::fill_n(out(), i.shape.size(), 0.0); }
  /// The result begins as a copy of argument k, or is where that was.
  void start_as(size_t k) const {
    if (out() != arg(k)) std::copy_n(arg(k), shape(k).size(), out());
  }
};

/// `count` entries, `from_step` and `to_step` apart.
void copy(std::int64_t count, const double* from, std::int64_t from_step, double* to, std::int64_t to_step) {
  for (std::int64_t k = 0; k < count; ++k) to[k * to_step] = from[k * from_step];
}

void run_eye(const At& at) {
  const std::int64_t m = at.i.shape[0], n = at.i.shape[1], below = std::max<std::int64_t>(0, -at.i.attr.i);
  const double one = 1;
  at.clear();
  copy(std::min(m, n - at.i.attr.i) - below, &one, 0, at.out() + below * (n + 1) + at.i.attr.i, n + 1);
}

void run_outer(const At& at) {
  const size_t n = columns(at.i.shape);
  for (size_t r = 0; r < rows(at.i.shape); ++r)
    for (size_t c = 0; c < n; ++c) at.out()[r * n + c] = at.arg(0)[r] * at.arg(1)[c];
}

// Eight rows at a time, which are a cache line of the result.
void run_transpose(const At& at) {
  const std::int64_t m = at.shape(0)[0], n = at.shape(0)[1], line = cache_line;
  for (std::int64_t r = 0; r < m; r += line)
    for (std::int64_t c = 0; c < n; ++c)
      copy(std::min(line, m - r), at.arg(0) + r * n + c, n, at.out() + c * at.i.attr.i + r, 1);
}

void run_add_diagonal(const At& at) {
  const size_t n = rows(at.i.shape);
  at.start_as(0);
  for (size_t r = 0; r < n; ++r) at.out()[r * (n + 1)] += at.arg(1)[at.i.scalar_diagonal ? 0 : r];
}

// Copies a part of the given shape from one array to another; it begins at from_begin and to_begin along the axis of attr.i.
void copy_part(const At& at, const Shape& part, const double* from, const Shape& from_shape, std::int64_t from_begin,
               std::int64_t to_begin) {
  const bool across = at.i.attr.i == 1;
  const std::int64_t lines = across ? part[0] : 1, count = across ? part[1] : part.size(), step = across ? 1 : part[1];
  for (std::int64_t l = 0; l < lines; ++l)
    std::copy_n(from + l * from_shape[1] + from_begin * step, count, at.out() + l * at.i.shape[1] + to_begin * step);
}

void run_concat(const At& at) {
  std::int64_t begin = 0;
  for (size_t k = 0; k < at.i.args.size(); begin += at.shape(k++)[static_cast<int>(at.i.attr.i)])
    copy_part(at, at.shape(k), at.arg(k), at.shape(k), 0, begin);
}

void run_pad(const At& at) {
  at.clear();
  copy_part(at, at.shape(0), at.arg(0), at.shape(0), 0, at.i.attr.j);
}

// An array as three extents around the axis of attr.i: entry (o, k, i) lies at (o · length + k) · inner + i. Axis -1: all
// entries.
struct Around {
  size_t outer = 1, length = 1, inner = 1;
  Around(const Shape& s, std::int64_t axis) : length(size(s.size())) {
    if (axis < 0 || s.rank() < 2) return;
    outer = axis == 0 ? 1 : rows(s);
    length = axis == 0 ? rows(s) : columns(s);
    inner = axis == 0 ? columns(s) : 1;
  }
};

// √Σa² of `n` entries that are `step` apart: divided by the largest first where squares would leave the range.
double norm_of(const double* a, size_t n, size_t step) {
  double sum = 0, largest = 0;
  if (step == 1)
    sum = tile_kernels().dot(a, a, n);
  else
    for (size_t k = 0; k < n; ++k) sum += a[k * step] * a[k * step];
  if ((sum > 0x1p-960 && sum < std::numeric_limits<double>::infinity()) || std::isnan(sum)) return std::sqrt(sum);
  for (size_t k = 0; k < n; ++k) largest = std::max(largest, std::fabs(a[k * step]));
  if (largest == 0 || std::isinf(largest)) return largest;
  sum = 0;
  for (size_t k = 0; k < n; ++k) sum += (a[k * step] / largest) * (a[k * step] / largest);
  return largest * std::sqrt(sum);
}

void run_norm(const At& at) {
  const Around s(at.shape(0), at.i.attr.i);
  for (size_t o = 0; o < s.outer; ++o)
    for (size_t k = 0; k < s.inner; ++k)
      at.out()[o * s.inner + k] = norm_of(at.arg(0) + o * s.length * s.inner + k, s.length, s.inner);
}

void run_cumsum(const At& at) {
  const Around s(at.i.shape, at.i.attr.i);
  const bool from_end = at.i.attr.j != 0;
  for (size_t o = 0; o < s.outer; ++o)
    for (size_t k = 0; k < s.length; ++k) {
      const size_t line = (o * s.length + (from_end ? s.length - 1 - k : k)) * s.inner;
      const size_t last = from_end ? line + s.inner : line - s.inner;
      for (size_t i = 0; i < s.inner; ++i) at.out()[line + i] = at.arg(0)[line + i] + (k == 0 ? 0.0 : at.out()[last + i]);
    }
}

// The numbers in the second argument are within the axis: gather() has looked.
void run_gather(const At& at) {
  const Around s(at.i.shape, at.i.attr.i), whole(at.shape(0), at.i.attr.i);
  for (size_t o = 0; o < s.outer; ++o)
    for (size_t k = 0; k < s.length; ++k)
      std::copy_n(at.arg(0) + (o * whole.length + static_cast<size_t>(at.arg(1)[k])) * s.inner, s.inner,
                  at.out() + (o * s.length + k) * s.inner);
}

void run_scatter(const At& at) {
  const Around s(at.shape(0), at.i.attr.i), whole(at.i.shape, at.i.attr.i);
  at.clear();
  for (size_t o = 0; o < s.outer; ++o)
    for (size_t k = 0; k < s.length; ++k) {
      const double* const from = at.arg(0) + (o * s.length + k) * s.inner;
      double* const to = at.out() + (o * whole.length + static_cast<size_t>(at.arg(1)[k])) * s.inner;
      for (size_t i = 0; i < s.inner; ++i) to[i] += from[i];
    }
}

// Pivots stand behind the matrix.
int* pivots_of(double* factor, size_t n) { return reinterpret_cast<int*>(factor + n * n); }
const int* pivots_of(const double* factor, size_t n) { return reinterpret_cast<const int*>(factor + n * n); }

bool run_factor(const At& at) {
  const size_t n = rows(at.i.shape);
  at.start_as(0);
  return factor(at.i.op, n, at.out(), pivots_of(at.out(), n), at.frame.shared_scratch);
}

void run_solve(const At& at) {
  const size_t n = rows(at.shape(0));
  at.start_as(1);
  solve(at.i.factor, at.i.attr.i != 0, n, at.arg(0), pivots_of(at.arg(0), n), at.out(), columns(at.i.shape));
}

constexpr size_t most_call_args = 32;

void run_call(const At& at) {
  std::array<std::span<const double>, most_call_args> args;
  for (size_t k = 0; k < at.i.args.size(); ++k) args[k] = {at.arg(k), size(at.shape(k).size())};
  const std::span<const std::span<const double>> all(args.data(), at.i.args.size());
  const std::span<double> result(at.out(), size(at.i.shape.size()));
  const Foreign& f = *at.i.foreign;
  const auto kind = size(at.i.attr.j);
  if (kind == 0)
    f.apply(all, result);
  else if (kind == 1)
    f.jvp(all.first(all.size() / 2), all.last(all.size() / 2), result);
  else
    f.vjp(all.first(all.size() - 1), all.back(), kind - 2, result);
}

// Whether it went well.
bool execute(const Instruction& i, const Frame& frame) {
  const At at{i, frame};
  if (i.is_loop()) {
    run_row_loop(*i.backend, frame);
    return true;
  }
  switch (i.op) {
    case Op::reshape: at.start_as(0); break;
    case Op::eye: run_eye(at); break;
    case Op::matmul:
      gemm(i.attr.i != 0, i.attr.j != 0, rows(i.shape), columns(i.shape), inner(i), at.arg(0), at.arg(1), at.out(),
           frame.shared_scratch);
      break;
    case Op::outer: run_outer(at); break;
    case Op::transpose: run_transpose(at); break;
    case Op::diag: at.clear(), copy(i.shape[0], at.arg(0), 1, at.out(), i.shape[0] + 1); break;
    case Op::diagonal: copy(i.shape[0], at.arg(0), i.shape[0] + 1, at.out(), 1); break;
    case Op::concat: run_concat(at); break;
    case Op::slice: copy_part(at, i.shape, at.arg(0), at.shape(0), i.attr.j, 0); break;
    case Op::pad: run_pad(at); break;
    case Op::cholesky:
    case Op::lu:
    case Op::ldlt: return run_factor(at);
    case Op::solve: run_solve(at); break;
    case Op::logdet:
      *at.out() = logdet(i.factor, rows(at.shape(0)), at.arg(0), pivots_of(at.arg(0), rows(at.shape(0))));
      break;
    case Op::norm: run_norm(at); break;
    case Op::cumsum: run_cumsum(at); break;
    case Op::gather: run_gather(at); break;
    case Op::scatter: run_scatter(at); break;
    case Op::det: *at.out() = determinant(rows(at.shape(0)), at.arg(0), frame.shared_scratch); break;
    case Op::call: run_call(at); break;
    // Of these only the addition of a diagonal is an instruction of its own: the others are leaves or done by rows.
    case Op::input:
    case Op::constant:
    case Op::scalar:
    case Op::gram:
    case Op::sum:
    case Op::max:
    case Op::broadcast:
#include "graph/elementwise_cases.inc"
      if (i.op != Op::add) fail("run", "{} has to be part of a row loop; this is a bug of the planner", name(i.op));
      run_add_diagonal(at);
      break;
  }
  return true;
}

class CpuBackend final : public detail::Backend {
 public:
  explicit CpuBackend(std::shared_ptr<Pool> pool) : pool_(std::move(pool)) {}

  std::shared_ptr<const detail::BackendPlan> prepare(const Instruction& i) const override {
    if (i.is_loop()) return prepare_row_loop(i.loop);
    for (const Shape& s : i.arg_shapes)
      if (!fits_blas(rows(s)) || !fits_blas(columns(s)))
        throw MisuseError(fmt::format("[{}] shape {} is more than BLAS can count", name(i.op), to_string(s)));
    if (i.op == Op::call && i.args.size() > most_call_args)
      throw MisuseError(fmt::format("[call] {} passes {} arrays, at most {} are supported; join some", i.foreign->name(),
                                    i.args.size(), most_call_args));
    auto plan = std::make_shared<detail::BackendPlan>();
    const bool small = (i.op == Op::cholesky || i.factor == Op::cholesky) && rows(i.arg_shapes[0]) <= max_small_n &&
                       (i.op == Op::cholesky || columns(i.shape) == 1);
    plan->calls_blas = i.op == Op::matmul || i.op == Op::det || (!small && (is_factor(i.op) || i.op == Op::solve));
    if (i.op == Op::matmul) plan->shared_scratch = gemm_scratch(rows(i.shape), columns(i.shape), inner(i));
    if (i.op == Op::det) plan->shared_scratch = size(detail::factor_entries(i.arg_shapes[0][0]));
    if (is_factor(i.op)) plan->shared_scratch = factor_scratch(i.op, rows(i.shape));
    return plan;
  }

  size_t workers() const override {
    const UsePool use(pool_.get());
    return static_cast<size_t>(threads_here());
  }
  void start_workers() const override {
    const UsePool use(pool_.get());
    start_threads();
  }

  void run(std::span<const Instruction> code, const Frame& frame, std::uint8_t* failed) const override {
    const UsePool use(pool_.get());
    std::optional<BlasSerial> serial;  // from the first call on: it costs as much as a small loop
    for (size_t k = 0; k < code.size(); ++k) {
      if (code[k].backend->calls_blas && !serial) serial.emplace();
      failed[k] = execute(code[k], frame) ? 0 : 1;
    }
  }

 private:
  std::shared_ptr<Pool> pool_;
};

}  // namespace

std::shared_ptr<const detail::Backend> make_backend(std::shared_ptr<Pool> pool) {
  return std::make_shared<const CpuBackend>(std::move(pool));
}

}  // namespace onestep::cpu
