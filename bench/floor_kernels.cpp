// Loops of the floors, vectorised by Highway.
#include "floor_kernels.h"

#include <cmath>
#include <stdexcept>

// The small kernels keep arrays of vectors in registers, which vectors of unknown size cannot do.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "floor_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.h.
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace onestep::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<double>;
using V = hn::Vec<D>;
constexpr std::size_t lanes = hn::MaxLanes(D());

struct Terms {
  V value, r, h;
};

// One exponential serves the value and both derivatives: with z = -y t and e = exp(-|z|), softplus(z) = max(z, 0) +
// log1p(e), its derivative is 1/(1+e) or e/(1+e), and its second one e/(1+e)^2. log1p is the logarithm of the rounded u = 1
// + e and what rounding lost times 1/u, which is there already: Highway's own Log1p would divide once more.
HWY_INLINE Terms terms_of(D d, V t, V y, V w) {
  const V z = hn::Neg(hn::Mul(y, t));
  const V e = hn::Exp(d, hn::Neg(hn::Abs(z)));
  const V one = hn::Set(d, 1.0);
  const V u = hn::Add(one, e);
  const V p = hn::Div(one, u);
  const V ep = hn::Mul(e, p);
  const V log1p = hn::MulAdd(hn::Sub(e, hn::Sub(u, one)), p, hn::Log(d, u));
  const V value = hn::Add(hn::Max(z, hn::Zero(d)), log1p);
  const V slope = hn::IfThenElse(hn::Ge(z, hn::Zero(d)), p, ep);
  return {hn::Mul(w, value), hn::Neg(hn::Mul(hn::Mul(y, w), slope)), hn::Mul(w, hn::Mul(ep, p))};
}

double logistic_terms_kernel(std::size_t rows, const double* t, const double* y, const double* w, double* r, double* q) {
  const D d;
  V value = hn::Zero(d);
  std::size_t i = 0;
  for (; i + lanes <= rows; i += lanes) {
    const Terms terms = terms_of(d, hn::LoadU(d, t + i), hn::LoadU(d, y + i), hn::LoadU(d, w + i));
    value = hn::Add(value, terms.value);
    hn::StoreU(terms.r, d, r + i);
    hn::StoreU(hn::Sqrt(terms.h), d, q + i);
  }
  double total = hn::GetLane(hn::SumOfLanes(d, value));
  for (; i < rows; ++i) {
    const double z = -y[i] * t[i], e = std::exp(-std::fabs(z)), p = 1 / (1 + e);
    total += w[i] * (std::fmax(z, 0.0) + std::log1p(e));
    r[i] = -y[i] * w[i] * (z >= 0 ? p : e * p);
    q[i] = std::sqrt(w[i] * e * p * p);
  }
  return total;
}

void scale_rows_kernel(std::size_t rows, std::size_t n, const double* HWY_RESTRICT A, const double* HWY_RESTRICT q,
                       double* HWY_RESTRICT scaled) {
  const D d;
  for (std::size_t i = 0; i < rows; ++i, A += n, scaled += n) {
    const V factor = hn::Set(d, q[i]);
    std::size_t j = 0;
    for (; j + lanes <= n; j += lanes) hn::StoreU(hn::Mul(factor, hn::LoadU(d, A + j)), d, scaled + j);
    for (; j < n; ++j) scaled[j] = q[i] * A[j];
  }
}

void add_to_kernel(std::size_t count, const double* HWY_RESTRICT from, double* HWY_RESTRICT to) {
  const D d;
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(hn::Add(hn::LoadU(d, to + i), hn::LoadU(d, from + i)), d, to + i);
  for (; i < count; ++i) to[i] += from[i];
}

void chain_kernel(std::size_t count, double a, double b, const double* HWY_RESTRICT x, double* HWY_RESTRICT out) {
  const D d;
  const V va = hn::Set(d, a), vb = hn::Set(d, b), one = hn::Set(d, 1.0);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const V v = hn::LoadU(d, x + i);
    const V s = hn::Tanh(d, hn::MulAdd(va, v, vb));
    hn::StoreU(hn::Mul(hn::Sqrt(hn::MulAdd(s, s, one)), hn::Exp(d, v)), d, out + i);
  }
  for (; i < count; ++i) {
    const double s = std::tanh(a * x[i] + b);
    out[i] = std::sqrt(1 + s * s) * std::exp(x[i]);
  }
}

