// ‖A‖, ‖B‖ and ‖(I - A)⁻¹‖ at a point: known, exact from the dense matrices where n is small, or bounded with a probability
// by Dixon's inequality: for x uniform on the sphere, ‖M‖ ≤ c (xᵀMᵏx)^(1/k) except with probability 0.8 √n c^(-k/2), M ≥ 0.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "estimate/certify.h"
#include "solve/lanczos.h"

namespace onestep::detail {
namespace {

constexpr std::size_t exact_up_to = 64;
constexpr double failure = 1e-6;  // allowed for each norm
constexpr int most_pairs = 320;   // of products with M = AᵀA
constexpr int largest_power = 64;

using Matrix = std::vector<double>;  // n x n, by rows

Matrix multiply(const Matrix& a, const Matrix& b, std::size_t n) {
  Matrix c(n * n);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t k = 0; k < n; ++k)
      for (std::size_t j = 0; j < n; ++j) c[i * n + j] += a[i * n + k] * b[k * n + j];
  return c;
}

// The largest singular value, up to rounding.
double dense_norm(const Matrix& a, std::size_t n) {
  std::vector<double> w(n);
  const Extremes e = lanczos(n, static_cast<int>(n), [&](ConstVector v, Vector out) {
    for (std::size_t i = 0; i < n; ++i) w[i] = dot(ConstVector(a).subspan(i * n, n), v);
    std::ranges::fill(out, 0.0);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) out[j] += a[i * n + j] * w[i];
  });
  return std::sqrt(std::max(e.largest, 0.0)) * (1 + 1e-12);
}

Matrix dense_a(const Map& map, Point& p, int& products) {
  const std::size_t n = map.size();
  Matrix a(n * n);
  std::vector<double> unit(n), image(n);
  for (std::size_t j = 0; j < n; ++j) {
    unit[j] = 1;
    const bool by_rows = !map.no_jvp.empty();
    by_rows ? p.vjp_x(unit, image) : p.jvp_x(unit, image);
    unit[j] = 0;
    ++products;
    for (std::size_t i = 0; i < n; ++i) a[by_rows ? j * n + i : i * n + j] = image[i];
  }
  return a;
}

struct Bounded {
  double estimate = 0, bound = 0;
};

// The norm of a positive semidefinite M in so many dimensions by Dixon's inequality. Goes on until the bound is within a few
// percent of what power iteration sees, or until `is_enough`.
Bounded dixon(std::size_t n, int& products, const std::function<void(Vector)>& multiply_by_m,
              const std::function<bool(const Bounded&)>& is_enough) {
  std::mt19937_64 random(12345);
  std::normal_distribution<double> gaussian;
  std::vector<double> x(n), y(n);
  for (double& e : x) e = gaussian(random);
  const double length = norm(x);
  for (double& e : x) e /= length;
  y = x;
  double log_scale = 0;  // Mᵏx = exp(log_scale) y
  Bounded b;
  for (int k = 1; k <= most_pairs; ++k) {
    multiply_by_m(y);
    products += 2;
    const double size = norm(y);
    if (!(size > 0) || !std::isfinite(size)) return {0, size > 0 ? std::numeric_limits<double>::infinity() : 0};
    for (double& e : y) e /= size;
    log_scale += std::log(size);
    b.estimate = size;
    const double along = dot(x, y);  // xᵀMᵏx = exp(log_scale) along, positive
    if (!(along > 0)) continue;
    const double c = std::pow(0.8 * std::sqrt(static_cast<double>(n)) / failure, 2.0 / k);
    b.bound = c * std::exp((log_scale + std::log(along)) / k);
    if (k >= 8 && (b.bound <= 1.02 * b.estimate || is_enough(b))) break;
  }
  return b;
}

void measure_b(const Map& map, Point& p, const Constants& known, Norms& out) {
  if (known.norm_B >= 0) {
    out.norm_B = known.norm_B;
    return;
  }
  const std::size_t n = map.size();
  if (!map.no_vjp.empty() || !map.no_jvp.empty()) {
    out.reason = "‖∂F/∂θ‖ cannot be measured without both jvp and vjp; give it with Solver::knowing";
    out.inverse = std::numeric_limits<double>::infinity();
    return;
  }
  std::vector<std::vector<double>> memory = memory_for(map.parameters);
  const std::vector<Vector> spans(memory.begin(), memory.end());
  std::vector<Array> arrays;
  const auto apply = [&](ConstVector v, Vector result) {  // B Bᵀ
    p.vjp_theta(v, spans);
    arrays.clear();
    for (std::size_t i = 0; i < memory.size(); ++i) arrays.emplace_back(map.parameters[i].shape, memory[i]);
    p.jvp_theta(arrays, result);
    out.products += 2;
  };
  if (n <= exact_up_to) {
    const Extremes e = lanczos(n, static_cast<int>(n), apply);
    out.norm_B = std::sqrt(std::max(e.largest, 0.0)) * (1 + 1e-12);
    return;
  }
  std::vector<double> w(n);
  const Bounded b = dixon(
      n, out.products,
      [&](Vector v) {
        out.products -= 2;  // counted by apply
        apply(v, w);
        std::ranges::copy(w, v.begin());
      },
      [](const Bounded& found) { return found.bound <= 1.5 * found.estimate; });
  out.norm_B = std::sqrt(b.bound);
}

