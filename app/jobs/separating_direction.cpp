// Projects coefficients onto the directions that move no uncertain margin, and checks that the certain ones gain by them.
#include "jobs/separating_direction.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "jobs/leave_one_out.h"

namespace onestep::app::jobs {

namespace {

constexpr double certain_margin = 12;  // of a pair of classes whose probabilities are as 1 to 6e-6

// Pairs of a sample and a class that is not its own: of two classes one for each sample.
class Pairs {
 public:
  Pairs(const Model& model, const Samples& samples)
      : samples_(samples),
        is_softmax_(model.loss() == Loss::softmax),
        K_(is_softmax_ ? static_cast<std::size_t>(model.shape()[1]) : 1),
        n_(static_cast<std::size_t>(samples.A.shape()[1])),
        certain_(static_cast<std::size_t>(samples.count()) * K_) {}

  // By how much the label's score exceeds that of each class; for the label itself, which is no pair, 0.
  std::vector<double> margins(const std::vector<double>& x) const {
    std::vector<double> result(certain_.size()), scores(K_);
    for (std::size_t i = 0; i < sample_count(); ++i) {
      std::ranges::fill(scores, 0.0);
      for (std::size_t j = 0; j < n_; ++j)
        for (std::size_t k = 0; k < K_; ++k) scores[k] += samples_.A.values()[i * n_ + j] * x[j * K_ + k];
      for (std::size_t k = 0; k < K_; ++k)
        result[i * K_ + k] = is_softmax_ ? scores[label(i)] - scores[k] : samples_.y.values()[i] * scores[0];
    }
    return result;
  }
  // Returns how many.
  std::size_t mark_certain(const std::vector<double>& margins) {
    for (std::size_t p = 0; p < margins.size(); ++p) certain_[p] = is_pair(p) && margins[p] > certain_margin;
    return count_certain();
  }
  // Those that lose are no longer taken for certain. Returns whether there are any.
  bool unmark_losing(const std::vector<double>& gains, double negligible) {
    const std::size_t before = count_certain();
    for (std::size_t p = 0; p < gains.size(); ++p) certain_[p] = certain_[p] && gains[p] >= -negligible;
    return count_certain() < before;
  }
  // Gains of pairs that are not certain are zero, and no other is below it.
  bool prove_separation(const std::vector<double>& gains, double negligible) const {
    for (std::size_t p = 0; p < gains.size(); ++p)
      if (is_pair(p) && (certain_[p] ? gains[p] < -negligible : std::fabs(gains[p]) > negligible)) return false;
    return true;
  }
  // Σ aᵢaᵢᵀ ⊗ Vᵢ, which vanishes along directions in which the margins of the pairs that are not certain stay the same.
  Array matrix_of_uncertain() const {
    std::vector<double> blocks(sample_count() * K_ * K_);
    for (std::size_t i = 0; i < sample_count(); ++i) {
      double count = 0;
      for (std::size_t k = 0; k < K_; ++k) count += certain_[i * K_ + k] ? 0 : 1;
      for (std::size_t k = 0; k < K_; ++k)
        for (std::size_t l = 0; l < K_; ++l)
          if (!certain_[i * K_ + k] && !certain_[i * K_ + l])
            blocks[(i * K_ + k) * K_ + l] = (k == l ? 1 : 0) - (is_softmax_ ? 1 / count : 0);
    }
    return sum_of_blocks(samples_.A, Array(Shape{samples_.count(), static_cast<std::int64_t>(K_ * K_)}, std::move(blocks)),
                         K_);
  }
  std::size_t classes() const { return K_; }

 private:
  std::size_t sample_count() const { return certain_.size() / K_; }
  std::size_t label(std::size_t i) const { return static_cast<std::size_t>(samples_.y.values()[i]); }
  bool is_pair(std::size_t p) const { return !is_softmax_ || label(p / K_) != p % K_; }
  std::size_t count_certain() const { return static_cast<std::size_t>(std::ranges::count(certain_, true)); }

