// Quadratic programs as solvers: closed forms, every estimator that applies, and where there is no derivative.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <thread>

#include "estimate/state.h"
#include "onestep/onestep.h"
#include "support/dense.h"

namespace onestep {
namespace {

double distance(const Array& a, const Array& b) {
  double sum = 0, size = 0;
  for (std::size_t i = 0; i < a.values().size(); ++i) {
    sum += (a.values()[i] - b.values()[i]) * (a.values()[i] - b.values()[i]);
    size += b.values()[i] * b.values()[i];
  }
  return std::sqrt(sum) / std::max(std::sqrt(size), 1.0);
}

const Estimator estimators[] = {OneStep{}, Implicit{}, Auto{}, KStep{1}, KStep{3}, Unrolled{}};
// Going over the steps of an interior point method loses digits near its end, where its matrix is nearly singular.
bool by_steps(const Estimator& e) {
  const auto* k = std::get_if<KStep>(&e.kind());
  return std::holds_alternative<Unrolled>(e.kind()) || (k != nullptr && k->K > 1);
}
// The derivative of the last step has the error of the iterate before it.
const SolveOptions tight{.tolerance = 1e-12, .max_iterations = 200};

TEST(QuadraticProgram, ProjectionOnABoxPassesWhatIsInside) {
  const Solver project =
      quadratic_program([](Expr c) { return TracedProgram{.Q = eye(4), .q = -c, .lo = 0.0, .hi = 1.0}; }, tight);
  const Array c{2.0, 0.5, -1.0, 0.25}, v{1.0, 2.0, 3.0, 4.0};
  for (const Estimator& e : estimators) {
    const Solution s = solve(project, c, e);
    ASSERT_EQ(s.status(), Status::converged) << s.message();
    EXPECT_LT(distance(s.x(), Array{1.0, 0.5, 0.0, 0.25}), 1e-8);
    EXPECT_LT(distance(s.vjp(v), Array{0.0, 2.0, 0.0, 4.0}), 1e-6);
    EXPECT_LT(distance(s.jvp(v)[0], Array{0.0, 2.0, 0.0, 4.0}), 1e-6);
  }
}

// Onto {x ≥ 0, Σx = 1}: x = max(c - t, 0), and on the support S the derivative is I - 11ᵀ/|S|.
TEST(QuadraticProgram, ProjectionOnTheSimplexIsCentredOnItsSupport) {
  const Solver project = quadratic_program(
      [](Expr c) {
        return TracedProgram{.Q = eye(4), .q = -c, .A = ones({1, 4}), .b = ones({1}), .lo = 0.0};
      },
      tight);
  const Array c{0.7, 0.5, -1.0, 0.4}, v{1.0, 2.0, 3.0, 6.0};
  for (const Estimator& e : estimators) {
    const Solution s = solve(project, c, e);
    EXPECT_LT(distance(s.x(), Array{0.5, 0.3, 0.0, 0.2}), 1e-8);
    EXPECT_LT(distance(s.vjp(v), Array{-2.0, -1.0, 0.0, 3.0}), 1e-6);
  }
}

// min ½xᵀQx + qᵀx, Ax = b, in closed form by its KKT matrix.
TEST(QuadraticProgram, WithEqualitiesIsALinearSystem) {
  const Array Q{{4.0, 1.0}, {1.0, 3.0}}, A{{1.0, 2.0}};
  const Solver solver = quadratic_program([&](Expr b) {
    return TracedProgram{.Q = Q, .q = Array{1.0, -1.0}, .A = A, .b = b};
  });
  const Solution s = solve(solver, Array{1.0}, Implicit{});
  // [Q Aᵀ; A 0] (dx, dy) = (0, db): by hand, dx = Q⁻¹Aᵀ (A Q⁻¹ Aᵀ)⁻¹ db.
  const double det = 11, u = (3.0 * 1 - 1.0 * 2) / det, w = (-1.0 * 1 + 4.0 * 2) / det, schur = u + 2 * w;
  EXPECT_LT(distance(s.jvp(Array{1.0})[0], Array{u / schur, w / schur}), 1e-9);
  EXPECT_NEAR(s.jvp(Array{1.0})[1](0), -1 / schur, 1e-9 / schur);
}

// A whole program: derivatives with respect to all data agree between the estimators and with differences.
TEST(QuadraticProgram, DerivativesByAllDataAgreeWithDifferences) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
    std::vector<double> v(static_cast<std::size_t>(rows * columns));
    for (double& e : v) e = normal(random);
    return Array({rows, columns}, v);
  };
  const auto vector = [&](std::int64_t n) {
    std::vector<double> v(static_cast<std::size_t>(n));
    for (double& e : v) e = normal(random);
    return Array({n}, v);
  };
  const Array root = matrix(6, 6);
  QuadraticProgram p;
  p.Q = evaluate(traced([](Expr m) { return matmul(transpose(m), m) + eye(6); }, Shape{6, 6}), {root}).front();
  p.q = vector(6);
  p.A = matrix(2, 6);
  p.b = full({2}, 0.1);
  p.G = matrix(4, 6);
  p.l = full({4}, -0.3);
  p.u = full({4}, 0.3);
  p.lo = full({6}, -0.5);
  p.hi = full({6}, 0.6);
  const Parts data = parts_of(p);
  const Array c = vector(6);
  std::vector<Array> direction;
  for (const Array& a : data) {
    Array d = a.shape().rank() == 2 ? matrix(a.shape()[0], a.shape()[1]) : vector(a.shape()[0]);
    if (a.shape() == Shape{6, 6}) d = evaluate(traced([](Expr m) { return m + transpose(m); }, Shape{6, 6}), {d}).front();
    direction.push_back(d);
  }
  const auto moved = [&](double t) {
    std::vector<Array> all;
    for (std::size_t i = 0; i < data.size(); ++i)
      all.push_back(evaluate(traced([t](Expr a, Expr d) { return a + t * d; }, data[i].shape(), data[i].shape()),
                             {data[i], direction[i]})
                        .front());
    return solve(quadratic_program(tight), Parts(all), Implicit{}).x();
  };
  const double h = 1e-5;
  const Array plus = moved(h), minus = moved(-h);
  double expected = 0;
  for (std::int64_t i = 0; i < 6; ++i) expected += c(i) * (plus(i) - minus(i)) / (2 * h);
  for (const Estimator& e : estimators) {
    const SolveOptions loose{.tolerance = 1e-9, .max_iterations = 200};
    const Solution s = solve(quadratic_program(by_steps(e) ? loose : tight), data, e);
    ASSERT_TRUE(is_solution(s.status())) << s.message();
    const Parts bars = s.vjp(c);
    double found = 0;
    for (std::size_t i = 0; i < data.size(); ++i)
      for (std::size_t k = 0; k < bars[i].values().size(); ++k) found += bars[i].values()[k] * direction[i].values()[k];
    EXPECT_NEAR(found, expected, 1e-6 * std::fabs(expected));
    const Array forward = s.jvp(Parts(direction))[0];
    double other = 0;
    for (std::int64_t i = 0; i < 6; ++i) other += c(i) * forward(i);
    EXPECT_NEAR(other, found, (by_steps(e) ? 1e-5 : 1e-8) * std::fabs(found));
    const Certificate certificate = s.certificate(c);
    EXPECT_NE(certificate.basis, Certificate::Basis::refused) << certificate.reason;
  }
}

