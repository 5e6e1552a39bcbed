// Gaussian and orthonormal data by a generator of our own, and least squares in logarithms.
#include "paper/items/support.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "onestep/onestep.h"

namespace onestep::app::paper {
namespace {

std::vector<double> copied(const Array& a) {
  std::vector<double> entries(static_cast<std::size_t>(a.size()));
  a.copy_to(entries);
  return entries;
}

template <class F> Array entrywise(const Array& a, const Array& b, const F& f) {
  std::vector<double> x = copied(a);
  const std::vector<double> y = copied(b);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = f(x[i], y.at(i));
  return {a.shape(), std::move(x)};
}

double dot(const double* a, const double* b, std::size_t n) {
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

double Random::gaussian() {  // Marsaglia's polar method
  for (;;) {
    const double u = uniform(-1, 1), v = uniform(-1, 1), s = u * u + v * v;
    if (s > 0 && s < 1) return u * std::sqrt(-2 * std::log(s) / s);
  }
}

std::vector<double> Random::gaussians(std::size_t count, double deviation) {
  std::vector<double> values(count);
  for (double& e : values) e = deviation * gaussian();
  return values;
}

Array Random::vector(std::int64_t n, double deviation) { return {{n}, gaussians(static_cast<std::size_t>(n), deviation)}; }

Array Random::matrix(std::int64_t rows, std::int64_t columns, double deviation) {
  return {{rows, columns}, gaussians(static_cast<std::size_t>(rows * columns), deviation)};
}

Array Random::orthonormal(std::int64_t rows, std::int64_t columns) {
  const auto N = static_cast<std::size_t>(rows), n = static_cast<std::size_t>(columns);
  std::vector<std::vector<double>> basis;
  for (std::size_t j = 0; j < n; ++j) {
    std::vector<double> v = gaussians(N);
    for (int pass = 0; pass < 2; ++pass)  // Gram and Schmidt, twice for full accuracy
      for (const std::vector<double>& b : basis) {
        const double along = dot(v.data(), b.data(), N);
        for (std::size_t i = 0; i < N; ++i) v[i] -= along * b[i];
      }
    const double size = std::sqrt(dot(v.data(), v.data(), N));
    for (double& e : v) e /= size;
    basis.push_back(std::move(v));
  }
  std::vector<double> entries(N * n);
  for (std::size_t i = 0; i < N; ++i)
    for (std::size_t j = 0; j < n; ++j) entries[i * n + j] = basis[j][i];
  return {{rows, columns}, std::move(entries)};
}

Array Random::with_norm(std::int64_t n, double norm, bool symmetric) {
  const Array U = orthonormal(n, n), V = symmetric ? U : orthonormal(n, n);
  std::vector<double> scaled = copied(U);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      scaled[static_cast<std::size_t>(i * n + j)] *=
          norm * (n == 1 ? 1.0 : 1 - 0.9 * static_cast<double>(j) / static_cast<double>(n - 1));
  return product(Array({n, n}, std::move(scaled)), V.transposed());
}

Samples two_classes(Random& random, std::int64_t N, std::int64_t n) {
  std::vector<double> a(static_cast<std::size_t>(N * n)), y(static_cast<std::size_t>(N));
  const double mu = 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(n - 1, 1)));
  const auto width = static_cast<std::size_t>(n);
  for (std::size_t i = 0; i < y.size(); ++i) {
    y[i] = i % 2 == 0 ? 1 : -1;
    a[i * width] = 1;
    for (std::size_t j = 1; j < width; ++j) a[i * width + j] = random.gaussian() + y[i] * mu;
  }
  return {Array({N, n}, std::move(a)), Array({N}, std::move(y))};
}

Expr logistic_loss(const Samples& samples, const Expr& x, const Expr& weights) {
  return sum(weights * softplus(-samples.y * matmul(samples.A, x))) +
         logistic_lambda * sum(square(slice(x, 1, samples.A.shape()[1])));
}

Solver logistic_regression(const Samples& samples, const SolveOptions& options) {
  return newton([samples](Expr x, Expr w) { return logistic_loss(samples, x, w); }, options);
}

Array minus(const Array& a, const Array& b) {
  return entrywise(a, b, [](double x, double y) { return x - y; });
}
Array plus(const Array& a, const Array& b) {
  return entrywise(a, b, [](double x, double y) { return x + y; });
}
Array times(double factor, const Array& a) {
  std::vector<double> x = copied(a);
  for (double& e : x) e *= factor;
  return {a.shape(), std::move(x)};
}
Array product(const Array& a, const Array& b) {
  return evaluate(traced([](Expr left, Expr right) { return matmul(left, right); }, a.shape(), b.shape()), {a, b}).front();
}

double norm(const Array& a) {
  const std::vector<double> x = copied(a);
  return std::sqrt(dot(x.data(), x.data(), x.size()));
}

double spectral_norm(const Array& a) {
  const bool wide = a.shape()[1] > a.shape()[0];
  const Array square = wide ? product(a, a.transposed()) : product(a.transposed(), a);
  return std::sqrt(std::max(0.0, eigenvalues(square).back()));
}

double relative_error(const Array& a, const Array& b) { return norm(minus(a, b)) / norm(b); }

double largest_difference(std::span<const double> a, std::span<const double> b) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference = std::max(difference, std::fabs(a[i] - b[i]));
    size = std::max(size, std::fabs(b[i]));
  }
  return size > 0 ? difference / size : difference;
}

