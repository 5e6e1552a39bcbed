// Constrained problems that other libraries test themselves with (DiffOpt, qpth, ProxSuite, cvxpylayers, CasADi, jaxopt,
// OSQP), restated with closed forms, or built around a solution that is known.
#include <algorithm>
#include <limits>
#include <numeric>

#include "peers/expect.h"

namespace onestep::peers {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
const std::vector<Estimator>& programs_estimators() {
  static const std::vector<Estimator> all{OneStep{}, Implicit{}, Auto{1e-8}};
  return all;
}
const SolveOptions tightly{.tolerance = 1e-12, .max_iterations = 200};

const Array osqp_Q{{4.0, 1.0}, {1.0, 2.0}};

TEST(Peers, T34_OsqpsProgramHasTheGradientsOfAllItsData) {
  QuadraticProgram p;
  p.Q = osqp_Q, p.q = ones(2), p.A = ones({1, 2}), p.b = ones(1), p.G = Array{{-1.0, 0.0}, {0.0, -1.0}}, p.u = zeros(2);
  for (const Estimator& e : programs_estimators()) {
    const Solution s = solve(quadratic_program(tightly), parts_of(p), e);
    ASSERT_TRUE(is_solution(s.status())) << s.message();
    EXPECT_TRUE(near(s.x(), Array{0.25, 0.75}, 1e-9));
    EXPECT_TRUE(near(s.x(1), Array{-2.75}, 1e-9));
    const Parts g = s.vjp(Array{1.3, 0.5});
    EXPECT_TRUE(near(g[0], Array{{-0.05, -0.05}, {-0.05, 0.15}}, 1e-7));
    EXPECT_TRUE(near(g[1], Array{-0.2, 0.2}, 1e-7));
    EXPECT_TRUE(near(g[2], Array{{0.375, -1.075}}, 1e-7));
    EXPECT_TRUE(near(g[3], Array{0.7}, 1e-7));
    EXPECT_TRUE(near(g[4], zeros({2, 2}), 1e-7, 1.0));
    EXPECT_TRUE(near(g[6], zeros(2), 1e-7, 1.0));
    const Array of_b =
        s.jvp({zeros({2, 2}), zeros(2), zeros({1, 2}), ones(1), zeros({2, 2}), zeros(2), zeros(2), zeros(2), zeros(2)})[0];
    EXPECT_TRUE(near(of_b, Array{0.25, 0.75}, 1e-7));
  }
}

TEST(Peers, T35_DiffOptsProgramWithTwoActiveRows) {
  QuadraticProgram p;
  p.Q = Array{{2.0, 1.0, 0.0}, {1.0, 2.0, 1.0}, {0.0, 1.0, 2.0}}, p.q = zeros(3);
  p.G = Array{{1.0, 2.0, 3.0}, {1.0, 1.0, 0.0}}, p.l = Array{4.0, 1.0}, p.u = full(2, infinity);
  const Array x{4.0 / 7, 3.0 / 7, 6.0 / 7}, z{-5.0 / 7, -6.0 / 7}, dq{-3.0 / 14, 3.0 / 14, -1.0 / 14}, dl{5.0 / 14, 3.0 / 7};
  std::vector<double> dQ, dG;
  for (std::int64_t i = 0; i < 3; ++i)
    for (std::int64_t j = 0; j < 3; ++j) dQ.push_back(0.5 * (dq(i) * x(j) + x(i) * dq(j)));
  for (std::int64_t i = 0; i < 2; ++i)
    for (std::int64_t j = 0; j < 3; ++j) dG.push_back(-dl(i) * x(j) + z(i) * dq(j));
  for (const Estimator& e : programs_estimators()) {
    const Solution s = solve(quadratic_program(tightly), parts_of(p), e);
    ASSERT_TRUE(is_solution(s.status())) << s.message();
    EXPECT_TRUE(near(s.x(), x, 1e-9));
    EXPECT_TRUE(near(s.x(2), z, 1e-9));
    const Parts g = s.vjp(ones(3));
    EXPECT_TRUE(near(g[0], Array({3, 3}, dQ), 1e-7));
    EXPECT_TRUE(near(g[1], dq, 1e-7));
    EXPECT_TRUE(near(g[4], Array({2, 3}, dG), 1e-7));
    EXPECT_TRUE(near(g[5], dl, 1e-7));
  }
}

TEST(Peers, T36_SmallProgramsOfDiffOpt) {
  for (const Estimator& e : programs_estimators()) {
    QuadraticProgram p;
    p.Q = osqp_Q, p.q = ones(2), p.G = ones({1, 2}), p.l = full(1, -infinity), p.u = full(1, -1.0);
    const Solution row = solve(quadratic_program(tightly), parts_of(p), e);
    EXPECT_TRUE(near(row.x(), Array{-0.25, -0.75}, 1e-9));
    EXPECT_TRUE(near(row.x(2), Array{0.75}, 1e-9));
    EXPECT_TRUE(near(row.vjp(ones(2))[1], zeros(2), 1e-7, 1.0));
    EXPECT_TRUE(near(row.vjp(ones(2))[6], ones(1), 1e-7));

    QuadraticProgram box;
    box.Q = osqp_Q, box.q = ones(2), box.A = ones({1, 2}), box.b = ones(1), box.lo = 0.0, box.hi = 0.7;
    EXPECT_TRUE(near(solve(quadratic_program(tightly), parts_of(box), e).x(), Array{0.3, 0.7}, 1e-9));

    QuadraticProgram mathworks;
    mathworks.Q = Array{{1.0, -1.0, 1.0}, {-1.0, 2.0, -2.0}, {1.0, -2.0, 4.0}}, mathworks.q = Array{2.0, -3.0, 1.0};
    mathworks.A = ones({1, 3}), mathworks.b = full(1, 0.5), mathworks.lo = 0.0, mathworks.hi = 1.0;
    const Solution s = solve(quadratic_program(tightly), parts_of(mathworks), e);
    EXPECT_TRUE(near(s.x(), Array{0.0, 0.5, 0.0}, 1e-9));
    const Parts g = s.vjp(ones(3));
    EXPECT_TRUE(near(g[0], zeros({3, 3}), 1e-7, 1.0));
    EXPECT_TRUE(near(g[1], zeros(3), 1e-7, 1.0));
    EXPECT_TRUE(near(g[2], Array{{0.0, -0.5, 0.0}}, 1e-7));
    EXPECT_TRUE(near(g[3], ones(1), 1e-7));
  }
}

// A program around a solution: x, multipliers and which rows are active are chosen, q, b and u follow. The derivative comes
// from the KKT system of the active rows, eliminated in long double.
struct Known {
  QuadraticProgram p;
  Array x, y, z;  // Qx + q + Aᵀy + Gᵀz = 0
  std::vector<std::int64_t> active;