TEST(QuadraticProgram, WithoutStrictComplementarityHasNoBound) {
  // The unconstrained minimum lies on the bound.
  const Solver solver = quadratic_program([](Expr c) { return TracedProgram{.Q = eye(2), .q = -c, .lo = 0.0}; });
  const Solution s = solve(solver, Array{0.0, 1.0}, OneStep{});
  const Array g = s.vjp(Array{1.0, 1.0});
  EXPECT_TRUE(std::isfinite(g(0)) && std::isfinite(g(1)));
  const Certificate c = s.certificate(Array{1.0, 1.0});
  EXPECT_EQ(c.basis, Certificate::Basis::refused);
  EXPECT_NE(c.reason.find("variable 0"), std::string::npos) << c.reason;
}

TEST(QuadraticProgram, InfeasibleIsAStatus) {
  const Solver solver = quadratic_program([](Expr b) {
    return TracedProgram{.Q = eye(1), .q = zeros({1}), .A = Array({1, 1}, {1.0}), .b = b, .lo = 0.0};
  });
  const Solution s = solve(solver, Array{-1.0});
  EXPECT_EQ(s.status(), Status::infeasible);
  EXPECT_THROW((void)s.vjp(Array{1.0}), Error);
}

// x ↦ the projection of Mx + t on a box, inside a fixed point.
// What has no minimum is said by every estimator, with a proof.
TEST(QuadraticProgram, WhatHasNoMinimumIsAStatusWithEveryEstimator) {
  const Solver concave =
      quadratic_program([](Expr c) { return TracedProgram{.Q = -1.0 * eye(2), .q = c, .lo = -1.0, .hi = 1.0}; });
  const Solver falling = quadratic_program([](Expr c) { return TracedProgram{.q = c, .lo = 0.0}; });
  const Solver crossing = quadratic_program([](Expr c) { return TracedProgram{.Q = eye(2), .q = c, .lo = 1.0, .hi = 0.0}; });
  const Solver apart = quadratic_program([](Expr b) {
    return TracedProgram{.Q = eye(2), .A = Array{{1.0, 1.0}, {1.0, 1.0}}, .b = b};
  });
  for (const Estimator& e : estimators) {
    EXPECT_EQ(solve(concave, zeros({2}), e).status(), Status::not_convex);
    EXPECT_EQ(solve(crossing, zeros({2}), e).status(), Status::infeasible);
    const Solution down = solve(falling, Array{-1.0, 1.0}, e), none = solve(apart, Array{1.0, 2.0}, e);
    ASSERT_EQ(down.status(), Status::unbounded);
    const Array ray = down.proof()[0];
    EXPECT_NEAR(-ray(0) + ray(1), -1, 1e-6);
    EXPECT_GT(ray(0), 0);
    ASSERT_EQ(none.status(), Status::infeasible);
    const Array y = none.proof()[1];
    EXPECT_NEAR(y(0) + y(1), 0, 1e-6);
    EXPECT_NEAR(y(0) + 2 * y(1), -1, 1e-6);
    EXPECT_NE(down.message().find("along a ray: a constraint is missing, or a sign is wrong. Solution::proof()"),
              std::string::npos);
    EXPECT_NE(none.message().find("Solution::proof() says which"), std::string::npos);
    EXPECT_THROW(down.vjp(ones({2})), Error);
  }
  const Solution without_proof = solve(crossing, zeros({2}));
  EXPECT_THROW(without_proof.proof(), Error);
  EXPECT_EQ(without_proof.message(), std::string(explain(Status::infeasible)) + " [" + without_proof.about() + "]");
}

