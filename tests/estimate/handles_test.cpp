// Solutions and Prepared as values: what is shared, what a copy keeps, what temporaries hand out, and misuse that used to
// crash.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "onestep/onestep.h"
#include "support/problems.h"

namespace onestep {
namespace {

Solver target() {
  return newton([](Expr x, Expr t) { return 0.5 * sum(square(x - t)) + 0.25 * sum(square(square(x))); });
}
Solver slow() {
  return fixed_point([](Expr x, Expr t) { return 0.9 * x + 0.1 * t; }, {.max_iterations = 3});
}

TEST(Handles, BeforeTheFirstSolveEverythingOfASolutionThrows) {
  Prepared p(target(), zeros(2), ones(2));
  const Solution s = p.solution();
  const Array c = ones(2);
  std::vector<double> memory(2);
  const std::vector<std::span<const double>> from{memory};
  const std::vector<std::span<double>> to{memory};
  const std::vector<std::function<void()>> all{[&] { s.x(); },
                                               [&] { s.state(); },
                                               [&] { s.status(); },
                                               [&] { s.about(); },
                                               [&] { s.message(); },
                                               [&] { s.statistics(); },
                                               [&] { s.report(); },
                                               [&] { s.proof(); },
                                               [&] { s.vjp(c); },
                                               [&] { s.jvp(c); },
                                               [&] { s.jacobian(); },
                                               [&] { s.vjp_into(from, to); },
                                               [&] {
                                                 s.jvp_into({&c, 1}, memory);
                                               },
                                               [&] { s.certificate(c); },
                                               [&] { s.certificate_jvp(c); },
                                               [&] { s.even_if_unconverged().vjp(c); }};
  for (std::size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_THROW(all[i](), MisuseError);
    try {
      all[i]();
    } catch (const Error& e) { EXPECT_NE(std::string(e.what()).find("call solve()"), std::string::npos) << e.what(); }
  }
  p.solve(zeros(2), ones(2));
  EXPECT_NO_THROW(p.solution().x());
}

TEST(Handles, ASolveThatWasLeftByAnExceptionLeavesNothingToRead) {
  SolveOptions options;
  options.callback = [](const Iteration&) -> bool { throw std::runtime_error("stop"); };
  Prepared p(target().with(options), zeros(2), ones(2));
  EXPECT_THROW(p.solve(zeros(2), ones(2)), std::runtime_error);
  EXPECT_THROW(p.solution().x(), MisuseError);
  p.options().callback = nullptr;
  const Solution s = p.solve(zeros(2), ones(2));
  p.options().callback = [](const Iteration&) -> bool { throw std::runtime_error("stop"); };
  EXPECT_THROW(p.solve(ones(2), ones(2)), std::runtime_error);
  EXPECT_TRUE(is_solution(s.status())) << "a copy keeps what it had";
  EXPECT_NO_THROW(s.vjp(s.x()));
  // All accessors of a solution without a solve.
  p.options().callback = nullptr;
  const Solution fresh = p.solve(zeros(2), ones(2));
  EXPECT_NO_THROW(fresh.jacobian());
}

TEST(Handles, TwoSolutionsOfOnePreparedAreTwo) {
  Prepared p(target(), zeros(1), ones(1));
  const Solution a = p.solve(zeros(1), Array{2.0}), b = p.solve(zeros(1), Array{10.0});
  EXPECT_NEAR(a.x()(0), 1.0, 1e-9);
  EXPECT_NEAR(b.x()(0), 2.0, 1e-9);
  EXPECT_NEAR(Array(a.vjp(Array{1.0}))(0), 1.0 / 4, 1e-7);
  EXPECT_NEAR(Array(b.vjp(Array{1.0}))(0), 1.0 / 13, 1e-7);
  EXPECT_NEAR(Array(a.vjp(Array{1.0}))(0), 1.0 / 4, 1e-7);
  const Prepared copy = p;
  p.solve(zeros(1), Array{2.0});
  EXPECT_NEAR(copy.solution().x()(0), 2.0, 1e-9);
}

TEST(Handles, APermissionBelongsToTheCopyThatHasIt) {
  const Solution s = solve(slow(), zeros(1), ones(1), OneStep{}), copy = s;
  EXPECT_EQ(s.status(), Status::iteration_limit);
  const Solution allowed = s.even_if_unconverged();
  EXPECT_NO_THROW(allowed.vjp(Array{1.0}));
  EXPECT_NO_THROW(allowed.jvp(Array{1.0}));
  EXPECT_THROW(s.vjp(Array{1.0}), NotConvergedError);
  EXPECT_THROW(copy.jvp(Array{1.0}), NotConvergedError);
  EXPECT_NO_THROW(Solution(allowed).vjp(Array{1.0})) << "a copy of it has it too";
  EXPECT_NO_THROW(s.even_if_unconverged().vjp(Array{1.0}));
}

TEST(Handles, OptionsOfAPreparedAreCheckedByTheNextSolve) {
  Prepared p(target(), zeros(1), ones(1));
  SolveOptions& options = p.options();
  const Solution kept = p.solve(zeros(1), ones(1));
  options.tolerance = -1;
  EXPECT_THROW(p.solve(zeros(1), ones(1)), MisuseError);
  options.tolerance = 1e-10;
  options.max_iterations = 1;
  EXPECT_EQ(p.solve(zeros(1), Array{10.0}).status(), Status::iteration_limit) << "the reference outlives a copied solution";
  EXPECT_TRUE(is_solution(kept.status()));
}

// Under the address sanitizer.
TEST(Handles, TemporariesHandOutWhatLives) {
  const Array w{3.0, 4.0};
  double sum = 0;
  for (const double e : solve(target(), zeros(2), w).x().values()) sum += e;
  for (const double e : solve(target(), zeros(2), w).vjp(ones(2))[0].values()) sum += e;
  for (const Array& a : solve(target(), zeros(2), w).vjp(ones(2))) sum += a(0);
  EXPECT_TRUE(std::isfinite(sum));
  const Array& part = solve(target(), zeros(2), w).state()[0];
  EXPECT_EQ(part.size(), 2);
  const Shape& shape = solve(target(), zeros(2), w).x().shape();
  EXPECT_EQ(shape, Shape{2});
  const Statistics& statistics = solve(target(), zeros(2), w).statistics();
  EXPECT_GT(statistics.iterations, 0);
  const DerivativeReport& report = solve(target(), zeros(2), w).report();
  EXPECT_TRUE(report.method.empty());
  const Solution& s = Prepared(target(), zeros(2), w).solve(zeros(2), w);
  EXPECT_TRUE(is_solution(s.status()));
  const Estimator::Kind& kind = Estimator(KStep{3}).kind();
  EXPECT_EQ(std::get<KStep>(kind).K, 3);
  int outputs = 0;
  for (const Expr& e : traced([](Expr x) { return std::pair(x, 2.0 * x); }, Shape{3}).outputs())
    outputs += e.shape() == Shape{3} ? 1 : 0;
  EXPECT_EQ(outputs, 2);
}

// Calls each; all must throw a MisuseError that names the class.
void expect_moved_from(const char* what, const std::vector<std::function<void()>>& calls) {
  for (std::size_t i = 0; i < calls.size(); ++i) {
    SCOPED_TRACE(std::string(what) + ' ' + std::to_string(i));
    const std::string error = test::error_of(calls[i]);
    EXPECT_TRUE(test::says(error, {what, "moved from"})) << error;
  }
}

TEST(MovedFrom, ASolutionSaysSo) {
  Solution s = solve(target(), zeros(2), ones(2));
  const Solution kept = std::move(s);
  const Array c = ones(2);
  std::vector<double> memory(2);
  const std::vector<std::span<const double>> from{memory};
  const std::vector<std::span<double>> to{memory};
  expect_moved_from("[Solution]",
                    {[&] { s.x(); }, [&] { s.state(); }, [&] { s.status(); }, [&] { s.about(); }, [&] { s.message(); },
                     [&] { s.statistics(); }, [&] { s.report(); }, [&] { s.proof(); }, [&] { s.vjp(c); }, [&] { s.jvp(c); },
                     [&] { s.jacobian(); }, [&] { s.vjp_into(from, to); },
                     [&] {
                       s.jvp_into({&c, 1}, memory);
                     },
                     [&] { s.certificate(c); }, [&] { s.certificate_jvp(c); }, [&] { s.even_if_unconverged().vjp(c); }});
  EXPECT_NO_THROW(kept.x());
  s = kept;
  EXPECT_NO_THROW(s.x());
}

TEST(MovedFrom, ASolverAndAPreparedSaySo) {
  Solver solver = target();
  const Solver kept = std::move(solver);
  expect_moved_from("[Solver]",
                    {[&] { solver.from(zeros(2)); }, [&] { solver.from([](Expr t) { return t; }); },
                     [&] { solver.with(SolveOptions{}); }, [&] { solver.with(Implicit{}); }, [&] { solver.knowing({}); },
                     [&] { solver.equation([](Expr x, Expr t) { return x - t; }); },
                     [&] { solver.equation(ForeignStep{.apply = [](auto, auto, auto) {}}); },
                     [&] { traced([&](Expr t) { return solver(t); }, Shape{2}); }, [&] { solve(solver, zeros(2), ones(2)); },
                     [&] { solve(solver, ones(2)); }, [&] { Prepared(solver, zeros(2), ones(2)); },
                     [&] { minimise({Inner(solver, zeros(2), [](Expr x) { return sum(x); })}, {Parameter::real(ones(2))}); },
                     [&] { check_gradients(solver, zeros(2), ones(2)); }});
  Prepared prepared(kept, zeros(2), ones(2));
  Prepared other = std::move(prepared);
  expect_moved_from("[Prepared]", {[&] { prepared.solve(zeros(2), ones(2)); }, [&] { prepared.solve(ones(2)); }});
  expect_moved_from("[Solution]", {[&] { prepared.solution().x(); }});
  EXPECT_TRUE(is_solution(other.solve(zeros(2), ones(2)).status()));
}

TEST(MovedFrom, PartsAreEmpty) {
  Parts parts = {Array{1.0, 2.0}, Array(3.0)};
  const Parts kept = std::move(parts);
  EXPECT_EQ(parts.size(), 0U);
  EXPECT_EQ(parts.begin(), parts.end());
  EXPECT_THROW(parts[0], MisuseError);
  EXPECT_THROW((void)Array(parts), MisuseError);
  EXPECT_EQ(kept[1].item(), 3.0);
}

TEST(Handles, APartThatIsNotThereIsMisuse) {
  const Parts two = {Array{1.0, 2.0}, Array(3.0)};
  EXPECT_TRUE(test::says(test::error_of([&] { (void)two[2]; }), {"[Parts]", "part 2 of 2"}));
  EXPECT_TRUE(test::says(test::error_of([&] { solve(target(), zeros(2), ones(2)).vjp(ones(2))[1]; }), {"part 1 of 1"}));
}

}  // namespace
}  // namespace onestep
