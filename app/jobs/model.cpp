// Objectives and predictions of the models, how a fit is made, and when none exists.
#include "jobs/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numbers>

#include "jobs/blocks.h"
#include "jobs/separating_direction.h"

namespace onestep::app::jobs {

Model::Model(const JobData& job)
    : loss_(job.loss),
      n_(job.n()),
      classes_(static_cast<std::int64_t>(job.labels.size())),
      shape_(loss_ == Loss::softmax ? Shape{n_ + 1, classes_} : Shape{n_ + 1}),
      start_(zeros(shape_)),
      penalty_factors_(job.penalty_factors) {}

// Whether the predictions of all labels gain on those of other classes, or keep their distance, along a direction: then it
// separates the classes linearly, but for samples on the plane.
bool Model::is_separating(const Samples& samples, const Array& from, const Array& to) const {
  constexpr double negligible = 1e-2;  // beside the largest gain
  const Array gains =
      evaluate(traced([&](Expr a, Expr b) { return matmul(samples.A, b - a); }, shape_, shape_), {from, to})[0].contiguous();
  const std::span<const double> gain = gains.values(), y = samples.y.values();
  double least = 0, most = 0;
  const auto count = [&](double of_label) { least = std::min(least, of_label), most = std::max(most, of_label); };
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (loss_ == Loss::logistic) count(y[i] * gain[i]);
    const auto K = static_cast<std::size_t>(classes_);
    for (std::size_t k = 0; loss_ == Loss::softmax && k < K; ++k)
      count(gain[i * K + static_cast<std::size_t>(y[i])] - gain[i * K + k]);
  }
  return most > 0 && -least <= negligible * most;
}

// A sum of losses below log 2 has no loss above it: every sample is on its side of the plane, which can be made as steep as
// one likes. With samples on the plane the end of the fit tells. Where that is too large to be looked into the sum stands
// still at last while the steps do not get shorter, or the Hessian vanishes along them: then the last steps are along a
// direction that separates the classes, which the samples show.
void Model::require_a_best_fit(const Samples& train, double l2) const {
  if (l2 > 0 || loss_ == Loss::ridge) return;
  constexpr int enough_iterations = 100;
  constexpr double long_step = 1e-3;
  double value = 0, step = 0;
  const Solver watched = solver([&](Expr x) { return sum(losses(train, x)) + penalty(x, 0.0); },
                                {.max_iterations = enough_iterations, .callback = [&](const Iteration& i) {
                                   value = i.value;
                                   step = i.step / i.scale;
                                   return value >= std::numbers::ln2 && stop_signal() == 0;
                                 }});
  const Solution end = solve(watched, start_, Parts());
  const Status status = end.status();
  const bool stood_still = status != Status::converged && status != Status::cancelled;
  const bool never_ends = status == Status::iteration_limit || status == Status::singular;
  const auto ends_along_a_separating_direction = [&] {
    constexpr int last_steps = 5;
    SolveOptions how = stops_at_signals();
    how.max_iterations = std::max(1, end.statistics().iterations - last_steps);
    const Solver earlier = solver([&](Expr x) { return sum(losses(train, x)) + penalty(x, 0.0); }, how);
    return is_separating(train, solve(earlier, start_, Parts()).x().contiguous(), end.x().contiguous());
  };
  if (value < std::numbers::ln2) throw SeparableClasses();
  const std::optional<bool> separated = are_separated_at(*this, train, end.x().contiguous());
  const bool may_be_separated = !separated && (never_ends || (stood_still && step > long_step));
  if (separated.value_or(false) || (may_be_separated && ends_along_a_separating_direction())) throw SeparableClasses();
}

