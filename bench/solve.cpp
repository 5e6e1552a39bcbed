// Rows of whole solves: Newton's method and first-order methods, with each estimator.
#include "solve.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>

#include "allocations.h"
#include "data.h"
#include "estimate/revolve.h"
#include "floors.h"
#include "many.h"
#include "onestep/onestep.h"
#include "reference.h"
#include "samples.h"
#include "solve_programs.h"
#include "solve_rows.h"

namespace onestep::bench {
namespace {

// ---- Newton's method on the paper's logistic problem ----

struct LogisticSize {
  std::size_t N, n;
};
constexpr std::array logistic_sizes{LogisticSize{200, 5},     LogisticSize{1000, 10},   LogisticSize{1000, 100},
                                    LogisticSize{10000, 100}, LogisticSize{10000, 300}, LogisticSize{20000, 1000}};

Solver logistic_newton(const Logistic& data) {
  const Array A = matrix(data.A, data.N, data.n), y = Array::view(data.y);
  const auto n = static_cast<std::int64_t>(data.n);
  return newton(
      [A, y, n](Expr x, Expr w) { return sum(w * softplus(-y * matmul(A, x))) + 0.1 * sum(square(slice(x, 1, n))); },
      {.tolerance = 1e-10});
}

void newton_rows(Suite& suite, const LogisticSize& size) {
  const std::string text = fmt::format("({},{})", size.N, size.n);
  const std::string solve_row = "newton solve " + text, one_row = "newton solve + one-step over solve " + text,
                    implicit_row = "newton solve + implicit over solve " + text,
                    unrolled_row = "newton solve + unrolled over solve " + text;
  if (!suite.wants(solve_row) && !suite.wants(one_row) && !suite.wants(implicit_row) && !suite.wants(unrolled_row)) return;
  if (suite.quick() && suite.all() && size.N * size.n > 10'000'000) return suite.note("--quick leaves out newton " + text);
  Logistic data = logistic_with_intercept(size.N, size.n);
  const Solver solver = logistic_newton(data);
  const Array x0 = zeros(vector_shape(size.n)), w = Array::view(data.w);
  const Unit unit = size.n < 100 ? Unit::us : Unit::ms;

  Ours one_step(solver, x0, w, OneStep{});
  const int iterations = one_step.solution().statistics().iterations;
  FloorNewton floor(data, std::vector<double>(size.n), iterations);
  floor.run();
  must_agree("our solution", one_step.x(), floor.x());
  // The floor leaves x_{k-1} in the data, where the derivative is taken.
  data.v = floor.x();
  one_step.vjp();
  must_agree("our one-step derivative", one_step.bar(), newton_reference(data).w_bar, 1e-8);

  suite.time(solve_row, unit, {[&] { one_step.solve(); }}, {{[&] { floor.run(); }}}, at_most_ratio(1.2));
  if (suite.wants(one_row))
    over_solve(suite, one_row, unit, one_step, one_step, one_step, 0,
               size.n < 100 ? std::nullopt : std::optional(at_most_ratio(1.03)));
  if (suite.wants(implicit_row)) {
    Ours implicit(solver, x0, w, Implicit{});
    over_solve(suite, implicit_row, unit, implicit, one_step, one_step, 1e-8, std::nullopt);
  }
  if (suite.wants(unrolled_row)) {
    Ours unrolled(solver, x0, w, Unrolled{});
    over_solve(suite, unrolled_row, unit, unrolled, one_step, one_step, 1e-8, std::nullopt);
  }
}

// From a lambda that was never seen to its first solution and gradient: traced, differentiated, planned, solved.
void first_answer_row(Suite& suite) {
  constexpr LogisticSize size = logistic_sizes.front();
  const std::string row = fmt::format("newton first answer and gradient ({},{})", size.N, size.n);
  if (!suite.wants(row)) return;
  const Logistic data = logistic_with_intercept(size.N, size.n);
  const Array x0 = zeros(vector_shape(size.n)), w = Array::view(data.w);
  const auto first = [&] {
    const Solution s = solve(logistic_newton(data), x0, w);
    return s.vjp(s.x());
  };
  suite.time(row, Unit::us, {[&] { (void)first(); }}, std::nullopt, at_most(1000));
}

// ---- gradient descent on weighted ridge regression ----

void ridge_rows(Suite& suite) {
  const std::string solve_row = "ridge descent 8192x12, an iteration of the solve",
                    jvp_row = "ridge descent 8192x12, an iteration of the unrolled jvp";
  if (!suite.wants(solve_row) && !suite.wants(jvp_row)) return;
  const double lambda = 1, alpha = 1e-6;
  const Logistic data = logistic_data(8192, 12);
  const Array A = matrix(data.A, data.N, data.n), y = Array::view(data.y);
  const Solver solver = gradient_descent(
      [&](Expr x, Expr w) { return 0.5 * sum(w * square(matmul(A, x) - y)) + 0.5 * lambda * sum(square(x)); },
      {.step = GradientStep::fixed(alpha)}, {.tolerance = 1e-10, .max_iterations = 100000});
  Ours ours(solver, zeros({12}), Array::view(data.w), Unrolled{.mode = Unrolled::forward});
  const int iterations = ours.solution().statistics().iterations;

  std::vector<double> v(data.N), dx(data.n);
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = gaussian(12, i);
  const std::array direction{Array::view(v)};
  ours.solution().jvp_into(direction, dx);
  // The derivative is that of further steps, too, until it has converged; those are made at the last x.
  const int differentiated = iterations + ours.solution().report().further;
  must_agree("our descent", ours.x(), descent_reference(data, lambda, alpha, iterations, v).x);
  must_agree("its derivative", dx, descent_reference(data, lambda, alpha, differentiated, v).dx, 1e-7);

  const auto per_iteration = [&](int count, std::function<void()> run) {
    return Contender{std::move(run), {}, static_cast<double>(count)};
  };
  const auto derivative = [&] { ours.solution().jvp_into(direction, dx); };
  suite.time(solve_row, Unit::us, per_iteration(iterations, [&] { ours.solve(); }), std::nullopt, at_most(1.2));
  suite.time(jvp_row, Unit::us, per_iteration(differentiated, derivative), std::nullopt, at_most(2.5));
}

// ---- Newton-CG on softmax regression, a weight for each sample ----

struct SoftmaxSize {
  std::size_t N, n, classes;
  bool quick;
};
constexpr std::array softmax_sizes{SoftmaxSize{2000, 200, 10, true}, SoftmaxSize{5000, 785, 10, false}};

void softmax_rows(Suite& suite, const SoftmaxSize& size) {
  const std::string text = fmt::format("({},{},{})", size.N, size.n, size.classes);
  const std::string product_row = "newton-cg softmax hessian product over its floor " + text,
                    solve_row = "newton-cg softmax solve to 1e-8 " + text,
                    one_row = "newton-cg softmax one-step vjp " + text,
                    implicit_row = "newton-cg softmax implicit vjp " + text;
  const std::array rows{product_row, solve_row, one_row, implicit_row};
  if (std::ranges::none_of(rows, [&](const std::string& row) { return suite.wants(row); })) return;
  if (suite.quick() && suite.all() && !size.quick) return suite.note("--quick leaves out newton-cg " + text);
  const Logistic data = logistic_data(size.N, size.n);
  std::vector<double> labels(size.N * size.classes);
  for (std::size_t i = 0; i < size.N; ++i) {
    // By the largest of a few linear functions, with noise: classes that overlap.
    std::size_t best = 0;
    double most = -1e300;
    for (std::size_t k = 0; k < size.classes; ++k) {
      const double score = data.A[i * size.n + k] + gaussian(50 + k, i);
      if (score > most) most = score, best = k;
    }
    labels[i * size.classes + best] = 1;
  }
  const Array A = matrix(data.A, size.N, size.n), Y = matrix(labels, size.N, size.classes), w = Array::view(data.w);
  const auto objective = [A, Y](Expr x, Expr weights, Expr l2) {
    const Expr s = matmul(A, x);
    return sum(weights * (log_sum_exp(s, 1) - sum(Y * s, 1))) + 0.5 * l2 * sum(square(x));
  };
  const Shape shape{static_cast<std::int64_t>(size.n), static_cast<std::int64_t>(size.classes)};
  const Array l2(1e-3 * static_cast<double>(size.N)), x0 = zeros(shape);

  if (suite.wants(product_row)) {
    const Plan plan(
        traced([&](Expr x, Expr weights, Expr penalty, Expr v) { return hvp(objective(x, weights, penalty), x, v); }, shape,
               w.shape(), Shape{}, shape),
        {.levels = {2, 1, 1, 3}});
    Workspace workspace = plan.workspace();
    std::vector<double> v(size.n * size.classes), product(v.size());
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = gaussian(49, i);
    const std::array inputs{x0, w, l2, matrix(v, size.n, size.classes)};
    const std::array<std::span<double>, 1> outputs{product};
    plan.run(workspace, inputs, outputs);
    NarrowProductsFloor floor(data.A, size.N, size.n, size.classes);
    suite.time(product_row, Unit::ms, {[&] { plan.run(workspace, inputs, outputs, 3); }}, {{[&] { floor.run(v); }}},
               at_most_ratio(1.5));
  }
  if (!suite.wants(solve_row) && !suite.wants(one_row) && !suite.wants(implicit_row)) return;
  const Solver solver = newton_cg(objective, {}, {.tolerance = 1e-8});
  Ours one_step(solver, x0, {w, l2}, OneStep{}), implicit(solver, x0, {w, l2}, Implicit{.tolerance = 1e-10});
  one_step.vjp();
  implicit.vjp();
  must_agree("one step and implicit of newton-cg", one_step.bar(), implicit.bar(), 1e-6);
  const Statistics& took = one_step.solution().statistics();
  suite.note(fmt::format("newton-cg {}: {} iterations, {} products; its one-step vjp {} products", text, took.iterations,
                         took.products, one_step.solution().report().products));
  suite.time(solve_row, Unit::ms, {[&] { one_step.solve(); }}, std::nullopt, std::nullopt);
  // The linear system of a cotangent is kept: after a new solve it has to be solved again.
  suite.time(one_row, Unit::ms, {[&] { one_step.vjp(); }, [&] { one_step.solve(); }}, std::nullopt, std::nullopt);
  suite.time(implicit_row, Unit::ms, {[&] { implicit.vjp(); }}, std::nullopt, std::nullopt);
}

// ---- small problems again and again, each with new parameters, from where the last one ended ----

class Repeated {
 public:
  // `thetas` is what the parameter takes in turn.
  Repeated(const Solver& solver, const Parts& x0, std::vector<std::vector<double>> thetas) : values_(std::move(thetas)) {
    for (const Array& part : x0) start_.emplace_back(static_cast<std::size_t>(part.size()));
    std::vector<Array> parts;
    for (const std::vector<double>& part : start_) parts.push_back(Array::view(part));
    x0_ = Parts(parts);
    for (const std::vector<double>& theta : values_) thetas_.emplace_back(Array::view(theta));
    prepared_.emplace(solver, x0_, thetas_.front(), OneStep{});
  }
  void solve() {
    const Solution& solution = prepared_->solve(x0_, thetas_[next_]);
    if (!is_solution(solution.status())) throw std::runtime_error("a repeated solve: " + solution.message());
    next_ = (next_ + 1) % thetas_.size();
    const std::span<const double> x = solution.entries();
    auto from = x.begin();
    for (std::vector<double>& part : start_) {
      std::copy_n(from, part.size(), part.begin());
      from += static_cast<std::ptrdiff_t>(part.size());
    }
  }

