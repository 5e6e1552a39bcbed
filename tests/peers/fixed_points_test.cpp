// Fixed points that other libraries test themselves with (jaxopt, echidna, Stan, the JFB paper), restated with closed forms.
#include "peers/expect.h"

namespace onestep::peers {
namespace {

constexpr double pi = 3.14159265358979323846;

// ‖∂F/∂x‖ = 1 at x̄ = π/2: nothing that assumes a contraction may be claimed there.
TEST(Peers, T1_CosineConvergesWhereItContractsAndIsNotCertifiedWhereItDoesNot) {
  const auto step = [](Expr x, Expr t) { return cos(x) + t; };
  const double x = 0.7390851332151607, J = 0.5975100456753034;
  for (const auto& [name, e] : exact_estimators())
    expect_solution(solve(fixed_point(step, exactly), 0.0, 0.0, e), x, J, 1e-10, name);
  expect_solution(solve(fixed_point(step, exactly), 0.0, 0.0, OneStep{}), x, 1.0);

  const Array theta{0.0, pi / 2}, both{{J, 0.0}, {0.0, 0.5}};
  for (const Estimator& e : {Estimator(OneStep{}), Estimator(Implicit{})})
    expect_solution(
        solve(newton_root([](Expr at, Expr t) { return at - cos(at) - t; }, exactly), Array{0.0, pi / 4}, theta, e), theta,
        Array{x, pi / 2}, both);

  const Solution slow = solve(fixed_point(step, {.max_iterations = 1000}), Array{0.0, pi / 4}, theta, Implicit{});
  EXPECT_FALSE(is_solution(slow.status())) << "1/√k is no convergence in 1000 steps";
  EXPECT_THROW(slow.vjp(ones(2)), NotConvergedError);
  EXPECT_TRUE(near(slow.even_if_unconverged().vjp(ones(2))[0], Array{J, 0.5}, 1e-2));

  const Solution there = solve(fixed_point(step), pi / 2, pi / 2, OneStep{});
  ASSERT_TRUE(is_solution(there.status())) << there.message();
  EXPECT_EQ(there.certificate(1.0).basis, Certificate::Basis::refused);
  EXPECT_NEAR(solve(fixed_point(step), pi / 2, pi / 2, Implicit{}).vjp(1.0)[0].item(), 0.5, 1e-10);
}

// M = H D H with a Householder reflection H, so that every function of M is known.
struct Affine {
  std::vector<double> d, u;
  explicit Affine(std::int64_t n) : d(test::spread(-0.45, 0.49, n)) {
    Random random(3);
    u = test::entries_of(random.array({n}));
    double length = 0;
    for (const double e : u) length += e * e;
    for (double& e : u) e /= std::sqrt(length);
  }
  std::vector<double> reflected(std::vector<double> v) const {
    double along = 0;
    for (std::size_t i = 0; i < v.size(); ++i) along += u[i] * v[i];
    for (std::size_t i = 0; i < v.size(); ++i) v[i] -= 2 * along * u[i];
    return v;
  }
  Array apply(const std::function<double(double)>& f, const Array& to) const {
    std::vector<double> v = reflected(test::entries_of(to));
    for (std::size_t i = 0; i < v.size(); ++i) v[i] *= f(d[i]);
    return Array(to.shape(), reflected(v));
  }
  Array matrix() const {
    std::vector<double> all;
    const auto n = static_cast<std::int64_t>(d.size());
    for (const Array& e : directions({n})) {
      const std::vector<double> next = test::entries_of(apply([](double x) { return x; }, e));
      all.insert(all.end(), next.begin(), next.end());
    }
    return {{n, n}, all};
  }
};

TEST(Peers, T2_AffineContractionOf200HasItsInverseInEveryModeAndItsPowerAsKStepError) {
  const std::int64_t n = 200;
  const Affine problem(n);
  const Array M = problem.matrix();
  Random random(4);
  const Array b = random.array({n}), v = random.array({n});
  const Solver solver = fixed_point([&](Expr x, Expr t) { return matmul(M, x) + t; }, exactly);
  const auto inverse = [](double e) { return 1 / (1 - e); };
  const Array truth = problem.apply(inverse, v);
  for (const auto& [name, e] : exact_estimators()) {
    const Solution s = solve(solver, zeros(n), b, e);
    ASSERT_TRUE(is_solution(s.status())) << s.message();
    EXPECT_TRUE(near(s.x(), problem.apply(inverse, b), 1e-12)) << name;
    EXPECT_TRUE(near(s.jvp(v)[0], truth, 1e-11)) << name;
    EXPECT_TRUE(near(s.vjp(v)[0], truth, 1e-11)) << name;  // symmetric
  }
  for (const int K : {1, 3, 10}) {
    const Solution s = solve(solver, zeros(n), b, KStep{K});
    const Array left_out = problem.apply([&](double e) { return std::pow(e, K) / (1 - e); }, v);
    EXPECT_TRUE(near(test::minus(truth, s.jvp(v)), left_out, 1e-11, test::largest_entry(truth))) << K;
    EXPECT_TRUE(near(test::minus(truth, s.vjp(v)), left_out, 1e-11, test::largest_entry(truth))) << K;
  }
}

TEST(Peers, T3_AFlatLandscapeHasASolutionAndADerivativeOfZero) {
  const Solver solver = fixed_point([](Expr x, Expr t) { return t * x; });
  for (const Estimator& e : {Estimator(OneStep{}), Estimator(KStep{5}), Estimator(Implicit{}), Estimator(Auto{})}) {
    const Solution s = solve(solver, Array{1.0, -0.5}, Array{0.05, 0.2}, e);
    ASSERT_TRUE(is_solution(s.status())) << s.message();
    EXPECT_TRUE(near(s.x(), zeros(2), 1e-9, 1.0));
    EXPECT_TRUE(near(s.jvp(ones(2)), zeros(2), 1e-8, 1.0));
    EXPECT_TRUE(near(s.vjp(ones(2)), zeros(2), 1e-8, 1.0));
    EXPECT_TRUE(near(s.jacobian(), zeros({2, 2}), 1e-8, 1.0));
  }
}

TEST(Peers, T4_AShortStepOfASlowContractionIsNotTakenForAShortDistance) {
  const Array rates{0.9, 0.99, 0.999};
  const Solver decay = fixed_point([&](Expr x, Expr t) { return t * x; }, {.tolerance = 1e-5, .max_iterations = 20000});
  const Solution at_zero = solve(decay, ones(3), rates, OneStep{});
  if (is_solution(at_zero.status())) {
    const Certificate c = at_zero.certificate(ones(3));
    EXPECT_TRUE(c.basis == Certificate::Basis::refused || c.distance >= test::norm(at_zero.x())) << c << "\n"
                                                                                                 << test::norm(at_zero.x());
  }
  const Solver shifted = fixed_point([&](Expr x, Expr t) { return rates * x + (1.0 - rates) * t; },
                                     {.tolerance = 1e-5, .max_iterations = 20000});
  for (const Estimator& e : {Estimator(OneStep{}), Estimator(Implicit{})}) {
    const Solution s = solve(shifted, zeros(3), ones(3), e);
    ASSERT_TRUE(is_solution(s.status())) << s.message();
    const double distance = test::norm(test::minus(s.x(), ones(3)));
    EXPECT_GT(distance, 5e-3) << "a step below 1e-5 is what the case is about";
    const Certificate c = s.certificate(ones(3));
    EXPECT_TRUE(c.basis == Certificate::Basis::refused || c.distance >= distance) << c;
  }
}

Solver halving() {
  return fixed_point([](Expr z, Expr x) { return 0.5 * z + x; }, exactly);
}

TEST(Peers, T5_LinearContractionHasDerivativeTwoOneByOneStepAndAGeometricSumByKSteps) {
  for (const auto& [name, e] : exact_estimators()) expect_solution(solve(halving(), 0.0, 3.0, e), 6.0, 2.0, 1e-12, name);
  expect_solution(solve(halving(), 0.0, 3.0, OneStep{}), 6.0, 1.0, 1e-13);
  for (const int K : {1, 2, 5, 10})
    expect_solution(solve(halving(), 0.0, 3.0, KStep{K}), 6.0, 2 * (1 - std::ldexp(1, -K)), 1e-13);
}

TEST(Peers, T6_ForwardAndReverseAreTransposes) {
  const Solver solver = fixed_point([](Expr z, Expr x) { return Array{0.4, 0.3} * z + x; }, exactly);
  const Array x{1.2, 2.1};
  for (const auto& [name, e] : exact_estimators())
    expect_solution(solve(solver, zeros(2), x, e), x, Array{2.0, 3.0}, Array{{1 / 0.6, 0.0}, {0.0, 1 / 0.7}}, 1e-12, name);
}

TEST(Peers, T7_AStartAtTheSolutionChangesNoDerivative) {
  for (const auto& [name, e] : exact_estimators()) expect_solution(solve(halving(), 6.0, 3.0, e), 6.0, 2.0, 1e-11, name);
  expect_solution(solve(halving(), 6.0, 3.0, KStep{60}), 6.0, 2.0, 1e-12, "60 steps");
  for (const int K : {1, 2, 5, 10})
    expect_solution(solve(halving(), 6.0, 3.0, KStep{K}), 6.0, 2 * (1 - std::ldexp(1, -K)), 1e-13, std::to_string(K));
}

TEST(Peers, T8_EveryFailureHasItsOwnStatus) {
  const auto status_of = [](const Solver& solver, double x0, double x) {
    const Solution s = solve(solver, x0, x, OneStep{});
    EXPECT_THROW(s.vjp(1.0), NotConvergedError);
    return s.status();
  };
  EXPECT_EQ(status_of(fixed_point([](Expr z, Expr x) { return 2.0 * z + x; }), 1.0, 1.0), Status::diverged);
  EXPECT_EQ(status_of(fixed_point([](Expr z, Expr x) { return 100.0 * z + x; }), 1.0, 1.0), Status::diverged);
  EXPECT_EQ(status_of(fixed_point([](Expr z, Expr x) { return z * z + x; }), 0.0, 1.0), Status::diverged);
  const Solver slow = fixed_point([](Expr z, Expr x) { return 0.99 * z + x; }, {.max_iterations = 50});
  EXPECT_EQ(status_of(slow, 0.0, 1.0), Status::iteration_limit);
  try {
    solve(slow, 0.0, 1.0, Implicit{}).vjp(1.0);
  } catch (const NotConvergedError& e) {
    EXPECT_EQ(e.status, Status::iteration_limit);
    EXPECT_EQ(e.iterations, 50);
  }
  // The primal stands still, the adjoint recursion diverges; the equation z - F = 0 knows better.
  const Solver expanding = fixed_point([](Expr z, Expr x) { return 2.0 * z + x; });
  EXPECT_THROW(solve(expanding, -1.0, 1.0, Unrolled{}).vjp(1.0), NoDerivativeError);
  EXPECT_NEAR(solve(expanding, -1.0, 1.0, Implicit{}).vjp(1.0)[0].item(), -1.0, 1e-13);
}

TEST(Peers, T9_TheFixedPointOfAnExponential) {
  for (const auto& [y, x, J] : {std::array{1.0, 0.5671432904097838, -0.20524703377489464},
                                std::array{0.8, 0.6125848235019749, -0.2518409908437036}}) {
    for (const auto& [name, e] : exact_estimators())
      expect_solution(solve(fixed_point([](Expr at, Expr t) { return exp(-t * at); }, exactly), 0.5, y, e), x, J, 1e-12,
                      name);
    expect_solution(solve(newton_root([](Expr at, Expr t) { return at - exp(-t * at); }, exactly), 0.5, y, OneStep{}), x, J,
                    1e-12);
  }
}

// Its spectral radius is 0.8995, its norm 1.272: it converges, and no bound with ρ = ‖∂F/∂x‖ holds.
TEST(Peers, T10_ANonNormalMapConvergesAndNoFalseBoundIsClaimed) {
  const double x1 = 0.7861513777574233, x2 = 0.6180339887498949, root = std::sqrt(1 - x1 * x1);
  const Array x{x1, x2}, y{1.0, 1.0, 1.0};
  const Array A{{0.0, 0.5 / std::sqrt(x2)}, {-x1 / root, 0.0}};
  const Array B{{std::sqrt(x2), 0.0, 0.0}, {0.0, root, 0.5 / root}};
  const Array J = test::solved(test::minus(test::identity(2), A), B);
  EXPECT_TRUE(near(J, Array{{0.4345737935, 0.2172868968, 0.2844322405}, {-0.5527864045, 0.3416407865, 0.4472135955}}, 1e-9));
  const auto part = [](const Expr& of, std::int64_t i) { return slice(of, i, i + 1); };
  const Solver solver = fixed_point(
      [&](Expr at, Expr t) {
        return concat({part(t, 0) * sqrt(part(at, 1)), part(t, 1) * sqrt(part(t, 2) - square(part(at, 0)))});
      },
      exactly);
  for (const auto& [name, e] : exact_estimators())
    expect_solution(solve(solver, Array{0.1, 0.1}, y, e), y, x, J, 1e-10, name);
  for (const Estimator& e : {Estimator(OneStep{}), Estimator(KStep{5}), Estimator(Implicit{})}) {
    const Solution s = solve(solver, Array{0.1, 0.1}, y, e);
    for (const Array& c : directions({2})) {
      const Certificate certificate = s.certificate(c);
      const double error = test::norm(test::minus(s.vjp(c), test::product(test::transposed(J), c)));
      EXPECT_TRUE(certificate.basis == Certificate::Basis::refused || certificate.bound >= error)
          << certificate << ' ' << error;
    }
  }
}

TEST(Peers, T11_FixedPointAndRootOfABandedSystemOf400Agree) {
  const std::int64_t n = 400;
  std::vector<double> band(static_cast<std::size_t>(n * n)), y;
  for (std::int64_t i = 0; i < n; ++i) {
    y.push_back(static_cast<double>(i + 1) / static_cast<double>(n));
    for (std::int64_t j = std::max<std::int64_t>(0, i - 2); j <= std::min(n - 1, i + 2); ++j)
      band[static_cast<std::size_t>(i * n + j)] = 0.1;
  }
  const Array W({n, n}, band), theta({n}, y), x0 = full(n, 0.2);
  const auto product_of_exponentials = [&](const Expr& x, const Expr& t) { return t * exp(-matmul(W, x)); };
  const Solution point =
      solve(fixed_point([&](Expr x, Expr t) { return product_of_exponentials(x, t); }, exactly), x0, theta, Implicit{});
  const Solution root =
      solve(newton_root([&](Expr x, Expr t) { return x - product_of_exponentials(x, t); }, exactly), x0, theta, OneStep{});
  ASSERT_TRUE(is_solution(point.status()) && is_solution(root.status())) << point.message() << root.message();
  EXPECT_TRUE(near(point.x(), root.x(), 1e-12));
  Random random(11);
  const Array c = random.array({n});
  EXPECT_TRUE(near(point.vjp(c), root.vjp(c), 1e-10));
  EXPECT_TRUE(near(point.jvp(c), root.jvp(c), 1e-10));
}

TEST(Peers, T12_JacobianFreeBackpropagationIsOffByTheContractionFactor) {
  const auto step = [](Expr y, Expr d) { return d + y * square(square(y)); };
  for (const auto& [d, y, J] :
       {std::array{0.25, 0.2509961747133412, 1.0202461942143068}, std::array{0.5, 0.5506065793341349, 1.8503201439249628}}) {
    for (const auto& [name, e] : exact_estimators())
      expect_solution(solve(fixed_point(step, exactly), d, d, e), y, J, 1e-11, name);
    const Solution one = solve(fixed_point(step, exactly), d, d, OneStep{});
    expect_solution(one, y, 1.0, 1e-12);
    const Certificate c = one.certificate(1.0);
    EXPECT_EQ(c.basis, Certificate::Basis::observed) << c;
    EXPECT_GE(c.bound, J - 1) << c;
  }
}

TEST(Peers, T13_ARotationIsNoContractionAndSaysSoWhileItsEquationIsSolved) {
  const Array c{1.0, -2.0}, x0{3.0, 0.5};
  for (const double part : {2.0, 3.0, 4.0, 5.0, 6.0, 1.27, 1.73}) {
    const double a = pi / part;
    const Array R{{std::cos(a), -std::sin(a)}, {std::sin(a), std::cos(a)}};
    const Solution plain =
        solve(fixed_point([&](Expr x, Expr t) { return matmul(R, x - t) + t; }, {.max_iterations = 500}), x0, c, OneStep{});
    EXPECT_FALSE(is_solution(plain.status())) << part;
    EXPECT_THROW(plain.vjp(c), NotConvergedError) << part;
    expect_solution(solve(newton_root([&](Expr x, Expr t) { return x - matmul(R, x - t) - t; }, exactly), x0, c, OneStep{}),
                    c, c, test::identity(2), 1e-12, std::to_string(part));
  }
}

}  // namespace
}  // namespace onestep::peers