TEST(QuadraticProgram, AFailedSolveDoesNotKeepTheLastAnswer) {
  const Solver box =
      quadratic_program([](Expr lo) { return TracedProgram{.Q = eye(2), .q = ones({2}), .lo = lo, .hi = 3.0}; });
  Prepared prepared(box, {zeros({2}), zeros({0}), zeros({0}), zeros({2})}, Array{1.0, 2.0}, OneStep{});
  const Parts start{zeros({2}), zeros({0}), zeros({0}), zeros({2})};
  EXPECT_NEAR(prepared.solve(start, Array{1.0, 2.0}).x()(1), 2, 1e-8);
  const Solution& failed = prepared.solve(start, Array{1.0, 5.0});
  EXPECT_EQ(failed.status(), Status::infeasible);
  EXPECT_EQ(failed.x()(1), 0);
}

TEST(QuadraticProgram, ImplicitMakesNoFactorisation) {
  const Solver project = quadratic_program([](Expr c) { return TracedProgram{.Q = eye(4), .q = -c, .lo = 0.0}; });
  const Solution s = solve(project, Array{2.0, 0.5, -1.0, 0.25}, Implicit{});
  s.vjp(ones({4}));
  EXPECT_EQ(s.report().factorisations, 0);
  s.jvp(ones({4}));
  EXPECT_EQ(s.report().factorisations, 0);
}

TEST(QuadraticProgram, AnEquationOfTheUsersIsUsed) {
  const Solver project = quadratic_program([](Expr c) { return TracedProgram{.Q = eye(2), .q = -c}; });
  // Not the truth, to tell it apart: x = 2c.
  const Solver other = project.equation([](Expr x, Expr y, Expr z, Expr w, Expr c) {
    return std::tuple{x - 2.0 * c, 1.0 * y, 1.0 * z, 1.0 * w};
  });
  EXPECT_LT(distance(solve(other, ones({2}), Implicit{}).jvp(ones({2}))[0], full({2}, 2.0)), 1e-12);
}

TEST(QuadraticProgram, NumbersInThePlaceOfMatricesAreRefused) {
  const auto solving = [](auto program) { return [=] { solve(quadratic_program(program), ones({2})); }; };
  EXPECT_THROW(solving([](Expr c) { return TracedProgram{.Q = 2.0, .q = c}; })(), Error);
  EXPECT_THROW(solving([](Expr c) { return TracedProgram{.q = c, .A = 1.0, .lo = 0.0}; })(), Error);
  EXPECT_THROW(solving([](Expr c) { return TracedProgram{.q = c, .G = 1.0, .lo = 0.0}; })(), Error);
}

TEST(QuadraticProgram, WithEveryEstimatorTheStateHasFourParts) {
  const Solver project = quadratic_program([](Expr c) { return TracedProgram{.Q = eye(2), .q = -c, .lo = 0.0}; });
  for (const Estimator& e : estimators) {
    const Solution s = solve(project, Array{1.0, -1.0}, e);
    EXPECT_EQ(s.state().size(), 4U);
    EXPECT_EQ(s.jvp(ones({2})).size(), 4U);
    EXPECT_EQ(Array(s.jacobian()).shape(), (Shape{4, 2}));
    std::vector<double> along(4);
    s.jvp_into(std::vector<Array>{ones({2})}, along);
    EXPECT_NEAR(along[0], 1, 1e-6);
  }
}

