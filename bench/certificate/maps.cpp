// Maps: linear ones, gradient descent with and without momentum, coordinate descent, and Anderson's acceleration as a
// foreign step.
#include <algorithm>
#include <cmath>
#include <memory>

#include "certificate/problem.h"

namespace onestep::bench {
namespace {

Problem linear(std::string text, Random& random, const Array& A, std::size_t n) {
  const std::size_t p = 1 + random.below(std::min<std::size_t>(n + 2, 12));
  const Array B = random.matrix(n, p, random.scale(1e-3, 1e3)), b = random.vector(n);
  return map_problem(
      std::move(text), [A, B, b](auto x, auto t) { return matmul(A, x) + matmul(B, t) + b; }, random.vector(n),
      random.vector(p));
}

std::vector<double> spread(Random& random, std::size_t n, double rho) {
  std::vector<double> eigenvalues(n);
  for (double& e : eigenvalues) e = random.uniform(-rho, rho);
  eigenvalues[0] = random.chance(0.7) ? rho : -rho;
  return eigenvalues;
}

Problem linear_normal(Random& random) {
  const std::size_t n = random_size(random);
  const Array A = symmetric_with(random, spread(random, n, random_rho(random)));
  return linear("x = A x + B t + b, A symmetric", random, A, n);
}

// Triangular with large entries above the diagonal, or Gaussian entries scaled to a spectral radius.
Problem linear_nonnormal(Random& random) {
  const std::size_t n = std::max<std::size_t>(2, random_size(random));
  const double rho = random_rho(random);
  if (random.chance(0.5))
    return linear("x = A x + B t + b, A Gaussian scaled to its radius", random, scaled_to_radius(random.matrix(n, n), rho),
                  n);
  std::vector<double> a(n * n);
  const double coupling = random.scale(0.1, 10);
  const std::size_t reach = 1 + random.below(3);
  for (std::size_t i = 0; i < n; ++i) {
    a[i * n + i] = random.uniform(-rho, rho);
    for (std::size_t j = i + 1; j < std::min(n, i + 1 + reach); ++j) a[i * n + j] = coupling * random.gaussian();
  }
  // Long chains of large couplings amplify beyond any use.
  const std::size_t m = std::min<std::size_t>(n, 8);
  std::vector<double> cut(m * m);
  for (std::size_t i = 0; i < m; ++i)
    std::copy_n(a.begin() + static_cast<std::ptrdiff_t>(i * n), m, cut.begin() + static_cast<std::ptrdiff_t>(i * m));
  return linear("x = A x + B t + b, A triangular", random, Array(Shape{as_size(m), as_size(m)}, cut), m);
}

// A strongly convex smooth objective: ½xᵀQx - (B t)ᵀx + Σ softplus(Cx), its gradient, and its curvatures' bounds.
struct Convex {
  Array Q, B, C;
  double mu, L;
  std::size_t n, p;
  Expr value(const Expr& x, const Expr& t) const {
    return 0.5 * matmul(x, matmul(Q, x)) - matmul(matmul(B, t), x) + sum(softplus(matmul(C, x)));
  }
  template <class X> X gradient(const X& x, const X& t) const {
    return matmul(Q, x) - matmul(B, t) + matmul(transpose(X(C)), sigmoid(matmul(C, x)));
  }
};

Convex convex(Random& random, double condition, std::size_t n) {
  std::vector<double> curvatures(n);
  for (double& e : curvatures) e = random.scale(1 / condition, 1);
  curvatures[0] = 1;
  curvatures[n - 1] = 1 / condition;
  const std::size_t p = 1 + random.below(8);
  Convex f{symmetric_with(random, curvatures),
           random.matrix(n, p),
           scaled_to_norm(random.matrix(n, n), random.scale(0.1, 3)),
           1 / condition,
           0,
           n,
           p};
  double norm = 0;
  for (const double e : f.C.values()) norm += e * e;
  f.L = 1 + 0.25 * norm;
  return f;
}

Problem descent(Random& random) {
  const Convex f = convex(random, random.scale(2, 300), random_size(random));
  const double alpha = random.uniform(0.5, 1) / f.L;
  Problem p = map_problem(
      "x - alpha grad f, smooth and strongly convex", [f, alpha](auto x, auto t) { return x - alpha * f.gradient(x, t); },
      random.vector(f.n), random.vector(f.p));
  p.solver = [f, alpha](const SolveOptions& options) {
    return gradient_descent([f](Expr x, Expr t) { return f.value(x, t); }, {.step = GradientStep::fixed(alpha)}, options);
  };
  return p;
}

// Heavy ball and Nesterov, by gradient_descent or as a map over (x, x⁻).
Problem momentum(Random& random, bool nesterov) {
  const Convex f = convex(random, random.scale(2, 300), random_size(random, 16));
  const double alpha = random.uniform(0.5, 1) / f.L, beta = random.uniform(0.1, 0.9);
  const auto n = as_size(f.n);
  const auto step = [f, alpha, beta, nesterov, n](auto s, auto t) {
    const auto x = slice(s, 0, n), previous = slice(s, n, 2 * n);
    const auto inertia = beta * (x - previous);
    const auto at = nesterov ? x + inertia : x;
    return join(x + inertia - alpha * f.gradient(at, t), x);
  };
  const Array x0 = random.vector(f.n);
  std::vector<double> both(x0.values().begin(), x0.values().end());
  both.insert(both.end(), x0.values().begin(), x0.values().end());
  Problem p = map_problem(nesterov ? "Nesterov" : "heavy ball", step, array_of(both), random.vector(f.p));
  if (random.chance(0.5)) return p;
  p.text += " by gradient_descent";
  const Momentum how = nesterov ? Momentum::nesterov(beta) : Momentum::heavy_ball(beta);
  p.solver = [f, alpha, how](const SolveOptions& options) {
    return gradient_descent([f](Expr x, Expr t) { return f.value(x, t); },
                            {.step = GradientStep::fixed(alpha), .momentum = how}, options);
  };
  p.start = {x0, x0};
  return p;
}
Problem heavy_ball(Random& random) { return momentum(random, false); }
Problem nesterov(Random& random) { return momentum(random, true); }

// One sweep over the coordinates of ½xᵀQx - (t + b)ᵀx: Gauss and Seidel's map.
Problem coordinate_descent(Random& random) {
  const std::size_t n = 2 + random.below(9);
  std::vector<double> curvatures(n);
  for (double& e : curvatures) e = random.scale(0.02, 1);
  const Array Q = symmetric_with(random, curvatures), b = random.vector(n);
  const bool curved = random.chance(0.5);
  return map_problem(
      "cyclic coordinate descent",
      [Q, b, n, curved](auto x, auto t) {
        for (std::size_t i = 0; i < n; ++i) {
          const auto at = as_size(i);
          const std::span<const double> q = Q.values();
          const Array row(Shape{as_size(n)},
                          std::vector<double>(q.begin() + at * as_size(n), q.begin() + (at + 1) * as_size(n)));
          // A step along coordinate i, exact for the quadratic part.
          auto slope = matmul(row, x) - slice(t, at, at + 1) - b(at);
          auto now = slice(x, at, at + 1);
          if (curved) slope = slope + 0.1 * sin(now);
          auto moved = now - slope / (row(at) + (curved ? 0.1 : 0.0));
          auto next = i == 0 ? moved : join(slice(x, 0, at), moved);
          x = i + 1 == n ? next : join(next, slice(x, at + 1, as_size(n)));
        }
        return x;
      },
      random.vector(n), random.vector(n));
}

// ---- Anderson ----

// x⁺ of Anderson's acceleration with memory m, begun anew at x: m + 1 evaluations of F, then the mixture whose residual is
// smallest. Its fixed points are F's, but at them the mixture is 0/0: the map has no derivative of its own there. The
// derivative of the fixed point is that of x = F(x, θ), and this is what jvp and vjp hand over.
struct Anderson {
  Array W, U;
  std::size_t n, p, memory;

