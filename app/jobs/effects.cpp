// One fit for each fold, differentiated by the weights of its samples, and with each of them left out.
#include "jobs/effects.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "jobs/folds.h"
#include "jobs/leave_one_out.h"

namespace onestep::app::jobs {

namespace {

class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds) {}
  ~Stopwatch() { seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

std::int64_t Effects::most_unknowns() { return LeaveOneOut::most_unknowns; }

Effects::Effects(const JobData& job, const Model& model, double l2, std::size_t folds, std::uint64_t seed,
                 std::function<bool(const std::string&)> tell)
    : job_(job),
      model_(model),
      l2_(l2),
      tell_(std::move(tell)),
      prepared_(
          model.solver([this](Expr x, Expr w) { return sum(w * model_.losses(job_.train, x)) + model_.penalty(x, l2_); },
                       {.callback = [this](const Iteration&) { return tell_(doing_); }}),
          model.start(), ones({job.train.count()}), OneStep{}),
      effects_(static_cast<std::size_t>(job.train.count())),
      sums_(effects_.size()),
      squares_(effects_.size()),
      unpredicted_(effects_.size()) {
  split(folds, seed);
}

void Effects::split(std::size_t folds, std::uint64_t seed) {
  const std::size_t N = effects_.size();
  const std::vector<std::size_t> fold =
      folds > 0 ? deal_out(class_of_each(job_, job_.train), folds, seed) : std::vector<std::size_t>(N, no_fold);
  for (std::size_t f = 0; f < std::max<std::size_t>(folds, 1); ++f) {
    Part part;
    part.weights.assign(N, 1.0);
    for (std::size_t i = 0; i < N; ++i) {
      if (fold[i] == f) part.weights[i] = 0;
      (fold[i] == f ? part.judged : part.places).push_back(i);
    }
    if (folds > 0 && part.judged.empty()) continue;
    part.judges = folds > 0 ? some_of(job_.train, part.judged) : *job_.valid;
    judging_ += static_cast<std::size_t>(part.judges.count());
    parts_.push_back(std::move(part));
  }
  if (judging_ == 0)
    throw Misuse(
        fmt::format("{}: every label has one sample only, so that none can be held out; give --valid FILE", job_.name));
}

const Solution& Effects::fit(const Part& part, std::vector<double> weights, const Array& start) {
  const Solution& s = prepared_.solve(start, Array({job_.train.count()}, std::move(weights)));
  if (!is_solution(s.status()))
    throw FitFailed(s.status(), fmt::format("{}{}", s.message(),
                                            part.judged.empty() ? ""
                                                                : fmt::format(" (in the fit without the fold of sample {})",
                                                                              job_.train.rows[part.judged[0]])));
  return s;
}

double Effects::judge(const Part& part, const Array& x) const {
  const std::vector<double> all = model_.sample_losses(part.judges, x);
  return std::reduce(all.begin(), all.end());
}

// Those in other folds.
double Effects::judges_of(std::size_t sample) const {
  double count = 0;
  for (const Part& part : parts_)
    if (part.weights[sample] > 0) count += static_cast<double>(part.judges.count());
  return count;
}

void Effects::compute() {
  Array start = model_.start();
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    Part& part = parts_[p];
    doing_ = parts_.size() > 1 ? fmt::format("fit {} of {}", p + 1, parts_.size()) : "fitting";
    if (l2_ == 0 && part.places.size() < effects_.size()) model_.require_a_best_fit(some_of(job_.train, part.places), l2_);
    const Solution* s = nullptr;
    {
      const Stopwatch watch(fit_seconds_);
      s = &fit(part, part.weights, start);
    }
    start = part.x = s->x();
    const std::vector<double> own = model_.sample_losses(job_.train, part.x);
    if (losses_.empty()) losses_ = own;
    for (const std::size_t i : part.judged) losses_[i] = own[i];
    part.loss = judge(part, part.x);
    loss_ += part.loss / static_cast<double>(judging_);
    differentiate(part, *s);
    remove(part);
  }
  if (has_leverage() && own_losses_.empty()) find_own_losses_of_another_fit();
  for (std::size_t i = 0; i < effects_.size(); ++i) {
    const double count = judges_of(i);
    Effect& e = effects_[i];
    e.derivative /= count;
    if (!has_leverage()) e.removal = -e.derivative;
    if (!has_leverage() || unpredicted_[i]) continue;
    const double mean = sums_[i] / count;
    e.removal = mean;
    const double variance = count > 1 ? std::max(0.0, squares_[i] - count * mean * mean) / (count - 1) : 0;
    e.standard_error = std::sqrt(variance / count);
  }
}

void Effects::differentiate(const Part& part, const Solution& s) {
  doing_ = "derivative";
  const Stopwatch watch(derivative_seconds_);
  const auto count = static_cast<double>(judging_);
  const Function gradient_at =
      traced([&](Expr x) { return grad(sum(model_.losses(part.judges, x)) / count, x); }, model_.shape());
  const Array gradient = evaluate(gradient_at, {part.x})[0], g = s.vjp(gradient);
  for (const std::size_t i : part.places) effects_[i].derivative += count * g.values()[i];
  Certificate certificate = s.certificate(gradient);
  if (&part == &parts_.front() || !(certificate.relative <= certificate_.relative)) certificate_ = std::move(certificate);
}

void Effects::remove(const Part& part) {
  if (!has_leverage()) return;
  (void)tell_("what removal does");
  const Stopwatch watch(removal_seconds_);
  const LeaveOneOut without(model_, some_of(job_.train, part.places), part.x, l2_);
  if (!without.works())
    throw Misuse(
        "the Hessian of a fit is singular to rounding, so that the fit is not unique: drop columns that depend on others, "
        "or give a larger --l2");
  const std::vector<std::optional<Change>> changes = without.changes(part.judges);
  const std::vector<std::size_t> size = class_sizes(part.places);
  for (std::size_t k = 0; k < changes.size(); ++k) {
    const std::size_t i = part.places[k];
    if (!changes[k] || is_last_of_its_class(i, size)) {
      unpredicted_[i] = true;
      continue;
    }
    sums_[i] += changes[k]->sum;
    squares_[i] += changes[k]->squares;
  }
  if (part.judged.empty()) find_own_losses(without);
}

std::vector<std::size_t> Effects::class_sizes(const std::vector<std::size_t>& places) const {
  std::vector<std::size_t> size(std::max<std::size_t>(1, job_.labels.size()));
  for (const std::size_t i : places) ++size[job_.class_of(job_.train.y.values()[i])];
  return size;
}

// Without the last sample of a class its intercept, which has no penalty, would go to minus infinity.
bool Effects::is_last_of_its_class(std::size_t sample, const std::vector<std::size_t>& sizes) const {
  return sizes[job_.class_of(job_.train.y.values()[sample])] < 2;
}

// `without` is of the fit to all samples.
void Effects::find_own_losses(const LeaveOneOut& without) {
  std::vector<std::size_t> all(effects_.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  const std::vector<std::size_t> size = class_sizes(all);
  own_losses_ = without.own_losses();
  for (std::size_t i = 0; i < own_losses_.size(); ++i)
    if (is_last_of_its_class(i, size)) own_losses_[i].reset();
}

// Where there are folds none of their fits is to all samples.
void Effects::find_own_losses_of_another_fit() {
  return_free_memory();
  const Array x = fit_all();
  (void)tell_("the loss of each sample without it");
  const Stopwatch watch(removal_seconds_);
  const LeaveOneOut without(model_, job_.train, x, l2_);
  if (without.works())
    find_own_losses(without);
  else
    own_losses_.resize(effects_.size());
}

Retrained Effects::retrain_without(std::size_t sample) {
  doing_ = fmt::format("training again without sample {}", job_.train.rows[sample]);
  double change = 0;
  for (const Part& part : parts_) {
    if (part.weights[sample] == 0) continue;
    std::vector<double> weights = part.weights;
    weights[sample] = 0;
    change += judge(part, fit(part, std::move(weights), part.x).x()) - part.loss;
  }
  const Effect& e = effects_[sample];
  return {sample, -e.derivative, e.removal.value_or(0), change / judges_of(sample)};
}

Array Effects::fit_all() {
  if (parts_.size() == 1 && parts_[0].judged.empty()) return parts_[0].x;
  if (x_of_all_) return *x_of_all_;
  doing_ = "fit of all samples";
  const Stopwatch watch(fit_seconds_);
  x_of_all_ = fit({}, std::vector<double>(effects_.size(), 1.0), parts_[0].x).x();
  return *x_of_all_;
}

}  // namespace onestep::app::jobs