const auto simplex = [](Expr c) {
  return TracedProgram{.Q = eye(4), .q = -c, .A = ones({1, 4}), .b = ones({1}), .lo = 0.0};
};
const Parts no_start{zeros({4}), zeros({1}), zeros({0}), zeros({4})};

TEST(QuadraticProgram, WithEveryEstimatorASolutionAtZeroIsFound) {
  for (const Estimator& e : {Estimator(OneStep{}), Estimator(KStep{2}), Estimator(Unrolled{}), Estimator(Implicit{})})
    for (const double high : {1.0, 3.0, 3.26, 1e4}) {
      const Solver box =
          quadratic_program([high](Expr q) { return TracedProgram{.Q = eye(2), .q = q, .lo = -2.0 * high, .hi = high}; });
      const Solution s = solve(box, zeros({2}), e);
      EXPECT_EQ(s.status(), Status::converged) << e.kind().index() << ' ' << high;
      EXPECT_NEAR(s.x()(0), 0, 1e-9 * high);
    }
}

TEST(QuadraticProgram, NotANumberIsFoundInTheDataItCameTo) {
  const Solution s = solve(quadratic_program(simplex), Array{1.0, std::nan(""), 0.0, 0.0});
  EXPECT_EQ(s.status(), Status::not_finite);
  EXPECT_NE(s.message().find("q, entry 1"), std::string::npos) << s.message();
}

TEST(QuadraticProgram, CallbacksSeeEachIterateAndCanCancel) {
  std::vector<int> seen;
  SolveOptions options = quadratic_program_options();
  options.callback = [&](const Iteration& i) {
    seen.push_back(i.number);
    EXPECT_GE(i.seconds, 0);
    return i.number < 3;
  };
  const Array c{0.7, 0.5, -1.0, 0.4};
  EXPECT_EQ(solve(quadratic_program(simplex, options), c).status(), Status::cancelled);
  EXPECT_EQ(seen, (std::vector<int>{1, 2, 3}));
  options.callback = [](const Iteration&) -> bool { throw std::runtime_error("enough"); };
  EXPECT_THROW(solve(quadratic_program(simplex, options), c), std::runtime_error);
}

TEST(QuadraticProgram, LooksAtTheClock) {
  SolveOptions options = quadratic_program_options();
  options.time_limit = 1e-9;
  for (const Estimator& e : {Estimator(OneStep{}), Estimator(Unrolled{})})
    EXPECT_EQ(solve(quadratic_program(simplex, options), Array{0.7, 0.5, -1.0, 0.4}, e).status(), Status::time_limit);
}

TEST(QuadraticProgram, BeginsWhereItIsTold) {
  const Solver project = quadratic_program(simplex);
  const Solution cold = solve(project, no_start, Array{0.7, 0.5, -1.0, 0.4}, OneStep{});
  const Solution warm = solve(project, cold.state(), Array{0.7, 0.5, -1.0, 0.4001}, OneStep{});
  EXPECT_EQ(warm.status(), Status::converged);
  EXPECT_LT(warm.statistics().iterations, cold.statistics().iterations);
}

TEST(QuadraticProgramConcurrent, OneSolverServesSeveralThreads) {
  const Solver project = quadratic_program(simplex);
  const auto gradient = [&](double shift) {
    const Solution s = solve(project, no_start, Array{0.7 + shift, 0.5, -1.0, 0.4}, OneStep{});
    return Array(s.vjp(s.x()));
  };
  std::vector<Array> alone, together(4);
  for (int i = 0; i < 4; ++i) alone.push_back(gradient(0.01 * i));
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < 4; ++i)
      threads.emplace_back([&, i] { together[i] = gradient(0.01 * static_cast<double>(i)); });
  }
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(distance(together[i], alone[i]), 0);
}

TEST(QuadraticProgram, NestsInAFixedPoint) {
  const Array M{{0.3, 0.1}, {-0.2, 0.2}};
  const Solver project =
      quadratic_program([](Expr c) { return TracedProgram{.Q = eye(2), .q = -c, .lo = -10.0, .hi = 10.0}; },
                        {.tolerance = 1e-12, .max_iterations = 200})
          .from({zeros({2}), zeros({0}), zeros({0}), zeros({2})})
          .with(Implicit{});
  const Solver outer = fixed_point([&](Expr x, Expr t) { return slice(project(matmul(M, x) + t), 0, 2); });
  const Array t{1.0, 2.0}, v{1.0, -1.0};
  const Solution s = solve(outer, zeros({2}), t, Implicit{});
  ASSERT_EQ(s.status(), Status::converged) << s.message();
  const Solver linear = fixed_point([&](Expr x, Expr tt) { return matmul(M, x) + tt; });
  const Solution plain = solve(linear, zeros({2}), t, Implicit{});
  EXPECT_LT(distance(s.x(), plain.x()), 1e-8);
  EXPECT_LT(distance(s.vjp(v), plain.vjp(v)), 1e-7);
}