 private:
  std::vector<std::vector<double>> values_, start_;
  Parts x0_;
  std::vector<Parts> thetas_;
  std::optional<Prepared> prepared_;
  std::size_t next_ = 0;
};

// Copies of θ, each entry changed by about a hundredth of its size.
std::vector<std::vector<double>> nearby(const std::vector<double>& theta) {
  std::vector<std::vector<double>> all(16, theta);
  for (std::size_t k = 0; k < all.size(); ++k)
    for (std::size_t i = 0; i < theta.size(); ++i) all[k][i] *= 1 + 0.01 * gaussian(13 + k, i);
  return all;
}

void repeated_rows(Suite& suite, const std::string& what, Repeated repeated) {
  for (int i = 0; i < 16; ++i) repeated.solve();
  std::size_t allocations = 0;
  {
    const CountedAllocations counted;
    for (int i = 0; i < 16; ++i) repeated.solve();
    allocations = counted.count();
  }
  suite.amount("allocations of 16 repeated solves, " + what, Unit::count, static_cast<double>(allocations), at_most(0));
  suite.time("a repeated solve, " + what, Unit::us, {[&] { repeated.solve(); }}, std::nullopt, at_most(20));
}

void repeated_rows(Suite& suite) {
  const std::string logistic_text = "newton (200,5)", qp_text = "qp (10,4,10)";
  const auto wanted = [&](const std::string& what) {
    return suite.wants("a repeated solve, " + what) || suite.wants("allocations of 16 repeated solves, " + what);
  };
  if (wanted(logistic_text)) {
    const Logistic data = logistic_with_intercept(200, 5);
    repeated_rows(suite, logistic_text, Repeated(logistic_newton(data), zeros({5}), nearby(data.w)));
  }
  if (wanted(qp_text)) {
    const DenseQp qp = qp_data(10, 4, 10);
    repeated_rows(suite, qp_text, Repeated(paper_program(qp), cold_start(qp), nearby(qp.b)));
  }
}

// ---- solve(), which traces its lambda again, over a Prepared, which does not ----

void traced_again_rows(Suite& suite) {
  const std::string ratio_row = "newton solve() over Prepared::solve (200,5)",
                    extra_row = "what solve() adds to Prepared::solve, newton (200,5)";
  if (!suite.wants(ratio_row) && !suite.wants(extra_row)) return;
  const Logistic data = logistic_with_intercept(200, 5);
  const Solver solver = logistic_newton(data);
  const Parts x0(zeros({5})), w(Array::view(data.w));
  Prepared prepared(solver, x0, w, OneStep{});
  std::vector<double> extra;
  const auto seconds = [](const auto& work) {
    constexpr int repetitions = 20;
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < repetitions; ++i) work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / repetitions;
  };
  const auto anew = [&] { (void)solve(solver, x0, w, OneStep{}); };
  const auto again = [&] { (void)prepared.solve(x0, w); };
  anew();
  again();
  for (int i = 0; i < (suite.quick() ? 21 : 201); ++i) {
    const double one = seconds(anew), other = seconds(again);
    extra.push_back(one - other);
  }
  std::ranges::sort(extra);
  suite.time(ratio_row, Unit::us, {anew}, {{again}}, std::nullopt);
  suite.amount(extra_row, Unit::us, 1e6 * extra[extra.size() / 2], at_most(5));
}

// ---- memory of reverse unrolling ----

// A signal x close to θ whose jumps cost their size, smoothed: steps so short that a hundred thousand of them do not end.
void memory_rows(Suite& suite) {
  constexpr int steps = 100000;
  constexpr std::int64_t n = 1000;
  constexpr std::size_t budget = 80'000'000;
  const std::string text = fmt::format("{} gradient steps n={}", steps, n);
  const std::string memory_row = "peak memory of reverse unrolling, " + text,
                    steps_row = "steps of reverse unrolling over Revolve's, " + text,
                    time_row = "solve and reverse unrolling, once, " + text;
  if (!suite.wants(memory_row) && !suite.wants(steps_row) && !suite.wants(time_row)) return;
  const Solver solver = gradient_descent(
      [](Expr x, Expr theta) {
        const Expr jump = slice(x, 1, n) - slice(x, 0, n - 1);
        return 0.5 * sum(square(x - theta)) + sum(softplus(jump) + softplus(-jump));
      },
      {.step = GradientStep::fixed(1e-4)}, {.tolerance = 0, .max_iterations = steps});
  std::vector<double> theta(n), v(n), dx(n), bar(n);
  for (std::size_t i = 0; i < theta.size(); ++i) theta[i] = gaussian(40, i), v[i] = gaussian(41, i);
  const Parts parameter(Array::view(theta)), start(zeros({n}));
  Prepared prepared(solver, start, parameter, Unrolled{.memory = budget});

  const CountedAllocations counted;
  const auto begin = std::chrono::steady_clock::now();
  const Solution& solution = prepared.solve(start, parameter).even_if_unconverged();
  if (solution.statistics().iterations != steps) throw std::runtime_error("the descent ended early: " + solution.message());
  const std::span<const double> c = v;
  const std::span<double> out = bar;
  solution.vjp_into({&c, 1}, {&out, 1});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const auto held = static_cast<double>(counted.peak_bytes());
  const int made = solution.report().steps;

  // The other direction gives the same number, <v, J v>.
  const std::array direction{Array::view(v)};
  solution.jvp_into(direction, dx);
  double forward = 0, reverse = 0;
  for (std::size_t i = 0; i < v.size(); ++i) forward += v[i] * dx[i], reverse += v[i] * bar[i];
  must_agree("reverse unrolling", {&reverse, 1}, {&forward, 1});

  const double predicted =
      steps + static_cast<double>(detail::least_recomputation(steps, static_cast<int>(budget / (n * sizeof(double)))));
  // The budget is for states; the hundredth above it is for the vectors and workspaces that any derivative needs.
  suite.amount(memory_row, Unit::MB, held / 1e6, at_most(1.01 * static_cast<double>(budget) / 1e6));
  suite.amount(steps_row, Unit::count, made, at_most_ratio(1), predicted);
  suite.amount(time_row, Unit::ms, 1e3 * seconds, std::nullopt);
}

}  // namespace

void run_solve(Suite& suite) {
  for (const LogisticSize& size : logistic_sizes) newton_rows(suite, size);
  first_answer_row(suite);
  run_programs(suite);
  ridge_rows(suite);
  for (const SoftmaxSize& size : softmax_sizes) softmax_rows(suite, size);
  repeated_rows(suite);
  traced_again_rows(suite);
  memory_rows(suite);
  run_many(suite);
}

}  // namespace onestep::bench