  std::vector<double> inner(std::span<const double> x, std::span<const double> t) const {
    std::vector<double> z(n);
    const std::span<const double> w = W.values(), u = U.values();
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) z[i] += w[i * n + j] * x[j];
      for (std::size_t j = 0; j < p; ++j) z[i] += u[i * p + j] * t[j];
      z[i] = std::tanh(z[i]);
    }
    return z;
  }
  void apply(std::span<const double> x, std::span<const double> t, std::span<double> next) const {
    std::vector<double> at(x.begin(), x.end());
    std::vector<std::vector<double>> values, residuals;
    for (std::size_t k = 0; k <= memory; ++k) {
      values.push_back(inner(at, t));
      std::vector<double> r(n);
      for (std::size_t i = 0; i < n; ++i) r[i] = values[k][i] - at[i];
      residuals.push_back(std::move(r));
      at = values[k];
    }
    // min ‖r_m - Σ γ_k (r_{k+1} - r_k)‖ by Gram and Schmidt; directions that vanish are left out.
    std::vector<double> r = residuals.back();
    at = values.back();
    std::vector<std::vector<double>> basis, images;
    for (std::size_t k = memory; k-- > 0;) {
      std::vector<double> d(n), g(n);
      for (std::size_t i = 0; i < n; ++i)
        d[i] = residuals[k + 1][i] - residuals[k][i], g[i] = values[k + 1][i] - values[k][i];
      const auto dot = [this](const std::vector<double>& a, const std::vector<double>& b) {
        double total = 0;
        for (std::size_t i = 0; i < n; ++i) total += a[i] * b[i];
        return total;
      };
      const double size = dot(d, d);
      for (std::size_t j = 0; j < basis.size(); ++j) {
        const double part = dot(d, basis[j]) / dot(basis[j], basis[j]);
        for (std::size_t i = 0; i < n; ++i) d[i] -= part * basis[j][i], g[i] -= part * images[j][i];
      }
      if (!(dot(d, d) > 1e-12 * size) || !(size > 1e-300)) continue;
      const double gamma = dot(r, d) / dot(d, d);
      for (std::size_t i = 0; i < n; ++i) r[i] -= gamma * d[i], at[i] -= gamma * g[i];
      basis.push_back(std::move(d));
      images.push_back(std::move(g));
    }
    std::ranges::copy(at, next.begin());
  }
};