void refuse(Norms& out, std::string reason) {
  out.inverse = std::numeric_limits<double>::infinity();
  out.reason = std::move(reason);
}

// ‖A^j‖ < 1 for some j = 2, 4, 8, …: (I - A)⁻¹ = (I + A + … + A^(j-1)) (I - A^j)⁻¹.
void dense_powers(Matrix a, std::size_t n, Norms& out) {
  Matrix sum(n * n);  // I + A + … + A^(j-1)
  for (std::size_t i = 0; i < n; ++i) sum[i * n + i] = 1;
  const double first = out.rho;
  for (int j = 1; j <= largest_power; j *= 2) {
    const double rho = j == 1 ? first : dense_norm(a, n);
    if (rho < 1) {
      out.rho = rho;
      out.power = j;
      out.inverse = j == 1 ? 1 / (1 - rho) : dense_norm(sum, n) / (1 - rho);
      return;
    }
    const Matrix more = multiply(sum, a, n);
    for (std::size_t i = 0; i < n * n; ++i) sum[i] += more[i];
    a = multiply(a, a, n);
  }
  refuse(out, fmt::format("‖A‖ = {:.3g}, and no power of A up to {} has a norm below 1", first, largest_power));
}

void measure_a(const Map& map, Point& p, const Constants& known, Norms& out) {
  const std::size_t n = map.size();
  if (known.rho >= 0) {
    out.rho = known.rho;
    if (known.rho < 1)
      out.inverse = 1 / (1 - known.rho);
    else
      refuse(out, fmt::format("the contraction factor given is {}", known.rho));
    return;
  }
  if (n <= exact_up_to) {
    Matrix a = dense_a(map, p, out.products);
    out.rho = dense_norm(a, n);
    return dense_powers(std::move(a), n, out);
  }
  if (!map.symmetric && (!map.no_jvp.empty() || !map.no_vjp.empty()))
    return refuse(out, "‖∂F/∂x‖ cannot be measured without both jvp and vjp; give it with Solver::knowing");
  std::vector<double> w(n);
  double sum_of_powers = 1, rho_1 = 0;
  const bool use_jvp = map.no_jvp.empty();
  for (int j = 1; j <= largest_power; j *= 2) {
    const auto times_m = [&](Vector v) {  // (A^j)ᵀ A^j
      for (int i = 0; i < j; ++i) {
        use_jvp ? p.jvp_x(v, w) : p.vjp_x(v, w);
        std::ranges::copy(w, v.begin());
      }
      for (int i = 0; i < j; ++i) {
        map.symmetric&& use_jvp ? p.jvp_x(v, w) : p.vjp_x(v, w);
        std::ranges::copy(w, v.begin());
      }
      out.products += 2 * j - 2;
    };
    const Bounded b = dixon(n, out.products, times_m, [](const Bounded& found) {
      const double estimate = std::sqrt(found.estimate), bound = std::sqrt(found.bound);
      return estimate >= 1 || (bound < 1 && 1 / (1 - bound) <= 2 / (1 - estimate));
    });
    const double rho = std::sqrt(b.bound);
    if (j == 1) out.rho = rho_1 = rho;
    if (rho < 1) {
      out.rho = rho;
      out.power = j;
      for (int i = 1; i < j; ++i) sum_of_powers = 1 + rho_1 * sum_of_powers;
      out.inverse = sum_of_powers / (1 - rho);
      return;
    }
    if (j == 1 && std::sqrt(b.estimate) < 1)
      return refuse(out, fmt::format("‖A‖ is about {:.4g}, too near 1 for a bound within {} products", std::sqrt(b.estimate),
                                     2 * most_pairs));
  }
  refuse(out, fmt::format("‖A‖ may be {:.3g}, and no power of A up to {} has a norm below 1", rho_1, largest_power));
}

}  // namespace

Norms measure_norms(const Method& method, Point& p) {
  Norms out;
  if (method.superlinear) return out;  // A is zero at the solution; how far from it we are is another matter
  measure_a(*method.step, p, method.known, out);
  if (std::isfinite(out.inverse)) measure_b(*method.step, p, method.known, out);
  return out;
}

}  // namespace onestep::detail