// The error terms of ∂(x₀ + x₁)/∂θ, which is written to `out`.
std::optional<detail::ErrorTerms> error_terms_of(const Solution& s, std::vector<double>& out) {
  detail::SolutionPoint& here = detail::state_of(s).loop->at_solution()->step();
  const std::vector<double> c{1, 1, 0, 0};
  const std::vector<detail::Vector> outs{out};
  here.vjp_theta(c, outs);
  return here.error_terms();
}

// Projection of c = (1 ± margin, ½) on the unit box: dx/dc = (0, 1) or (1, 1), however small the margin, and none at 0.
TEST(QuadraticProgram, AnActiveSetIsDecidedByItsOwnOptimum) {
  const Solver box = quadratic_program([](Expr c) { return TracedProgram{.Q = eye(2), .q = -c, .lo = 0.0, .hi = 1.0}; });
  for (const double margin : {1e-2, 1e-4, 1e-6, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12}) {
    for (const double sign : {1.0, -1.0}) {
      const Solution s = solve(box, Array{1 + sign * margin, 0.5}, Implicit{});
      ASSERT_EQ(s.status(), Status::converged);
      const Array g = s.vjp(Array{1.0, 1.0});
      EXPECT_NEAR(g(0), sign > 0 ? 0 : 1, 1e-13) << margin << ' ' << sign;
      EXPECT_NEAR(g(1), 1, 1e-13) << margin << ' ' << sign;
      std::vector<double> out(2);
      const auto terms = error_terms_of(s, out);
      ASSERT_TRUE(terms);
      EXPECT_EQ(terms->reason, "") << margin;
      const double error = std::hypot(out[0] - (sign > 0 ? 0 : 1), out[1] - 1);
      EXPECT_LE(error, terms->left_out + terms->from_distance + terms->rounding);
      EXPECT_LE(terms->left_out + terms->from_distance + terms->rounding, 1e-13);
    }
  }
  const Solution s = solve(box, Array{1.0, 0.5}, Implicit{});
  std::vector<double> out(2);
  const auto terms = error_terms_of(s, out);
  ASSERT_TRUE(terms);
  EXPECT_EQ(terms->left_out, std::numeric_limits<double>::infinity());
  EXPECT_NE(terms->reason.find("strict complementarity fails at variable 0"), std::string::npos) << terms->reason;
}

// Of curvatures 1 and k the larger one does not blur which side of its row the other variable is on.
TEST(QuadraticProgram, AStiffVariableLeavesOthersDecided) {
  for (const double stiff : {1.0, 1e3, 1e6}) {
    for (const double margin : {1e-6, 1e-11}) {
      for (const double sign : {1.0, -1.0}) {
        const Array k{1.0, stiff};
        const Solver box = quadratic_program([&](Expr c) {
          return TracedProgram{.Q = Array{{1.0, 0.0}, {0.0, stiff}}, .q = -k * c, .G = eye(2), .u = 1.0};
        });
        const Solution s = solve(box, Array{1 + sign * margin, 0.5}, Implicit{});
        ASSERT_EQ(s.status(), Status::converged) << stiff;
        const Array g = s.vjp(Array{1.0, 1.0});
        EXPECT_NEAR(g(0), sign > 0 ? 0 : 1, 1e-12) << stiff << ' ' << sign * margin;
        EXPECT_NEAR(g(1), 1, 1e-12) << stiff;
        const Certificate c = s.certificate(Array{1.0, 1.0});
        EXPECT_EQ(c.basis, Certificate::Basis::observed) << stiff << ' ' << sign * margin << ": " << c.reason;
        EXPECT_LE(std::hypot(g(0) - (sign > 0 ? 0 : 1), g(1) - 1), c.bound);
      }
    }
  }
}