Problem anderson(Random& random) {
  const std::size_t n = 2 + random.below(20), p = 1 + random.below(6);
  auto a = std::make_shared<Anderson>(Anderson{scaled_to_norm(random.matrix(n, n), random.uniform(0.2, 0.95)),
                                               random.matrix(n, p), n, p, 1 + random.below(4)});
  Problem problem = map_problem(
      "Anderson, begun anew each step, as a foreign step with the derivatives of tanh(W x + U t)",
      [W = a->W, U = a->U](auto x, auto t) { return tanh(matmul(W, x) + matmul(U, t)); }, random.vector(n),
      random.vector(p));
  problem.family = Family::foreign;
  problem.solver = [a, n, p](const SolveOptions& options) {
    ForeignStep step;
    step.apply = [a](auto x, auto t, auto next) { a->apply(x, t[0].values(), next); };
    step.jvp = [a, n, p](auto x, auto t, auto dx, auto dt, auto out) {
      const std::vector<double> value = a->inner(x, t[0].values());
      const std::span<const double> w = a->W.values(), u = a->U.values();
      for (std::size_t i = 0; i < n; ++i) {
        double total = 0;
        if (!dx.empty())
          for (std::size_t j = 0; j < n; ++j) total += w[i * n + j] * dx[j];
        if (!dt.empty())
          for (std::size_t j = 0; j < p; ++j) total += u[i * p + j] * dt[0].values()[j];
        out[i] = (1 - value[i] * value[i]) * total;
      }
    };
    step.vjp = [a, n, p](auto x, auto t, auto c, auto x_bar, auto t_bar) {
      const std::vector<double> value = a->inner(x, t[0].values());
      const std::span<const double> w = a->W.values(), u = a->U.values();
      std::ranges::fill(x_bar, 0.0);
      if (!t_bar.empty()) std::ranges::fill(t_bar[0], 0.0);
      for (std::size_t i = 0; i < n; ++i) {
        const double s = (1 - value[i] * value[i]) * c[i];
        for (std::size_t j = 0; j < x_bar.size(); ++j) x_bar[j] += s * w[i * n + j];
        if (!t_bar.empty())
          for (std::size_t j = 0; j < t_bar[0].size(); ++j) t_bar[0][j] += s * u[i * p + j];
      }
    };
    return fixed_point(step, options);
  };
  return problem;
}

}  // namespace

std::vector<ProblemClass> map_classes() {
  return {{"linear normal", 1, linear_normal}, {"linear non-normal", 1, linear_nonnormal},
          {"gradient descent", 1, descent},    {"heavy ball", 1, heavy_ball},
          {"nesterov", 1, nesterov},           {"coordinate descent", 0.7, coordinate_descent},
          {"anderson", 0.7, anderson}};
}

}  // namespace onestep::bench