// Solves H s = g for the lower triangle of H, row by row, with the square roots' inverses kept for the substitutions.
template <int n> HWY_INLINE void solve_small(double* HWY_RESTRICT H, double* HWY_RESTRICT g) {
  double inverse[n];
#pragma GCC unroll 16
  for (int j = 0; j < n; ++j) {
    double pivot = H[j * n + j];
#pragma GCC unroll 16
    for (int k = 0; k < j; ++k) pivot -= H[j * n + k] * H[j * n + k];
    inverse[j] = 1 / std::sqrt(pivot);
#pragma GCC unroll 16
    for (int i = j + 1; i < n; ++i) {
      double entry = H[i * n + j];
#pragma GCC unroll 16
      for (int k = 0; k < j; ++k) entry -= H[i * n + k] * H[j * n + k];
      H[i * n + j] = entry * inverse[j];
    }
    double entry = g[j];
#pragma GCC unroll 16
    for (int k = 0; k < j; ++k) entry -= H[j * n + k] * g[k];
    g[j] = entry * inverse[j];
  }
#pragma GCC unroll 16
  for (int j = n - 1; j >= 0; --j) {
    double entry = g[j];
#pragma GCC unroll 16
    for (int k = j + 1; k < n; ++k) entry -= H[k * n + j] * g[k];
    g[j] = entry * inverse[j];
  }
}

// Adds rows [I, I + Rows) of the lower triangle of Aᵀ diag(h) A, for `count` rows of A: a tile that fits in the registers.
template <int I, int Rows>
HWY_INLINE void add_triangle_rows(D d, std::size_t count, const double* HWY_RESTRICT columns, std::size_t stride,
                                  const double* HWY_RESTRICT h, V* HWY_RESTRICT sums) {
  constexpr int width = I + Rows;
  V sum[Rows][width];
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j <= I + i; ++j) sum[i][j] = sums[(I + i) * (I + i + 1) / 2 + j];
  }
  for (std::size_t k = 0; k < count; k += lanes) {
    const V weight = hn::Load(d, h + k);
    V left[Rows];
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i)
      left[i] = hn::Mul(weight, hn::Load(d, columns + static_cast<std::size_t>(I + i) * stride + k));
#pragma GCC unroll 16
    for (int j = 0; j < width; ++j) {
      const V right = hn::Load(d, columns + static_cast<std::size_t>(j) * stride + k);
#pragma GCC unroll 16
      for (int i = j < I ? 0 : j - I; i < Rows; ++i) sum[i][j] = hn::MulAdd(left[i], right, sum[i][j]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j <= I + i; ++j) sums[(I + i) * (I + i + 1) / 2 + j] = sum[i][j];
  }
}

template <int n>
HWY_INLINE double newton_step(std::size_t N, const double* HWY_RESTRICT columns, std::size_t stride,
                              const double* HWY_RESTRICT y, const double* HWY_RESTRICT w, int first_penalised,
                              const double* HWY_RESTRICT x, double* HWY_RESTRICT x_next) {
  const D d;
  constexpr std::size_t block = 256;  // rows at a time: with n = 10 their columns are 20 kB, within the first-level cache
  HWY_ALIGN double t[block];
  HWY_ALIGN double r[block];
  HWY_ALIGN double h[block];
  V value = hn::Zero(d), gradient[n], sums[n * (n + 1) / 2];
  for (V& g : gradient) g = hn::Zero(d);
  for (V& s : sums) s = hn::Zero(d);
  for (std::size_t begin = 0; begin < N; begin += block) {
    const std::size_t rows = N - begin < block ? N - begin : block;
    const double* const base = columns + begin;
    // Three loops, not one: the constants of the vector math and the running sums do not fit in the registers together.
    for (std::size_t k = 0; k < rows; k += lanes) {
      V product = hn::Mul(hn::Set(d, x[0]), hn::Load(d, base + k));
#pragma GCC unroll 16
      for (int j = 1; j < n; ++j)
        product = hn::MulAdd(hn::Set(d, x[j]), hn::Load(d, base + static_cast<std::size_t>(j) * stride + k), product);
      hn::Store(product, d, t + k);
    }
    for (std::size_t k = 0; k < rows; k += lanes) {
      const V weight =
          k + lanes <= rows ? hn::LoadU(d, w + begin + k) : hn::MaskedLoad(hn::FirstN(d, rows - k), d, w + begin + k);
      const Terms terms = terms_of(d, hn::Load(d, t + k), hn::Load(d, y + begin + k), weight);
      value = hn::Add(value, terms.value);
      hn::Store(terms.r, d, r + k);
      hn::Store(terms.h, d, h + k);
    }
    for (std::size_t k = 0; k < rows; k += lanes) {
      const V coefficient = hn::Load(d, r + k);
#pragma GCC unroll 16
      for (int j = 0; j < n; ++j)
        gradient[j] = hn::MulAdd(coefficient, hn::Load(d, base + static_cast<std::size_t>(j) * stride + k), gradient[j]);
    }
    if constexpr (n == 5) {
      add_triangle_rows<0, 5>(d, rows, base, stride, h, sums);
    } else {
      add_triangle_rows<7, 3>(d, rows, base, stride, h, sums);
      add_triangle_rows<4, 3>(d, rows, base, stride, h, sums);
      add_triangle_rows<0, 4>(d, rows, base, stride, h, sums);
    }
  }
  double H[n * n], g[n], square = 0;
#pragma GCC unroll 16
  for (int i = 0; i < n; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j <= i; ++j) H[i * n + j] = hn::GetLane(hn::SumOfLanes(d, sums[i * (i + 1) / 2 + j]));
    const double penalty = i < first_penalised ? 0 : 0.2;
    H[i * n + i] += penalty;
    g[i] = hn::GetLane(hn::SumOfLanes(d, gradient[i])) + penalty * x[i];
    square += penalty * x[i] * x[i];
  }
  solve_small<n>(H, g);