// x = |t| + ½ and x = max(t, 0): at 0 there is no derivative, beside it there is; what an inactive bound does is no matter.
TEST(QuadraticProgram, DataWithAKinkHaveNoBoundThere) {
  struct Case {
    const char* text;
    std::function<TracedProgram(Expr)> program;
    Array at, beside;
    bool has_derivative;
  };
  const Array one = ones({1, 1});
  const std::vector<Case> cases{
      {"abs", [&](Expr t) { return TracedProgram{.Q = one, .q = -abs(t) - 0.5}; }, {0.0}, {0.1}, false},
      {"bound", [&](Expr t) { return TracedProgram{.Q = one, .q = ones({1}), .lo = maximum(t, 0.0)}; }, {0.0}, {0.1}, false},
      {"matrix",
       [&](Expr t) {
         return TracedProgram{.Q = reshape(1.0 + abs(t), {1, 1}), .q = -ones({1})};
       },
       {0.0},
       {0.1},
       false},
      {"difference",
       [&](Expr t) { return TracedProgram{.Q = one, .q = -abs(slice(t, 0, 1) - slice(t, 1, 2)) - 1.0}; },
       {0.3, 0.3},
       {0.3, 0.2},
       false},
      {"jump",
       [&](Expr t) { return TracedProgram{.Q = one, .q = where(greater(t, 0.0), -1.0, -2.0) - t}; },
       {0.0},
       {0.1},
       false},
      {"inactive", [&](Expr t) { return TracedProgram{.Q = one, .q = -t - 1.0, .lo = abs(t) - 3.0}; }, {0.0}, {0.1}, true},
      {"smooth", [&](Expr t) { return TracedProgram{.Q = one, .q = -exp(t)}; }, {0.0}, {0.1}, true},
  };
  for (const Case& c : cases) {
    const Solver solver = quadratic_program(c.program);
    for (const Estimator& e : std::vector<Estimator>{OneStep{}, Implicit{}, Auto{}}) {
      const Solution kinked = solve(solver, c.at, e), near = solve(solver, c.beside, e);
      const Array tangent = c.at.size() == 1 ? Array{1.0} : Array{1.0, 0.0};
      for (const Certificate& found : {kinked.certificate(Array{1.0}), kinked.certificate_jvp(tangent)}) {
        EXPECT_EQ(found.basis == Certificate::Basis::observed, c.has_derivative) << c.text << ": " << found.bound;
        if (c.has_derivative) continue;
        EXPECT_NE(found.reason.find("the data of the program"), std::string::npos) << found.reason;
      }
      for (const Certificate& found : {near.certificate(Array{1.0}), near.certificate_jvp(tangent)}) {
        EXPECT_EQ(found.basis, Certificate::Basis::observed) << c.text << ": " << found.reason;
        EXPECT_LT(found.relative, 1e-6) << c.text;
      }
    }
  }
}

// Units of the objective, of x and of a row: derivatives are the same, each in its unit.
TEST(QuadraticProgram, UnitsDoNotChangeTheDerivative) {
  for (const double objective : {1e-12, 1e-6, 1.0, 1e6, 1e12}) {
    for (const double length : {1e-9, 1.0, 1e9}) {
      for (const double row : {1e-12, 1.0, 1e12}) {
        // min |x - c|²/2 over x₀ + x₁ ≤ 1 and x ≥ 0, for x = length x'
        const Solver solver = quadratic_program([&](Expr c) {
          return TracedProgram{.Q = objective * length * length * eye(3),
                               .q = -objective * length * c,
                               .G = Array{{row * length, row * length, 0.0}},
                               .u = Array{row},
                               .lo = 0.0};
        });
        const Solution s = solve(solver, Array{2.0, 1.5, -3.0}, Implicit{});
        ASSERT_EQ(s.status(), Status::converged) << objective << ' ' << length << ' ' << row;
        EXPECT_NEAR(s.x()(0) * length, 0.75, 1e-8);
        EXPECT_NEAR(s.x()(1) * length, 0.25, 1e-8);
        EXPECT_NEAR(s.x()(2) * length, 0, 1e-8);
        const Array g = s.vjp(Array{length, 0.0, length});
        EXPECT_NEAR(g(0), 0.5, 1e-12);
        EXPECT_NEAR(g(1), -0.5, 1e-12);
        EXPECT_NEAR(g(2), 0, 1e-12);
      }
    }
  }
}

// x = clip(t², 0, 1), and the point of t x₀ + x₁ = 1 nearest to 0, of which |x|² = 1 / (1 + t²).
TEST(QuadraticProgram, NestedHasSecondDerivatives) {
  const Solver box =
      quadratic_program([](Expr t) { return TracedProgram{.Q = eye(3), .q = -square(t), .lo = 0.0, .hi = 1.0}; });
  const Solver line = quadratic_program([](Expr t) {
    return TracedProgram{.Q = eye(2), .A = reshape(concat({t, Expr(ones({1}))}), {1, 2}), .b = ones({1})};
  });
  const Solver above = quadratic_program([](Expr t) {
    return TracedProgram{.Q = eye(2), .G = reshape(concat({t, Expr(ones({1}))}), {1, 2}), .l = ones({1})};
  });
  for (const Estimator& e : std::vector<Estimator>{OneStep{}, KStep{2}}) {
    const Array t{0.5, 0.8, 2.0};
    const Array H =
        evaluate(traced([&](Expr p) { return hessian(sum(square(slice(box.with(e)(p), 0, 3))), p); }, Shape{3}), {t})
            .front();
    for (std::int64_t i = 0; i < 3; ++i)
      for (std::int64_t j = 0; j < 3; ++j) EXPECT_NEAR(H(i, j), i == j && i < 2 ? 12 * t(i) * t(i) : 0, 1e-8);
    for (const Solver& solver : {line, above}) {
      const double a = 0.7;
      const Array h =
          evaluate(traced([&](Expr p) { return hessian(sum(square(slice(solver.with(e)(p), 0, 2))), p); }, Shape{1}),
                   {Array{a}})
              .front();
      EXPECT_NEAR(h(0, 0), (6 * a * a - 2) / std::pow(1 + a * a, 3), 1e-8);
    }
  }
}

