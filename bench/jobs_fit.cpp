// Rows of the suite `jobs`: whole fits as `onestep fit` does them on loaded data, tracing and planning included.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "floors.h"
#include "jobs.h"
#include "onestep/onestep.h"
#include "reference.h"
#include "samples.h"

namespace onestep::bench {
namespace {

struct Set {
  const char* which;
  const char* shape;
};
constexpr std::array sets{Set{"a9a", "(32561,123)"}, Set{"ijcnn1", "(49990,22)"}, Set{"made", "(10000,100)"}};

// Sum of losses plus |x|²/2, the intercept left out.
void fit_row(Suite& suite, const Set& set, const std::string& loss) {
  const std::string row = fmt::format("fit {} {} {}", loss, name_of(set.which), set.shape);
  if (!suite.wants(row)) return;
  const Samples samples = samples_called(set.which);
  const Array A = samples.features(), y = samples.labels();
  const auto n = static_cast<std::int64_t>(samples.n);
  const bool logistic = loss == "logistic";
  const auto objective = [&](Expr x) {
    const Expr prediction = matmul(A, x);
    return (logistic ? sum(softplus(-y * prediction)) : 0.5 * sum(square(prediction - y))) +
           0.5 * sum(square(slice(x, 0, n - 1)));
  };
  const auto fit = [&] { return solve(newton(objective), zeros({n}), Parts()); };
  const Solution s = fit();
  if (!is_solution(s.status())) throw std::runtime_error(s.message());
  const Array g = evaluate(traced([&](Expr x) { return grad(objective(x), x); }, Shape{n}), {s.x()})[0];
  double norm = 0;
  for (const double e : g.values()) norm = std::hypot(norm, e);
  const Statistics& took = s.statistics();
  suite.note(fmt::format("{}: {} iterations, {} backtracks, gradient {:.1e}", row, took.iterations, took.backtracks, norm));

  std::optional<Logistic> data;
  std::optional<FloorNewton> floor;
  std::optional<Contender> by_hand;
  if (logistic && took.backtracks == 0) {
    std::vector<double> l2(samples.n, 1.0);
    l2.back() = 0;
    data = logistic_on(samples, l2);
    floor.emplace(*data, std::vector<double>(samples.n), took.iterations);
    floor->run();
    must_agree(row, s.x().values(), floor->x(), 1e-8);
    by_hand = {.run = [&] { floor->run(); }};
  }
  suite.time(row, Unit::ms, {[&] { fit(); }}, by_hand, std::nullopt);
  suite.ended_at(row, norm);
}

}  // namespace

void fit_rows(Suite& suite) {
  for (const Set& set : sets)
    for (const char* loss : {"logistic", "ridge"}) fit_row(suite, set, loss);
}

}  // namespace onestep::bench