#pragma GCC unroll 16
  for (int i = 0; i < n; ++i) x_next[i] = x[i] - g[i];
  return hn::GetLane(hn::SumOfLanes(d, value)) + 0.5 * square;
}

double small_newton_step_kernel(std::size_t N, std::size_t n, const double* columns, std::size_t stride, const double* y,
                                const double* w, std::size_t first_penalised, const double* x, double* x_next) {
  const auto step = n == 5 ? newton_step<5> : newton_step<10>;
  return step(N, columns, stride, y, w, static_cast<int>(first_penalised), x, x_next);
}

// H is symmetric: its rows serve as columns, so that nothing is summed across a vector.
void ridge_step_kernel(const double* HWY_RESTRICT H, const double* HWY_RESTRICT b, double alpha,
                       const double* HWY_RESTRICT x, double* HWY_RESTRICT x_next) {
  constexpr std::size_t n = 12;
  const hn::CappedTag<double, 4> d;
  constexpr std::size_t width = hn::MaxLanes(hn::CappedTag<double, 4>());
  constexpr std::size_t parts = n / width;
  hn::Vec<decltype(d)> sum[2][parts];
  for (std::size_t p = 0; p < parts; ++p) {
    sum[0][p] = hn::Neg(hn::LoadU(d, b + p * width));
    sum[1][p] = hn::Zero(d);
  }
  for (std::size_t j = 0; j < n; ++j) {
    const auto xj = hn::Set(d, x[j]);
    for (std::size_t p = 0; p < parts; ++p)
      sum[j % 2][p] = hn::MulAdd(xj, hn::LoadU(d, H + j * n + p * width), sum[j % 2][p]);
  }
  for (std::size_t p = 0; p < parts; ++p)
    hn::StoreU(hn::NegMulAdd(hn::Set(d, alpha), hn::Add(sum[0][p], sum[1][p]), hn::LoadU(d, x + p * width)), d,
               x_next + p * width);
}

}  // namespace onestep::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace onestep::bench {

HWY_EXPORT(logistic_terms_kernel);
HWY_EXPORT(scale_rows_kernel);
HWY_EXPORT(add_to_kernel);
HWY_EXPORT(chain_kernel);
HWY_EXPORT(small_newton_step_kernel);
HWY_EXPORT(ridge_step_kernel);

double logistic_terms(std::size_t rows, const double* t, const double* y, const double* w, double* r, double* q) {
  return HWY_DYNAMIC_DISPATCH(logistic_terms_kernel)(rows, t, y, w, r, q);
}

void scale_rows(std::size_t rows, std::size_t n, const double* A, const double* q, double* scaled) {
  HWY_DYNAMIC_DISPATCH(scale_rows_kernel)(rows, n, A, q, scaled);
}

void add_to(std::size_t count, const double* from, double* to) { HWY_DYNAMIC_DISPATCH(add_to_kernel)(count, from, to); }

void chain(std::size_t count, double a, double b, const double* x, double* out) {
  HWY_DYNAMIC_DISPATCH(chain_kernel)(count, a, b, x, out);
}

double small_newton_step(std::size_t N, std::size_t n, const double* columns, std::size_t stride, const double* y,
                         const double* w, std::size_t first_penalised, const double* x, double* x_next) {
  if (n != 5 && n != 10) throw std::invalid_argument("small_newton_step is written for n = 5 and n = 10");
  return HWY_DYNAMIC_DISPATCH(small_newton_step_kernel)(N, n, columns, stride, y, w, first_penalised, x, x_next);
}

void ridge_step(const double* H, const double* b, double alpha, const double* x, double* x_next) {
  HWY_DYNAMIC_DISPATCH(ridge_step_kernel)(H, b, alpha, x, x_next);
}

}  // namespace onestep::bench
#endif