  Known(std::uint64_t seed, std::int64_t n, std::int64_t m, std::int64_t rows, std::int64_t how_many_active) {
    Random random(seed);
    const Array L = random.array({n, n});
    p.Q = test::plus(test::product(L, test::transposed(L)), test::times(0.1, test::identity(n)));
    x = random.array({n}), y = random.array({m});
    p.A = random.array({m, n}), p.G = random.array({rows, n});
    p.b = flat(test::product(p.A, x)), p.l = full(rows, -infinity);
    std::vector<double> multipliers(static_cast<std::size_t>(rows)), limits = test::entries_of(test::product(p.G, x));
    for (std::int64_t i = 0; i < rows; ++i) {
      if (i < how_many_active)
        multipliers[static_cast<std::size_t>(i)] = random.uniform(0.5, 1.5), active.push_back(i);
      else
        limits[static_cast<std::size_t>(i)] += random.uniform(0.5, 1.5);
    }
    p.u = Array({rows}, limits), z = Array({rows}, multipliers);
    const Array forces = test::plus(test::plus(flat(test::product(p.Q, x)), flat(test::product(test::transposed(p.A), y))),
                                    flat(test::product(test::transposed(p.G), z)));
    p.q = test::times(-1.0, forces);
  }

  /// Gradients of cᵀx by Q, q, A, b, G and u.
  std::vector<Array> gradients(const Array& c) const {
    const auto n = static_cast<std::size_t>(x.size()), m = static_cast<std::size_t>(y.size()), k = active.size(),
               N = n + m + k;
    using Row = std::vector<long double>;
    std::vector<Row> M(N, Row(N + 1));
    const auto at = [](std::size_t i) { return static_cast<std::int64_t>(i); };
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) M[i][j] = p.Q(at(i), at(j));
      M[i][N] = -c(at(i));
    }
    for (std::size_t i = 0; i < m + k; ++i)
      for (std::size_t j = 0; j < n; ++j) M[n + i][j] = M[j][n + i] = i < m ? p.A(at(i), at(j)) : p.G(active[i - m], at(j));
    for (std::size_t i = 0; i < N; ++i) {
      std::size_t pivot = i;
      for (std::size_t r = i; r < N; ++r)
        if (std::fabs(M[r][i]) > std::fabs(M[pivot][i])) pivot = r;
      std::swap(M[i], M[pivot]);
      for (std::size_t r = 0; r < N; ++r) {
        const long double factor = r == i ? 0 : M[r][i] / M[i][i];
        for (std::size_t j = i; factor != 0 && j <= N; ++j) M[r][j] -= factor * M[i][j];
      }
    }
    std::vector<double> d(N);
    for (std::size_t i = 0; i < N; ++i) d[i] = static_cast<double>(M[i][N] / M[i][i]);
    const Array dx({x.size()}, {d.begin(), d.begin() + x.size()});
    std::vector<double> dQ, dA, db, dG(static_cast<std::size_t>(p.G.size())), du(static_cast<std::size_t>(z.size()));
    for (std::int64_t i = 0; i < x.size(); ++i)
      for (std::int64_t j = 0; j < x.size(); ++j) dQ.push_back(0.5 * (dx(i) * x(j) + x(i) * dx(j)));
    for (std::size_t i = 0; i < m; ++i) {
      db.push_back(-d[n + i]);
      for (std::int64_t j = 0; j < x.size(); ++j) dA.push_back(d[n + i] * x(j) + y(at(i)) * dx(j));
    }
    for (std::size_t i = 0; i < k; ++i) {
      const auto r = static_cast<std::size_t>(active[i]);
      du[r] = -d[n + m + i];
      for (std::size_t j = 0; j < n; ++j) dG[r * n + j] = d[n + m + i] * x(at(j)) + z(at(r)) * dx(at(j));
    }
    return {Array(p.Q.shape(), dQ), dx, Array(p.A.shape(), dA), Array(p.b.shape(), db), Array(p.G.shape(), dG),
            Array(p.u.shape(), du)};
  }

  void expect_gradients(const Array& c) const {
    const std::vector<Array> truth = gradients(c);
    for (const Estimator& e : programs_estimators()) {
      const Solution s = solve(quadratic_program(tightly), parts_of(p), e);
      ASSERT_TRUE(is_solution(s.status())) << s.message();
      EXPECT_TRUE(near(s.x(), x, 1e-8));
      const Parts g = s.vjp(c);
      const std::size_t place[] = {0, 1, 2, 3, 4, 6};
      for (std::size_t i = 0; i < truth.size(); ++i)
        EXPECT_TRUE(near(g[place[i]], truth[i], 1e-6, 1.0)) << "data " << place[i] << " by " << s.report().method;
    }
  }
};

