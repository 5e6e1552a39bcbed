// Rows of the engine: Newton's map and its derivative, ridge with a kept Gram matrix, an elementwise chain, planning.
#include "engine.h"

#include <fmt/core.h>

#include <array>
#include <optional>
#include <string>
#include <thread>

#include "data.h"
#include "floors.h"
#include "onestep/diff.h"
#include "onestep/function.h"
#include "onestep/plan.h"
#include "onestep/threads.h"
#include "reference.h"

namespace onestep::bench {
namespace {

Array matrix(const Logistic& data) {
  const auto rows = static_cast<std::int64_t>(data.N), columns = static_cast<std::int64_t>(data.n);
  return Array::view(MatrixView{data.A.data(), rows, columns, columns, 1});
}

// The Newton map and the value, from f alone; with the reverse derivative of the map by the weights when asked for.
Function newton_map(const Logistic& data, bool with_vjp) {
  const Array A = matrix(data), y = Array::view(data.y);
  const auto N = static_cast<std::int64_t>(data.N), n = static_cast<std::int64_t>(data.n);
  const auto map = [&](const Expr& x, const Expr& w) {
    const Expr f = sum(w * softplus(-y * matmul(A, x))) + 0.1 * sum(square(x));
    return std::pair(x - solve(cholesky(hessian(f, x)), grad(f, x)), f);
  };
  if (!with_vjp) return traced(map, Input{"x", {n}}, Input{"w", {N}});
  return traced(
      [&](const Expr& x, const Expr& w, const Expr& v) {
        const auto [x_next, f] = map(x, w);
        return std::tuple(x_next, f, vjp(x_next, w, v));
      },
      Input{"x", {n}}, Input{"w", {N}}, Input{"v", {n}});
}

// A plan with its workspace and results, ready to be run again and again.
class Ours {
 public:
  Ours(const Function& function, std::vector<Array> inputs, const PlanOptions& options = {})
      : plan_(function, options), workspace_(plan_.workspace()), inputs_(std::move(inputs)) {
    for (const Expr& output : function.outputs()) results_.emplace_back(static_cast<std::size_t>(output.shape().size()));
    outputs_.assign(results_.begin(), results_.end());
  }

  void run(int changed = 0) { plan_.run(workspace_, inputs_, outputs_, changed); }
  const std::vector<double>& result(std::size_t i) const { return results_[i]; }
  std::size_t workspace_bytes() const { return workspace_.bytes(); }

 private:
  Plan plan_;
  Workspace workspace_;
  std::vector<Array> inputs_;
  std::vector<std::vector<double>> results_;
  std::vector<std::span<double>> outputs_;
};

struct Size {
  std::size_t N, n;
  double step_bar, vjp_bar, threads_bar;  // 0: no such row

