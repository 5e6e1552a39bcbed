// What the items share: random data, small dense algebra, statistics of repeated measurements, fitted exponents.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "onestep/estimate.h"
#include "paper/items.h"

namespace onestep::app::paper {

// ---- random data, the same for the same seed ----

class Random {
 public:
  /// `stream` separates the items and the sizes from each other.
  Random(std::uint64_t seed, std::uint64_t stream) : engine_(seed * 0x9E3779B97F4A7C15U + stream) {}

  double uniform(double low = 0, double high = 1) {
    return low + (high - low) * static_cast<double>(engine_() >> 11) * 0x1p-53;
  }
  double gaussian();
  std::vector<double> gaussians(std::size_t count, double deviation = 1);
  Array vector(std::int64_t n, double deviation = 1);
  Array matrix(std::int64_t rows, std::int64_t columns, double deviation = 1);
  /// A matrix whose columns are orthonormal; rows >= columns.
  Array orthonormal(std::int64_t rows, std::int64_t columns);
  /// A square matrix with this spectral norm and singular values down to a tenth of it; where it is symmetric, they are its
  /// eigenvalues.
  Array with_norm(std::int64_t n, double norm, bool symmetric = false);

 private:
  std::mt19937_64 engine_;
};

/// N samples in two classes, Gaussian around +mu and -mu with |mu| = 1; the first of n columns is made of ones.
struct Samples {
  Array A, y;
};
Samples two_classes(Random& random, std::int64_t N, std::int64_t n);
/// The paper's objective, with the weights of the samples as parameter and an intercept that is not penalised.
Expr logistic_loss(const Samples& samples, const Expr& x, const Expr& weights);
Solver logistic_regression(const Samples& samples, const SolveOptions& options = {});
constexpr double logistic_lambda = 0.1;

// ---- dense algebra on arrays ----

Array minus(const Array& a, const Array& b);
Array times(double factor, const Array& a);
Array plus(const Array& a, const Array& b);
Array product(const Array& a, const Array& b);
/// Euclidean (Frobenius) norm, and the largest singular value.
double norm(const Array& a);
double spectral_norm(const Array& a);
/// ‖a - b‖ / ‖b‖.
double relative_error(const Array& a, const Array& b);
/// The largest difference of two entries, relative to the largest entry of b.
double largest_difference(std::span<const double> a, std::span<const double> b);
/// Eigenvalues of a symmetric matrix in ascending order, by Jacobi's method.
std::vector<double> eigenvalues(const Array& symmetric);

// ---- statistics ----

struct Quartiles {
  double median = 0, low = 0, high = 0;
};
Quartiles quartiles(std::vector<double> values);

/// The p of y ≈ c xᵖ by least squares on logarithms; NaN with fewer than two points.
double fitted_exponent(std::span<const double> x, std::span<const double> y);

/// Errors beside their bounds.
struct Checked {
  int count = 0, held = 0;
  double closest = 0;  ///< the largest error as a share of its bound
  void add(double error, double bound);
  bool all() const { return held == count; }
  std::string text() const;
  Json data() const { return {{"count", count}, {"held", held}, {"closest", closest}}; }
};

// ---- running ----

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now();
};

/// Bytes the program holds on the heap now; 0 where that is not known (another C library, a sanitizer).
std::size_t heap_bytes();

/// By scale.
template <class T> T choose(const ItemOptions& options, T quick, T usual, T full) {
  return options.scale == Scale::quick   ? std::move(quick)
         : options.scale == Scale::usual ? std::move(usual)
                                         : std::move(full);
}

/// `3.1e-09`, `0.25`, `12`: short, for captions and tables.
std::string number(double value);
/// `12 µs`, `3.4 ms`, `1.2 s`
std::string duration(double seconds);

Series line(std::string label, std::string method, std::string mark = "line");
void add_point(Series& series, double x, double y);
void add_point(Series& series, double x, const Quartiles& q);

}  // namespace onestep::app::paper