// Conjugate gradients take as many steps as the sizes of the unknowns' curvatures differ: the diagonal of the Hessian where
// all classes are equally probable makes them alike.
void Model::scale_unknowns(const Samples& train, const Array& lambda) {
  has_blocks_ = false;
  preconditioner_ = nullptr;
  if (loss_ != Loss::softmax) return;
  const Array added = penalties(lambda);
  const auto columns = static_cast<std::size_t>(n_ + 1), classes = static_cast<std::size_t>(classes_);
  std::vector<double> diagonal(columns);
  const double variance = (1 - 1 / static_cast<double>(classes)) / static_cast<double>(classes);
  for (std::size_t e = 0; e < train.A.values().size(); ++e)
    diagonal[e % columns] += variance * train.A.values()[e] * train.A.values()[e];
  for (std::size_t j = 0; j < columns; ++j) {
    diagonal[j] += j + 1 < columns ? added.values()[j] : 1;
    if (!(diagonal[j] > 0) || !std::isfinite(diagonal[j])) diagonal[j] = 1;
  }
  preconditioner_ = [diagonal = std::move(diagonal), classes](std::span<double> r) {
    for (std::size_t u = 0; u < r.size(); ++u) r[u] /= diagonal[u / classes];
  };
}

void Model::get_ready(const Samples& train, const Array& lambda) {
  require_a_best_fit(train, std::ranges::max(lambda.values()));
  scale_unknowns(train, lambda);
  constexpr std::int64_t most = std::int64_t{1} << 27;  // entries: a gigabyte
  constexpr std::int64_t few = 100;                     // unknowns: products are as quick as what they would save
  constexpr int rough_iterations = 8;                   // each cheap as long as the solution is far
  if (loss_ != Loss::softmax || unknowns() < few || classes_ * (n_ + 1) * (n_ + 1) > most) return;
  SolveOptions how = stops_at_signals();
  how.max_iterations = rough_iterations;
  const Solver rough = solver([&](Expr x) { return sum(losses(train, x)) + penalty(x, lambda); }, how);
  const Solution s = solve(rough, start_, Parts());
  if (s.status() != Status::iteration_limit && !is_solution(s.status())) return;
  start_ = s.x();
  const auto blocks = std::make_shared<const SoftmaxBlocks>(train.A, start_, penalties(lambda));
  has_blocks_ = true;
  preconditioner_ = [blocks](std::span<double> r) { (*blocks)(r); };
}

Expr Model::losses(const Samples& samples, const Expr& x) const {
  const Expr prediction = matmul(samples.A, x);
  switch (loss_) {
    case Loss::logistic: return softplus(-samples.y * prediction);
    case Loss::ridge: return 0.5 * square(prediction - samples.y);
    case Loss::softmax: break;
  }
  if (!by_margins_) return log_sum_exp(prediction, 1) - sum(samples.Y * prediction, 1);
  constexpr double far = 1e300;  // takes the label's own margin, which is 0, out of the sum
  const Expr own = reshape(sum(samples.Y * prediction, 1), {samples.count(), 1});
  return softplus(log_sum_exp(prediction - own - far * samples.Y, 1));
}

Expr Model::mean_loss(const Samples& samples, const Expr& x) const {
  return sum(losses(samples, x)) / static_cast<double>(samples.count());
}

Expr Model::penalty(const Expr& x, const Expr& of_features) const {
  const Expr lambda = penalty_factors_ ? of_features * *penalty_factors_ : of_features;
  if (loss_ != Loss::softmax) return 0.5 * sum(lambda * square(slice(x, 0, n_)));
  const Expr squares = sum(square(slice(x, 0, n_)), 1);
  // Intercepts, or coefficients of a feature, that move together in all classes change no prediction: their sums are held at
  // zero, where a penalty, however small it may be beside the losses, wants them too.
  const Expr together = sum(x, 1);
  return 0.5 * (sum(lambda * squares) + sum(square(together)));
}

Array Model::penalties(const Array& lambda) const {
  std::vector<double> all(static_cast<std::size_t>(n_));
  for (std::size_t j = 0; j < all.size(); ++j)
    all[j] = lambda.values()[lambda.size() > 1 ? j : 0] * (penalty_factors_ ? penalty_factors_->values()[j] : 1.0);
  return {Shape{n_}, std::move(all)};
}