std::vector<double> eigenvalues(const Array& symmetric) {
  const auto n = static_cast<std::size_t>(symmetric.shape()[0]);
  std::vector<double> a = copied(symmetric);
  const double total = std::sqrt(dot(a.data(), a.data(), a.size()));
  for (int sweep = 0; sweep < 60; ++sweep) {
    double off = 0;
    for (std::size_t p = 0; p < n; ++p)
      for (std::size_t q = p + 1; q < n; ++q) off += a[p * n + q] * a[p * n + q];
    if (std::sqrt(off) <= 1e-17 * total) break;
    for (std::size_t p = 0; p < n; ++p)
      for (std::size_t q = p + 1; q < n; ++q) {
        if (a[p * n + q] == 0) continue;
        const double tau = (a[q * n + q] - a[p * n + p]) / (2 * a[p * n + q]);
        const double t = (tau >= 0 ? 1 : -1) / (std::fabs(tau) + std::hypot(1, tau)), c = 1 / std::hypot(1, t), s = t * c;
        for (std::size_t k = 0; k < n; ++k) {
          const double kp = a[k * n + p], kq = a[k * n + q];
          a[k * n + p] = c * kp - s * kq;
          a[k * n + q] = s * kp + c * kq;
        }
        for (std::size_t k = 0; k < n; ++k) {
          const double pk = a[p * n + k], qk = a[q * n + k];
          a[p * n + k] = c * pk - s * qk;
          a[q * n + k] = s * pk + c * qk;
        }
      }
  }
  std::vector<double> values;
  for (std::size_t i = 0; i < n; ++i) values.push_back(a[i * n + i]);
  std::ranges::sort(values);
  return values;
}

Quartiles quartiles(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
  };
  return {at(0.5), at(0.25), at(0.75)};
}

double fitted_exponent(std::span<const double> x, std::span<const double> y) {
  if (x.size() < 2) return std::numeric_limits<double>::quiet_NaN();
  const auto count = static_cast<double>(x.size());
  double mean_x = 0, mean_y = 0, xx = 0, xy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    mean_x += std::log(x[i]) / count;
    mean_y += std::log(y[i]) / count;
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double dx = std::log(x[i]) - mean_x;
    xx += dx * dx;
    xy += dx * (std::log(y[i]) - mean_y);
  }
  return xy / xx;
}

void Checked::add(double error, double bound) {
  constexpr double slack = 1 + 1e-10;  // both sides are computed in double precision
  ++count;
  held += error <= bound * slack ? 1 : 0;
  closest = std::max(closest, error / bound);
}

std::string Checked::text() const {
  return fmt::format("below the bound {} of {} times, at most {:.2f} of it", held, count, closest);
}

std::size_t heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

std::string number(double value) {
  const double size = std::fabs(value);
  if (value == 0) return "0";
  if (size >= 1e5 || size < 1e-3) return fmt::format("{:.1e}", value);
  return fmt::format("{:.3g}", value);
}

std::string duration(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.3g} µs", 1e6 * seconds);
  if (seconds < 1) return fmt::format("{:.3g} ms", 1e3 * seconds);
  return fmt::format("{:.3g} s", seconds);
}

Series line(std::string label, std::string method, std::string mark) {
  Series series;
  series.label = std::move(label);
  series.method = std::move(method);
  series.mark = std::move(mark);
  return series;
}
void add_point(Series& series, double x, double y) {
  series.x.push_back(x);
  series.y.push_back(y);
}
void add_point(Series& series, double x, const Quartiles& q) {
  add_point(series, x, q.median);
  series.low.push_back(q.low);
  series.high.push_back(q.high);
}

}  // namespace onestep::app::paper