// min ½x² q₀ + q₁x with -1 ≤ gx ≤ 1 inactive: dx/dq is known. A start that is far off, in its multipliers above all, leaves
// both sides of a row with large ones that cancel, or an iterate that nothing but the optimum of its active set improves.
TEST(QuadraticProgram, AnyStartLeavesTheSameDerivative) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> exponent(-8, 8);
  const SolveOptions options{.tolerance = 1e-10, .max_iterations = 200};
  const Array Q{{2.0, 0.3, 0.0}, {0.3, 1.5, -0.2}, {0.0, -0.2, 1.0}}, G{{1.0, 2.0, -1.0}, {0.5, -1.0, 1.0}};
  const Solver solver = quadratic_program(
      [&](Expr q, Expr u) {
        return TracedProgram{.Q = Q, .q = q, .G = G, .l = Array{-1.8, -1.2}, .u = u, .lo = Array{-0.2, -5.0, -5.0}};
      },
      options);
  const Parts theta{Array{1.0, -0.4, 0.3}, Array{1.9, 2.0}};
  const Array c{1.0, -2.0, 0.5};
  const Solution usual = solve(solver, theta, Implicit{});
  ASSERT_EQ(usual.status(), Status::converged);
  const Parts right = usual.vjp(c);
  for (int trial = 0; trial < 400; ++trial) {
    const auto anything = [&](std::size_t n) {
      std::vector<double> v(n);
      for (double& e : v) e = normal(random) * std::pow(10, exponent(random));
      return Array(v);
    };
    const Parts start{anything(3), Array(Shape{0}, {}), anything(2), anything(3)};
    for (const Estimator& e : std::vector<Estimator>{OneStep{}, KStep{1}, Implicit{}, Auto{}}) {
      const Solution s = solve(solver.from(start), theta, e);
      ASSERT_EQ(s.status(), Status::converged) << trial;
      const Parts g = s.vjp(c);
      for (std::size_t k = 0; k < 2; ++k) ASSERT_LT(distance(g[k], right[k]), 1e-7) << trial << ' ' << s.report().method;
    }
  }
}

// Of two parameters that are equal the data take the larger one: of whichever two.
TEST(QuadraticProgram, HasNoBoundWhereTheDataTakeTheLargerOfEqualParameters) {
  constexpr std::int64_t n = 6;
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < i; ++j) {
      const Solver solver = quadratic_program(
          [&](Expr t) { return TracedProgram{.Q = eye(1), .q = -reshape(maximum(t[i], t[j]), {1}), .lo = 0.0}; });
      std::vector<double> t{1, 2, 3, 4, 5, 6};
      t[static_cast<std::size_t>(i)] = t[static_cast<std::size_t>(j)];
      const Solution s = solve(solver, Array(t), Implicit{});
      EXPECT_EQ(s.certificate(Array{1.0}).basis, Certificate::Basis::refused) << i << ' ' << j;
    }
}

TEST(QuadraticProgram, AutoHasTheSameBitsWhateverWasAskedBefore) {
  std::mt19937_64 random(11);
  std::normal_distribution<double> normal;
  for (int trial = 0; trial < 60; ++trial) {
    const auto some = [&](std::size_t n) {
      std::vector<double> v(n);
      for (double& e : v) e = normal(random);
      return v;
    };
    const Array G(Shape{3, 4}, some(12)), c(some(4));
    const Solver solver = quadratic_program(
        [&](Expr q) { return TracedProgram{.Q = 2.0 * eye(4), .q = q, .G = G, .u = 0.1, .lo = -0.5, .hi = 0.5}; });
    const Array q(some(4));
    const Solution once = solve(solver, q, Auto{}), often = solve(solver, q, Auto{});
    (void)often.vjp(Array(some(4)));
    (void)often.certificate(c);
    (void)often.jvp(Array(some(4)));
    const Array first = once.vjp(c), later = often.vjp(c);
    for (std::int64_t k = 0; k < 4; ++k) ASSERT_EQ(first(k), later(k)) << trial;
  }
}

