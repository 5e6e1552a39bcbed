// The data of every benchmark, the same here and in bench/peers: bit for bit, since nothing but integer arithmetic and
// single correctly rounded operations makes it. Two classes of samples, Gaussian around +mu and -mu.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace onestep::bench {

// The generator of Steele, Lea and Flood (splitmix64) as a function of a counter, so that NumPy can evaluate it all at once.
inline std::uint64_t random_bits(std::uint64_t stream, std::uint64_t index) {
  std::uint64_t z = (stream << 40) + (index + 1) * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

// In [0, 1), with 53 bits.
inline double uniform(std::uint64_t stream, std::uint64_t index) {
  return static_cast<double>(random_bits(stream, index) >> 11) * 0x1p-53;
}

// The sum of twelve 16-bit uniforms: mean 0, variance 1, Gaussian as far as a benchmark can see (excess kurtosis -0.1), and
// exact, where log and cos would differ in the last bit from one library to the next.
inline double gaussian(std::uint64_t stream, std::uint64_t index) {
  std::int64_t total = 0;
  for (std::uint64_t k = 0; k < 3; ++k) {
    const std::uint64_t bits = random_bits(stream, 3 * index + k);
    total += static_cast<std::int64_t>((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) + (bits >> 32 & 0xFFFF) + (bits >> 48));
  }
  return static_cast<double>(total - 6 * std::int64_t{65535}) * 0x1p-16;
}

// The logistic problem f(x, w) = sum(w * softplus(-y * (A x))) + 0.1 * sum(square(x)) at a point x, with a direction v for
// the reverse derivative of the Newton step. Of x, the entries before the first penalised one are left out of the last sum;
// where there are penalties l2, it is sum(l2 * square(x)) / 2 instead.
struct Logistic {
  std::size_t N, n;
  std::vector<double> A;  // N x n, row-major
  std::vector<double> y;  // +1 or -1
  std::vector<double> w;  // in [0.5, 1.5)
  std::vector<double> x, v;
  std::size_t first_penalised = 0;
  std::vector<double> l2 = {};

  double penalty(std::size_t j) const { return !l2.empty() ? l2[j] : j < first_penalised ? 0.0 : 0.2; }
};

inline Logistic logistic_data(std::size_t N, std::size_t n) {
  Logistic data{N, n, std::vector<double>(N * n), std::vector<double>(N), std::vector<double>(N), {}, {}};
  data.x.resize(n);
  data.v.resize(n);
  const double mu = 1.0 / std::sqrt(static_cast<double>(n));
  for (std::size_t i = 0; i < N; ++i) {
    data.y[i] = i % 2 == 0 ? 1.0 : -1.0;
    data.w[i] = 0.5 + uniform(2, i);
    for (std::size_t j = 0; j < n; ++j) data.A[i * n + j] = gaussian(1, i * n + j) + (data.y[i] > 0 ? mu : -mu);
  }
  for (std::size_t j = 0; j < n; ++j) {
    data.x[j] = gaussian(3, j) * mu;
    data.v[j] = gaussian(4, j);
  }
  return data;
}

// The paper's problem, from x = 0: the first column is made of ones, and its coefficient, the intercept, is not penalised.
inline Logistic logistic_with_intercept(std::size_t N, std::size_t n) {
  Logistic data = logistic_data(N, n);
  for (std::size_t i = 0; i < N; ++i) data.A[i * n] = 1;
  data.x.assign(n, 0);
  data.first_penalised = 1;
  return data;
}

// A quadratic program of the paper's form, min 1/2 xᵀQx + qᵀx with Ax = b and Gx <= h, feasible and strictly convex.
struct DenseQp {
  std::size_t n, m, p;
  std::vector<double> Q, q, A, b, G, h;  // matrices row-major
};

// Products of two Gaussians are multiples of 2^-32 below 36, so that sums of up to 2^15 of them are exact in any order: Q =
// MᵀM/n
// + I/10, b = A x and h = G x + slack are the same numbers whoever computes them.
inline DenseQp qp_data(std::size_t n, std::size_t m, std::size_t p) {
  DenseQp qp{n, m, p, std::vector<double>(n * n), {}, {}, {}, {}, {}};
  const auto gaussians = [](std::uint64_t stream, std::size_t count) {
    std::vector<double> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = gaussian(stream, i);
    return values;
  };
  const std::vector<double> M = gaussians(6, n * n), x = gaussians(7, n);
  qp.q = gaussians(8, n);
  qp.A = gaussians(9, m * n);
  qp.G = gaussians(10, p * n);
  for (std::size_t k = 0; k < n; ++k)
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) qp.Q[i * n + j] += M[k * n + i] * M[k * n + j];
  for (double& e : qp.Q) e /= static_cast<double>(n);
  for (std::size_t i = 0; i < n; ++i) qp.Q[i * n + i] += 0.1;
  const auto times_x = [&](const std::vector<double>& matrix, std::size_t rows) {
    std::vector<double> result(rows);
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < n; ++j) result[i] += matrix[i * n + j] * x[j];
    return result;
  };
  qp.b = times_x(qp.A, m);
  qp.h = times_x(qp.G, p);
  for (std::size_t i = 0; i < p; ++i) qp.h[i] += uniform(11, i);
  return qp;
}

// The entries of the elementwise chain, in [-2, 2).
inline std::vector<double> chain_data(std::size_t count) {
  std::vector<double> x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = 4.0 * uniform(5, i) - 2.0;
  return x;
}

}  // namespace onestep::bench