  bool small() const { return n < 100; }
  std::string text() const { return fmt::format("N={} n={}", N, n); }
};
constexpr std::array sizes{Size{200, 5, 1.3, 1.4, 0}, Size{1000, 10, 1.3, 1.4, 0}, Size{10000, 100, 1.15, 1.15, 1.5},
                           Size{10000, 300, 1.15, 1.15, 1.7}, Size{20000, 1000, 1.15, 1.15, 1.7}};

void newton_rows(Suite& suite, const Size& size) {
  const std::string step_row = "newton step " + size.text(), vjp_row = "step + vjp over step " + size.text();
  const std::string threads_row = "two threads over one, newton step " + size.text();
  const std::string memory_row = "workspace of step + vjp " + size.text();
  const bool wants_threads = size.threads_bar > 0 && suite.wants(threads_row) && threads() >= 2;
  const bool wants_memory = size.n == 1000 && suite.wants(memory_row);
  if (!suite.wants(step_row) && !suite.wants(vjp_row) && !wants_threads && !wants_memory) return;

  const Logistic data = logistic_data(size.N, size.n);
  const NewtonReference expected = newton_reference(data);
  const Unit unit = size.small() ? Unit::us : Unit::ms;

  const auto floor = newton_floor(data);
  floor->step();
  must_agree("the floor's value", {&floor->value(), 1}, {&expected.value, 1});
  must_agree("the floor's step", floor->x_next(), expected.x_next);

  const Array x = Array::view(data.x), w = Array::view(data.w), v = Array::view(data.v);
  // As in a loop: the weights stay, the iterate changes.
  Ours step(newton_map(data, false), {x, w}, {.levels = {1, 0}});
  step.run();
  must_agree("our value", step.result(1), {&expected.value, 1});
  must_agree("our step", step.result(0), expected.x_next);
  Ours both(newton_map(data, true), {x, w, v}, {.levels = {1, 0, 1}});
  both.run();
  must_agree("our step with vjp", both.result(0), expected.x_next);
  must_agree("our vjp", both.result(2), expected.w_bar);

  suite.time(step_row, unit, {[&] { step.run(1); }}, {{[&] { floor->step(); }}}, at_most_ratio(size.step_bar));
  if (size.n == 5 && !suite.rows().empty() && suite.rows().back().name == step_row)
    suite.amount(step_row + ", at most 4 us", unit, suite.rows().back().ours, at_most(4));
  suite.time(vjp_row, unit, {[&] { both.run(1); }}, {{[&] { step.run(1); }}}, at_most_ratio(size.vjp_bar));
  if (wants_memory) suite.amount(memory_row, Unit::MB, static_cast<double>(both.workspace_bytes()) / 1e6, at_most(40));
  if (wants_threads) {
    const int before = threads();
    const auto on = [&](int count) { return Contender{[&] { step.run(1); }, [count] { set_threads(count); }}; };
    suite.time(threads_row, unit, on(2), on(1), at_least_ratio(size.threads_bar));
    set_threads(before);
  }
}

// The data is level 0, the iterate level 1: a step costs n² once the Gram matrix is kept.
void ridge_row(Suite& suite) {
  const std::string row = "ridge gradient step N=8192 n=12";
  if (!suite.wants(row)) return;
  const double lambda = 1, alpha = 1e-5;
  const Logistic data = logistic_data(8192, 12);
  const std::vector<double> expected = ridge_reference(data, lambda, alpha);
  RidgeFloor floor(data, lambda, alpha);
  floor.step();
  must_agree("the floor's ridge step", floor.x_next(), expected);

  const Array A = matrix(data), y = Array::view(data.y);
  const Function map = traced(
      [&](const Expr& x) {
        const Expr f = 0.5 * sum(square(matmul(A, x) - y)) + 0.5 * lambda * sum(square(x));
        return x - alpha * grad(f, x);
      },
      Input{"x", {12}});
  Ours ours(map, {Array::view(data.x)}, PlanOptions{{1}});
  ours.run();
  must_agree("our ridge step", ours.result(0), expected);
  suite.time(row, Unit::us, {[&] { ours.run(1); }}, {{[&] { floor.step(); }}}, at_most(1));
}

void chain_row(Suite& suite) {
  const std::string row = "elementwise chain of 8 on 1000000";
  if (!suite.wants(row)) return;
  const double a = 0.7, b = 0.2;
  const std::vector<double> x = chain_data(1000000), expected = chain_reference(a, b, x);
  ChainFloor floor(a, b, x);
  floor.run();
  must_agree("the floor's chain", floor.result(), expected);
  const Function f = traced([&](const Expr& e) { return sqrt(1.0 + square(tanh(a * e + b))) * exp(e); },
                            Input{"x", {static_cast<std::int64_t>(x.size())}});
  Ours ours(f, {Array::view(x)});
  ours.run();
  must_agree("our chain", ours.result(0), expected);
  suite.time(row, Unit::ms, {[&] { ours.run(); }}, {{[&] { floor.run(); }}}, at_most_ratio(1.2));
}

void planning_rows(Suite& suite) {
  for (const Size& size : {sizes.front(), sizes[2]}) {
    const std::string row = "trace, differentiate and plan step + vjp " + size.text();
    if (!suite.wants(row)) continue;
    const Logistic data = logistic_data(size.N, size.n);
    suite.time(row, Unit::ms, {[&] { const Plan plan(newton_map(data, true)); }}, std::nullopt, at_most(5));
  }
}

}  // namespace

void run_engine(Suite& suite) {
  for (const Size& size : sizes) newton_rows(suite, size);
  ridge_row(suite);
  chain_row(suite);
  planning_rows(suite);
}

}  // namespace onestep::bench
