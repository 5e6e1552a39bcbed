// Lanczos' method with full reorthogonalisation; the tridiagonal matrix's extreme eigenvalues by bisection on Sturm
// sequences.
#include "linear/lanczos.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace onestep::detail {
namespace {

// How many eigenvalues of the tridiagonal matrix (a, b) are below x.
std::size_t count_below(const std::vector<double>& a, const std::vector<double>& b, double x) {
  std::size_t count = 0;
  double q = 1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double off = i == 0 ? 0 : b[i - 1] * b[i - 1];
    q = a[i] - x - (i == 0 ? 0 : off / (q == 0 ? std::numeric_limits<double>::min() : q));
    if (q < 0) ++count;
  }
  return count;
}

double eigenvalue(const std::vector<double>& a, const std::vector<double>& b, std::size_t index) {
  double radius = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    radius = std::max(radius, std::fabs(a[i]) + (i > 0 ? std::fabs(b[i - 1]) : 0) + (i < b.size() ? std::fabs(b[i]) : 0));
  double low = -radius, high = radius;
  for (int k = 0; k < 100 && high - low > 1e-15 * radius; ++k) {
    const double middle = 0.5 * (low + high);
    (count_below(a, b, middle) > index ? high : low) = middle;
  }
  return 0.5 * (low + high);
}

}  // namespace

Extremes lanczos(std::size_t n, int steps, const std::function<void(ConstVector v, Vector out)>& product) {
  LanczosMemory memory;
  return lanczos(n, steps, product, memory);
}

Extremes lanczos(std::size_t n, int steps, const std::function<void(ConstVector v, Vector out)>& product,
                 LanczosMemory& memory) {
  Extremes result;
  if (n == 0) return result;
  std::mt19937_64 random(1);
  std::normal_distribution<double> gaussian;
  auto& [basis, a, b, w] = memory;
  const auto vector = [&](std::size_t i) -> std::vector<double>& {
    if (basis.size() <= i) basis.emplace_back();
    basis[i].resize(n);
    return basis[i];
  };
  for (double& e : vector(0)) e = gaussian(random);
  const double first = norm(basis[0]);
  for (double& e : basis[0]) e /= first;
  a.clear();
  b.clear();
  w.resize(n);
  const auto most = std::min(n, static_cast<std::size_t>(steps));
  while (a.size() < most) {
    const std::size_t k = a.size();
    product(basis[k], w);
    ++result.products;
    a.push_back(dot(basis[k], w));
    for (int twice = 0; twice < 2; ++twice)
      for (std::size_t j = 0; j <= k; ++j) {
        const double along = dot(basis[j], w);
        for (std::size_t i = 0; i < n; ++i) w[i] -= along * basis[j][i];
      }
    const double rest = norm(w);
    if (a.size() == most || !(rest > 1e-14 * std::fabs(a.back()) + std::numeric_limits<double>::min())) break;
    b.push_back(rest);
    std::vector<double>& next = vector(k + 1);
    for (std::size_t i = 0; i < n; ++i) next[i] = w[i] / rest;
  }
  result.smallest = eigenvalue(a, b, 0);
  result.largest = eigenvalue(a, b, a.size() - 1);
  return result;
}

}  // namespace onestep::detail