// Made from its solution: two rows and a bound are active, multipliers are between 0.1 and 10, that of the equality 300, and
// what is inactive is between 0.1 and 1e4 away.
TEST(QuadraticProgram, StepsThatAreDifferentiatedReachTheSolutionFromWhateverStart) {
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal;
  const auto between = [&](double low, double high) {
    return std::exp(std::uniform_real_distribution<double>(std::log(low), std::log(high))(random));
  };
  constexpr std::size_t n = 5, p = 4;
  for (int trial = 0; trial < 60; ++trial) {
    const auto some = [&](std::size_t count) {
      std::vector<double> v(count);
      for (double& e : v) e = normal(random);
      return v;
    };
    const Array B(Shape{n, n}, some(n * n)), G(Shape{p, n}, some(p * n)), A(Shape{1, n}, some(n)), x(some(n));
    const Array Q = test::product(test::transposed(B), B), Gx = test::product(G, x), Qx = test::product(Q, x);
    std::vector<double> u(p), z(p, 0.0), lo(n), hi(n, 1e5), w(n, 0.0), q(n);
    for (std::size_t i = 0; i < p; ++i) {
      u[i] = Gx.values()[i] + (i < 2 ? 0 : between(0.1, 1e4));
      z[i] = i < 2 ? between(0.1, 10) : 0;
    }
    for (std::size_t j = 0; j < n; ++j) {
      lo[j] = x.values()[j] - (j == 0 ? 0 : between(0.1, 1e4));
      w[j] = j == 0 ? -between(0.1, 10) : 0;
      q[j] = -Qx.values()[j] - 300 * A.values()[j] - w[j];
      for (std::size_t i = 0; i < p; ++i) q[j] -= G.values()[i * n + j] * z[i];
    }
    const Array b = test::product(A, x), upper(u), lower(lo), highest(hi);
    const Solver solver = quadratic_program([&](Expr linear) {
      return TracedProgram{.Q = Q, .q = linear, .A = A, .b = b, .G = G, .u = upper, .lo = lower, .hi = highest};
    });
    for (const Estimator& e : {Estimator(KStep{3}), Estimator(Unrolled{}), Estimator(Implicit{})}) {
      const Solution s = solve(solver, Array(q), e);
      ASSERT_TRUE(is_solution(s.status())) << trial << ' ' << e.kind().index() << ": " << s.message();
      EXPECT_LT(distance(s.x(), x), 1e-6) << trial << ' ' << e.kind().index();
    }
  }
}

// A bound that is far away says nothing about how small x is.
TEST(QuadraticProgram, StepsAreDifferentiatedAtTheSolutionHoweverFarABoundIs) {
  for (const double far : {1e3, 1e5, 1e7})
    for (const double theta : {1e-6, 1e-3, 2.0}) {
      const Solver solver =
          quadratic_program([&](Expr t) { return TracedProgram{.Q = eye(1), .q = -t, .lo = 0.0, .hi = far}; });
      for (const Estimator& e : {Estimator(Unrolled{}), Estimator(KStep{3})}) {
        const Solution s = solve(solver, Array{theta}, e);
        if (!is_solution(s.status())) continue;
        EXPECT_NEAR(s.x().item(), theta, 1e-4 * theta) << far << ' ' << e.kind().index();
        EXPECT_NEAR(s.jvp(Array{1.0})[0].item(), 1, 1e-2) << far << ' ' << theta << ' ' << e.kind().index();
      }
    }
}

// Stopped after three iterations, at no solution: the derivative is that of the steps made, whatever was solved before.
TEST(QuadraticProgram, TheDerivativeOfAStoppedSolveDoesNotDependOnEarlierSolves) {
  const Array Q{{2.0, 0.5}, {0.5, 1.0}}, G{{1.0, 1.0}, {1.0, -1.0}}, u{0.3, 0.4};
  const auto program = [&](Expr q) { return TracedProgram{.Q = Q, .q = q, .G = G, .u = u, .lo = -1.0}; };
  int limit = 200;
  const Solver solver = quadratic_program(program, {.callback = [&](const Iteration& i) { return i.number < limit; }});
  const Array q{-1.0, -2.0}, other{-3.0, 1.0}, c{1.0, 2.0};
  const auto stopped = [&](bool warmed) {
    Prepared prepared(solver, q, OneStep{});
    limit = 200;
    if (warmed) (void)prepared.solve(other);
    limit = 3;
    return prepared.solve(q).even_if_unconverged().vjp(c)[0];
  };
  const Array fresh = stopped(false), later = stopped(true);
  EXPECT_EQ(fresh(0), later(0));
  EXPECT_EQ(fresh(1), later(1));
}

}  // namespace
}  // namespace onestep