TEST(Peers, T37_AProgramWithTenEqualitiesAndTwentyFiveInequalities) {
  Random random(37);
  const Known determined(370, 10, 10, 25, 0), constrained(371, 10, 4, 25, 4);
  determined.expect_gradients(random.array({10}));  // ten equalities leave nothing for q and u to move
  constrained.expect_gradients(random.array({10}));
}

TEST(Peers, T38_LinearProgramsByTheirData) {
  for (const Estimator& e : programs_estimators()) {
    const Solver readme = quadratic_program(
        [](Expr p, Expr pc) {
          return TracedProgram{.q = full(1, 2.0), .G = reshape(pc, {1, 1}), .l = reshape(3.0 * p, {1})};
        },
        tightly);
    const Solution s = solve(readme, {Array(4.0), Array(2.0)}, e);
    ASSERT_TRUE(is_solution(s.status())) << s.message();
    EXPECT_NEAR(s.x()(0), 6.0, 1e-9);
    const Parts g = s.vjp(ones(1));
    EXPECT_NEAR(g[0].item(), 1.5, 1e-7);
    EXPECT_NEAR(g[1].item(), -3.0, 1e-7);
    const Solver two = quadratic_program(
        [](Expr h) {
          return TracedProgram{.q = ones(1), .G = full({2, 1}, -1.0), .u = h};
        },
        tightly);
    const Solution t = solve(two, Array{0.0, -3.0}, e);
    EXPECT_NEAR(t.x()(0), 3.0, 1e-9);
    EXPECT_TRUE(near(t.vjp(ones(1)), Array{0.0, -1.0}, 1e-7));
  }
}

TEST(Peers, T39_QpthsRandomProgramHasAllSixGradients) {
  const Known known(39, 10, 3, 8, 3);
  Random random(390);
  known.expect_gradients(test::minus(known.x, random.array({10})));  // ½‖x - x_true‖²
}

TEST(Peers, T40_ProxSuitesProgramsWithEqualitiesAndWithSaturatedRows) {
  const Known equalities(40, 10, 5, 1, 0), saturated(41, 6, 0, 12, 5);
  Random random(400);
  equalities.expect_gradients(random.array({10}));
  saturated.expect_gradients(random.array({6}));
}

