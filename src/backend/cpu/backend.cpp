// The CPU backend: one function for each structural operation, row loops in row_loop.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "backend/cpu/blas.h"
#include "backend/cpu/dense.h"
#include "backend/cpu/pool.h"
#include "backend/cpu/row_loop.h"
#include "backend/cpu/tile_kernels.h"
#include "graph/rules.h"
#include "plan/program.h"

namespace onestep::cpu {
namespace {

using detail::Frame;
using detail::Instruction;

constexpr std::size_t small_factor = 24;  // up to here our own Cholesky is faster than LAPACK's

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }
std::size_t rows(const Shape& s) { return size(s[0]); }
std::size_t columns(const Shape& s) { return size(s[1]); }

// An instruction with its memory.
struct At {
  const Instruction& i;
  const Frame& frame;
  double* out() const { return frame.address[static_cast<std::size_t>(i.out)]; }
  const double* arg(std::size_t k) const { return frame.address[static_cast<std::size_t>(i.args[k])]; }
  const Shape& shape(std::size_t k) const { return i.arg_shapes[k]; }
};

void run_eye(const At& at) {
  std::fill_n(at.out(), at.i.shape.size(), 0.0);
  for (std::int64_t r = 0; r < at.i.shape[0]; ++r) {
    const std::int64_t c = r + at.i.attr.i;
    if (c >= 0 && c < at.i.shape[1]) at.out()[r * at.i.shape[1] + c] = 1.0;
  }
}

void run_matmul(const At& at) {
  const bool ta = at.i.attr.i != 0, tb = at.i.attr.j != 0;
  const Shape &a = at.shape(0), &b = at.shape(1);
  gemm(ta, tb, rows(at.i.shape), columns(at.i.shape), ta ? rows(a) : columns(a), 1.0, at.arg(0), columns(a), at.arg(1),
       columns(b), 0.0, at.out(), columns(at.i.shape), at.frame.shared_scratch);
}

void run_outer(const At& at) {
  const std::size_t n = columns(at.i.shape);
  for (std::size_t r = 0; r < rows(at.i.shape); ++r)
    for (std::size_t c = 0; c < n; ++c) at.out()[r * n + c] = at.arg(0)[r] * at.arg(1)[c];
}

void run_transpose(const At& at) {
  constexpr std::size_t tile = 64;  // rows at a time, so that neither side misses the cache
  const std::size_t m = rows(at.shape(0)), n = columns(at.shape(0));
  for (std::size_t r = 0; r < m; r += tile)
    pack_rows(at.arg(0) + r * n, n, std::min(tile, m - r), n, at.out() + r, size(at.i.attr.i));
}

void run_diag(const At& at) {
  const std::size_t n = rows(at.i.shape);
  std::fill_n(at.out(), n * n, 0.0);
  for (std::size_t r = 0; r < n; ++r) at.out()[r * (n + 1)] = at.arg(0)[r];
}

void run_diagonal(const At& at) {
  const std::size_t n = rows(at.i.shape);
  for (std::size_t r = 0; r < n; ++r) at.out()[r] = at.arg(0)[r * (n + 1)];
}

void run_add_diagonal(const At& at) {
  const std::size_t n = rows(at.i.shape);
  if (at.out() != at.arg(0)) std::copy_n(at.arg(0), n * n, at.out());
  for (std::size_t r = 0; r < n; ++r) at.out()[r * (n + 1)] += at.arg(1)[at.i.scalar_diagonal ? 0 : r];
}

// Copies `count` entries out of each of `lines` lines.
void copy_lines(const double* from, std::size_t from_stride, double* to, std::size_t to_stride, std::size_t lines,
                std::size_t count) {
  for (std::size_t l = 0; l < lines; ++l) std::copy_n(from + l * from_stride, count, to + l * to_stride);
}

// Rank 1 and axis 0 are one line; axis 1 a line a row.
struct Lines {
  std::size_t lines, width;  // width: entries of a line for each step along the axis
};
Lines lines_of(const Shape& shape, std::int64_t axis) {
  if (axis == 1) return {rows(shape), 1};
  return {1, shape.rank() == 2 ? columns(shape) : 1};
}

void run_concat(const At& at) {
  const auto axis = static_cast<int>(at.i.attr.i);
  const Lines l = lines_of(at.i.shape, axis);
  const std::size_t stride = size(at.i.shape[axis]) * l.width;
  std::size_t begin = 0;
  for (std::size_t k = 0; k < at.i.args.size(); ++k) {
    const std::size_t count = size(at.shape(k)[axis]) * l.width;
    copy_lines(at.arg(k), count, at.out() + begin, stride, l.lines, count);
    begin += count;
  }
}

void run_slice(const At& at) {
  const auto axis = static_cast<int>(at.i.attr.i);
  const Lines l = lines_of(at.i.shape, axis);
  const std::size_t count = size(at.i.shape[axis]) * l.width;
  copy_lines(at.arg(0) + size(at.i.attr.j) * l.width, size(at.shape(0)[axis]) * l.width, at.out(), count, l.lines, count);
}

void run_pad(const At& at) {
  const auto axis = static_cast<int>(at.i.attr.i);
  const Lines l = lines_of(at.i.shape, axis);
  const std::size_t count = size(at.shape(0)[axis]) * l.width;
  std::fill_n(at.out(), at.i.shape.size(), 0.0);
  copy_lines(at.arg(0), count, at.out() + size(at.i.attr.j) * l.width, size(at.i.shape[axis]) * l.width, l.lines, count);
}

FactorKind kind_of(Op op) {
  return op == Op::cholesky ? FactorKind::cholesky : op == Op::lu ? FactorKind::lu : FactorKind::ldlt;
}

// Pivots stand behind the matrix.
int* pivots_of(double* factor, std::size_t n) { return reinterpret_cast<int*>(factor + n * n); }
const int* pivots_of(const double* factor, std::size_t n) { return reinterpret_cast<const int*>(factor + n * n); }

bool run_factor(const At& at) {
  const std::size_t n = rows(at.i.shape);
  double* const a = at.out();
  if (a != at.arg(0)) std::copy_n(at.arg(0), n * n, a);
  if (at.i.op != Op::cholesky || n > small_factor)
    return factor(kind_of(at.i.op), n, a, pivots_of(a, n), at.frame.shared_scratch);
  if (small_cholesky(a, n, n)) return true;
  std::fill_n(a, n * n, std::numeric_limits<double>::quiet_NaN());
  return false;
}

void run_solve(const At& at) {
  const std::size_t n = rows(at.shape(0)), count = at.i.shape.rank() == 2 ? columns(at.i.shape) : 1;
  if (at.out() != at.arg(1)) std::copy_n(at.arg(1), n * count, at.out());
  if (at.i.factor == Op::cholesky && n <= small_factor && count == 1)
    small_cholesky_solve(at.arg(0), n, n, at.out());
  else
    solve(kind_of(at.i.factor), at.i.attr.i != 0, n, at.arg(0), pivots_of(at.arg(0), n), at.out(), count);
}

void run_logdet(const At& at) {
  const std::size_t n = rows(at.shape(0));
  *at.out() = logdet(kind_of(at.i.factor), n, at.arg(0), pivots_of(at.arg(0), n));
}

constexpr std::size_t most_call_args = 32;

void run_call(const At& at) {
  std::array<std::span<const double>, most_call_args> args;
  for (std::size_t k = 0; k < at.i.args.size(); ++k) args[k] = {at.arg(k), size(at.shape(k).size())};
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

class CpuBackend final : public detail::Backend {
 public:
  std::shared_ptr<const detail::BackendPlan> prepare(const Instruction& i) const override {
    if (i.is_loop()) return prepare_row_loop(i.loop);
    for (const Shape& s : i.arg_shapes)
      if (!fits_blas(rows(s)) || !fits_blas(columns(s)))
        throw Error(fmt::format("[{}] shape {} is more than BLAS can count", name(i.op), to_string(s)));
    auto plan = std::make_shared<detail::BackendPlan>();
    plan->calls_blas = i.op == Op::matmul || is_factor(i.op) || i.op == Op::solve;
    if ((i.op == Op::cholesky || i.factor == Op::cholesky) && rows(i.arg_shapes[0]) <= small_factor &&
        i.shape.rank() < 2 + (i.op == Op::cholesky))
      plan->calls_blas = false;
    if (i.op == Op::matmul) {
      const bool ta = i.attr.i != 0;
      const Shape& a = i.arg_shapes[0];
      plan->shared_scratch = gemm_scratch(rows(i.shape), columns(i.shape), ta ? rows(a) : columns(a));
    } else if (is_factor(i.op)) {
      plan->shared_scratch = factor_scratch(kind_of(i.op), rows(i.shape));
    } else if (i.op == Op::call && i.args.size() > most_call_args) {
      throw Error(fmt::format("[call] {} passes {} arrays, at most {} are supported; join some", i.foreign->name(),
                              i.args.size(), most_call_args));
    }
    return plan;
  }

  std::size_t workers() const override {
    start_threads();  // so that no run has to
    return static_cast<std::size_t>(threads());
  }

  void run(std::span<const Instruction> code, const Frame& frame, std::uint8_t* failed) const override {
    std::optional<BlasSerial> serial;  // from the first call on: it costs as much as a small loop
    for (std::size_t k = 0; k < code.size(); ++k) {
      if (code[k].backend->calls_blas && !serial) serial.emplace();
      failed[k] = execute(code[k], frame) ? 0 : 1;
    }
  }

 private:
  static bool execute(const Instruction& i, const Frame& frame) {
    if (i.is_loop()) {
      run_row_loop(i.loop, *i.backend, frame);
      return true;
    }
    const At at{i, frame};
    switch (i.op) {
      case Op::reshape: std::copy_n(at.arg(0), i.shape.size(), at.out()); break;
      case Op::eye: run_eye(at); break;
      case Op::matmul: run_matmul(at); break;
      case Op::outer: run_outer(at); break;
      case Op::transpose: run_transpose(at); break;
      case Op::diag: run_diag(at); break;
      case Op::diagonal: run_diagonal(at); break;
      case Op::add: run_add_diagonal(at); break;
      case Op::concat: run_concat(at); break;
      case Op::slice: run_slice(at); break;
      case Op::pad: run_pad(at); break;
      case Op::cholesky:
      case Op::lu:
      case Op::ldlt: return run_factor(at);
      case Op::solve: run_solve(at); break;
      case Op::logdet: run_logdet(at); break;
      case Op::call: run_call(at); break;
      default: break;  // leaves, aliases and row operations are no instructions of their own
    }
    return true;
  }
};

}  // namespace
}  // namespace onestep::cpu

namespace onestep::detail {

const Backend& cpu_backend() {
  static const cpu::CpuBackend backend;
  return backend;
}

}  // namespace onestep::detail