  const Samples& samples_;
  bool is_softmax_;
  std::size_t K_, n_;
  std::vector<bool> certain_;
};

// What is left of x in the null space of H, by inverse iteration; unknowns are measured by `size`. Nothing where H cannot be
// factorised.
std::optional<std::vector<double>> projected(const Array& H, const std::vector<double>& x, const std::vector<double>& size,
                                             std::size_t classes) {
  constexpr double shift = 1e-12;
  constexpr int passes = 3;
  const std::size_t m = x.size();
  std::vector<double> scaled(H.values().begin(), H.values().end()), direction(m);
  for (std::size_t u = 0; u < m; ++u)
    for (std::size_t v = 0; v < m; ++v) {
      scaled[u * m + v] /= size[u] * size[v];
      // Coefficients of a feature that move together in all classes move no margin.
      if (classes > 1 && u / classes == v / classes) scaled[u * m + v] += 1;
      if (u == v) scaled[u * m + v] += shift;
    }
  for (std::size_t u = 0; u < m; ++u) direction[u] = x[u] * size[u];
  const auto width = static_cast<std::int64_t>(m);
  const Plan plan(traced([](Expr matrix, Expr b) { return solve(cholesky(matrix), b); }, Shape{width, width}, Shape{width}));
  Workspace workspace = plan.workspace();
  const Array matrix(Shape{width, width}, std::move(scaled));
  std::vector<double> next(m);
  for (int pass = 0; pass < passes; ++pass) {
    plan.run(workspace, {matrix, Array(Shape{width}, direction)}, {next});
    if (workspace.failed() || !std::ranges::all_of(next, [](double e) { return std::isfinite(e); })) return std::nullopt;
    for (std::size_t u = 0; u < m; ++u) direction[u] = shift * next[u];
  }
  for (std::size_t u = 0; u < m; ++u) direction[u] /= size[u];
  return direction;
}

}  // namespace

std::optional<bool> are_separated_at(const Model& model, const Samples& samples, const Array& x) {
  constexpr double most_work = 2e10;  // operations to form the matrix
  constexpr std::int64_t most_unknowns = 1500;
  constexpr int most_rounds = 10;
  constexpr double negligible = 1e-6;  // beside the largest gain
  const auto m = static_cast<double>(model.unknowns()), N = static_cast<double>(samples.count());
  if (model.loss() == Loss::ridge) return false;
  if (model.unknowns() > most_unknowns || N * m * m > most_work) return std::nullopt;
  Pairs pairs(model, samples);
  const std::vector<double> at(x.values().begin(), x.values().end());
  if (!std::ranges::all_of(at, [](double e) { return std::isfinite(e); })) return false;
  if (pairs.mark_certain(pairs.margins(at)) == 0) return false;
  const auto n = static_cast<std::size_t>(samples.A.shape()[1]);
  std::vector<double> size(at.size());
  for (std::size_t e = 0; e < samples.A.values().size(); ++e)
    for (std::size_t k = 0; k < pairs.classes(); ++k)
      size[(e % n) * pairs.classes() + k] += samples.A.values()[e] * samples.A.values()[e];
  for (double& s : size) s = s > 0 ? std::sqrt(s) : 1;
  for (int round = 0; round < most_rounds; ++round) {
    const std::optional<std::vector<double>> direction = projected(pairs.matrix_of_uncertain(), at, size, pairs.classes());
    if (!direction) return false;
    const std::vector<double> gains = pairs.margins(*direction);
    const double largest = std::ranges::max(gains);
    if (largest < 1) return false;  // nothing of margins above 12 is left
    if (pairs.prove_separation(gains, negligible * largest)) return true;
    if (!pairs.unmark_losing(gains, negligible * largest)) return false;
  }
  return false;
}

}  // namespace onestep::app::jobs