TEST(Peers, T41_IdentityConstraintsAndAClippedPoint) {
  const Solver held = quadratic_program(
      [](Expr b) { return TracedProgram{.Q = 2.0 * eye(3), .q = zeros(3), .A = eye(3), .b = b}; }, tightly);
  const Solver clipped =
      quadratic_program([](Expr q) { return TracedProgram{.Q = eye(3), .q = q, .lo = -0.5, .hi = 0.5}; }, tightly);
  const Array b{0.3, -2.0, 5.0}, q{3.0, -3.0, 0.1};
  for (const Estimator& e : programs_estimators()) {
    expect_solution(solve(held, b, e), b, b, test::identity(3), 1e-7);
    expect_solution(solve(clipped, q, e), q, Array{-0.5, 0.5, -0.1},
                    Array{{0.0, 0.0, 0.0}, {0.0, 0.0, 0.0}, {0.0, 0.0, -1.0}}, 1e-7);
  }
}

TEST(Peers, T42_TheGradientOfASharedParameterIsTheSumOverTheBatch) {
  Random random(42);
  const Array A = random.array({4, 3}), b = random.array({4}), other = random.array({4});
  const Solver fit =
      quadratic_program([](Expr a, Expr t) { return TracedProgram{.Q = gram(a, ones(4)) + eye(3), .q = -matmul(t, a)}; },
                        tightly)
          .with(Implicit{});
  const auto gradient = [&](const std::vector<Array>& batch) {
    return evaluate(traced(
                        [&](Expr a) {
                          Expr total = 0.0;
                          for (const Array& t : batch) total = total + sum(slice(fit(a, Expr(t)), 0, 3));
                          return grad(total, a);
                        },
                        Shape{4, 3}),
                    {A})
        .front();
  };
  const Array first = gradient({b}), second = gradient({other});
  EXPECT_TRUE(near(gradient({b, other}), test::plus(first, second), 1e-12));
  EXPECT_TRUE(near(gradient({b, b}), test::times(2.0, first), 1e-12));
  EXPECT_TRUE(near(first, solve(fit, {A, b}, Implicit{}).vjp(ones(3))[0], 1e-12));
}

TEST(Peers, T43_CasadisConicProgram) {
  const Array H{{1.0, -1.0}, {-1.0, 2.0}}, g{-2.0, -6.0};
  for (const Estimator& e : programs_estimators()) {
    const Solver line = quadratic_program(
        [&](Expr b) {
          return TracedProgram{.Q = H, .q = g, .A = ones({1, 2}), .b = b};
        },
        tightly);
    const Solution s = solve(line, Array{2.0}, e);
    expect_solution(s, zeros(1), Array{0.4, 1.6}, Array({2, 1}, {0.6, 0.4}), 1e-8);
    EXPECT_TRUE(near(s.x(1), Array{3.2}, 1e-8));
    QuadraticProgram fixed;
    fixed.Q = H, fixed.q = g, fixed.G = Array{{1.0, 1.0}, {-1.0, 2.0}, {2.0, 1.0}}, fixed.l = full(3, -infinity),
    fixed.u = Array{2.0, 2.0, 3.0};
    fixed.lo = Array{0.5, 0.0}, fixed.hi = Array{0.5, infinity};
    const Solution t = solve(quadratic_program(tightly), parts_of(fixed), e);
    ASSERT_TRUE(is_solution(t.status())) << t.message();
    EXPECT_TRUE(near(t.x(), Array{0.5, 1.25}, 1e-8));
    EXPECT_TRUE(near(t.x(2), Array{0.0, 2.0, 0.0}, 1e-7));
  }
}

TEST(Peers, T44_InfeasibleAndUnboundedProgramsSayWhichAndHaveNoGradient) {
  const auto expect = [](const QuadraticProgram& p, Status status) {
    for (const Estimator& e : programs_estimators()) {
      const Solution s = solve(quadratic_program(), parts_of(p), e);
      EXPECT_EQ(s.status(), status) << s.message();
      EXPECT_THROW(s.vjp(ones(s.x().shape())), NotConvergedError);
    }
  };
  QuadraticProgram polyhedron;
  polyhedron.Q = Array{{1.0, 0.0}, {0.0, 1.0}}, polyhedron.q = zeros(2);
  polyhedron.G = Array{{-1.0, 0.0}, {0.0, -1.0}, {1.0, 1.0}}, polyhedron.l = full(3, -infinity),
  polyhedron.u = Array{-6.0, -6.0, 11.0};
  expect(polyhedron, Status::infeasible);
  QuadraticProgram sides;
  sides.Q = ones({1, 1}), sides.q = zeros(1), sides.G = ones({2, 1}), sides.l = Array{1.0, -infinity},
  sides.u = Array{infinity, -1.0};
  expect(sides, Status::infeasible);
  QuadraticProgram twice;
  twice.Q = ones({1, 1}), twice.q = zeros(1), twice.A = ones({2, 1}), twice.b = Array{1.0, -1.0};
  expect(twice, Status::infeasible);
  QuadraticProgram falling;
  falling.q = ones(1), falling.G = ones({1, 1}), falling.l = full(1, -infinity), falling.u = full(1, 2.0);
  expect(falling, Status::unbounded);
}