std::vector<double> Model::sample_losses(const Samples& samples, const Array& x) const {
  const Array each = evaluate(traced([&](Expr at) { return losses(samples, at); }, shape_), {x})[0];
  return {each.values().begin(), each.values().end()};
}

Score Model::score(const Samples& samples, const Array& x) const {
  const std::vector<Array> found = evaluate(traced(
                                                [&](Expr at) {
                                                  return std::pair{mean_loss(samples, at), matmul(samples.A, at)};
                                                },
                                                shape_),
                                            {x});
  const std::span<const double> y = samples.y.values(), prediction = found[1].values();
  const auto count = static_cast<double>(samples.count());
  Score score{.loss = found[0].item()};
  if (!std::ranges::all_of(prediction, [](double z) { return std::isfinite(z); }))
    throw Misuse("predictions overflow, as values of a feature differ too much in size; correct them, or try --standardise");
  if (loss_ == Loss::ridge) {
    score.score = r_squared(prediction, y);
    return score;
  }
  const auto is_right = [&](std::size_t i) {
    if (loss_ == Loss::logistic) return (prediction[i] > 0) == (y[i] > 0);
    const auto row = prediction.subspan(i * static_cast<std::size_t>(classes_), static_cast<std::size_t>(classes_));
    return std::ranges::max_element(row) - row.begin() == static_cast<std::ptrdiff_t>(y[i]);
  };
  std::map<double, std::pair<double, double>> of_class;  // right ones, all
  for (std::size_t i = 0; i < y.size(); ++i) {
    auto& [right, all] = of_class[y[i]];
    right += is_right(i) ? 1 : 0;
    all += 1;
  }
  for (const auto& [label, counts] : of_class) {
    score.score += counts.first / count;
    score.balanced += counts.first / counts.second / static_cast<double>(of_class.size());
  }
  return score;
}

Array Model::probabilities(const Samples& samples, const Array& x) const {
  const Array z = evaluate(traced([&](Expr at) { return matmul(samples.A, at); }, shape_), {x})[0];
  std::vector<double> all;
  if (loss_ == Loss::logistic) {
    for (const double v : z.values()) all.insert(all.end(), {1 / (1 + std::exp(v)), 1 / (1 + std::exp(-v))});
    return {Shape{samples.count(), 2}, std::move(all)};
  }
  const Function softmax = traced(
      [&](Expr s) {
        return exp(s - reshape(log_sum_exp(s, 1), {samples.count(), 1}));
      },
      z.shape());
  return evaluate(softmax, {z})[0];
}

Json Model::score_json(const Samples& samples, const Array& x) const {
  const Score s = score(samples, x);
  Json json = {{"samples", samples.count()}, {"loss", s.loss}, {score_name(), s.score}};
  if (loss_ != Loss::ridge) json["balanced_accuracy"] = s.balanced;
  return json;
}

double r_squared(std::span<const double> prediction, std::span<const double> y) {
  const auto [least, most] = std::ranges::minmax(y);
  if (least == most) return std::numeric_limits<double>::quiet_NaN();
  double mean = 0, rest = 0, all = 0;
  for (const double target : y) mean += target / static_cast<double>(y.size());
  for (std::size_t i = 0; i < y.size(); ++i) {
    rest += std::pow(prediction[i] - y[i], 2);
    all += std::pow(y[i] - mean, 2);
  }
  return 1 - rest / all;
}

std::string score_text(double score) {
  return std::isnan(score) ? "not defined: the target is constant" : fmt::format("{:.4f}", score);
}

SolveOptions stops_at_signals() {
  return {.callback = [](const Iteration&) { return stop_signal() == 0; }};
}

std::string shown(double value) { return fmt::format("{:.6g}", value); }

std::string seconds_text(double seconds) {
  return seconds < 10 ? fmt::format("{:.2g} s", seconds) : fmt::format("{:.0f} s", seconds);
}

}  // namespace onestep::app::jobs