TEST(Peers, T45_ProjectionsByTheirDataAndTheirRadius) {
  // Onto the simplex: with S the support, J = I - 11ᵀ/|S| on S and 0 elsewhere.
  const Solver simplex = quadratic_program(
      [](Expr c) {
        return TracedProgram{.Q = eye(4), .q = -c, .A = ones({1, 4}), .b = ones(1), .lo = 0.0};
      },
      tightly);
  const Solver bounded = quadratic_program(  // ½(p - 1.5 x)² with p in [0, 10]
      [](Expr x) { return TracedProgram{.Q = eye(1), .q = reshape(-1.5 * x, {1}), .lo = 0.0, .hi = 10.0}; }, tightly);
  const Array c{0.9, 0.4, 0.6, -0.5};
  const double third = 1.0 / 3, shift = (0.9 + 0.4 + 0.6 - 1) / 3;
  for (const Estimator& e : programs_estimators()) {
    expect_solution(solve(simplex, c, e), c, Array{0.9 - shift, 0.4 - shift, 0.6 - shift, 0.0},
                    Array{{1 - third, -third, -third, 0.0},
                          {-third, 1 - third, -third, 0.0},
                          {-third, -third, 1 - third, 0.0},
                          {0.0, 0.0, 0.0, 0.0}},
                    1e-7);
    expect_solution(solve(bounded, Array(0.5), e), Array(0.5), Array{0.75}, Array({1, 1}, {1.5}), 1e-8);
  }
  // Least squares in the ball of radius r by projected gradients: (D² + μ) w = D y with ‖w‖ = r.
  const Array D{2.0, 1.0}, y{1.0, 1.5};
  const auto w_of = [&](double mu) { return Array{2.0 / (4 + mu), 1.5 / (1 + mu)}; };
  const double r = 0.1;
  double low = 0, high = 1e3;
  for (int k = 0; k < 200; ++k) (test::norm(w_of((low + high) / 2)) > r ? low : high) = (low + high) / 2;
  const Array w = w_of(low), by_mu{-w(0) / (4 + low), -w(1) / (1 + low)};
  const double r_by_mu = (w(0) * by_mu(0) + w(1) * by_mu(1)) / r;
  const Solver projected = fixed_point(
      [&](Expr at, Expr radius) {
        const Expr v = at - 0.2 * (D * (D * at - y));
        return v * minimum(1.0, radius / sqrt(sum(square(v))));
      },
      exactly);
  for (const auto& [name, e] : exact_estimators())
    expect_solution(solve(projected, Array{0.01, 0.02}, r, e), Array(r), w,
                    Array({2, 1}, {by_mu(0) / r_by_mu, by_mu(1) / r_by_mu}), 1e-9, name);
}

TEST(Peers, T46_TheLassoMovesItsSupportBySignsAndNothingElse) {
  // X orthonormal, n samples: w = soft(Xᵀy, nλ) and dw/dλ = -n sign(w).
  const double n = 8, lambda = 0.1;
  const Array Xty{2.0, -1.5, 0.3, 0.0, -0.79};
  const Solver proximal = fixed_point(
      [&](Expr w, Expr l) {
        const Expr v = w - 0.5 * (w - Xty);  // α = n/2
        return sign(v) * maximum(abs(v) - 0.5 * n * l, 0.0);
      },
      exactly);
  const Array w{1.2, -0.7, 0.0, 0.0, 0.0}, J({5, 1}, {-n, n, 0.0, 0.0, 0.0});
  for (const auto& [name, e] : exact_estimators())
    expect_solution(solve(proximal, zeros(5), lambda, e), Array(lambda), w, J, 1e-10, name);
  expect_solution(solve(proximal, zeros(5), lambda, KStep{60}), Array(lambda), w, J, 1e-10);
}

}  // namespace
}  // namespace onestep::peers
