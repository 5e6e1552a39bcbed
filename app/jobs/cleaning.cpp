#include "jobs/cleaning.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "jobs/folds.h"

namespace onestep::app::jobs {

namespace {

constexpr std::size_t folds = 5;
constexpr int rounds = 3;  // with probable labels

// a + to - from
Array moved(const Array& a, const Array& from, const Array& to) {
  std::vector<double> entries(a.values().begin(), a.values().end());
  for (std::size_t u = 0; u < entries.size(); ++u) entries[u] += to.values()[u] - from.values()[u];
  return {a.shape(), std::move(entries)};
}

Array mean(const std::vector<Array>& all) {
  std::vector<double> entries(all[0].values().size());
  for (const Array& a : all)
    for (std::size_t u = 0; u < entries.size(); ++u) entries[u] += a.values()[u] / static_cast<double>(all.size());
  return {all[0].shape(), std::move(entries)};
}

bool by_errors(const BeforeAndAfter& a, const BeforeAndAfter& b) {
  return a.difference() * b.standard_error < b.difference() * a.standard_error;
}

// Means of pairs, and the standard error of their difference.
class PairedMean {
 public:
  void add(double before, double after) {
    count_ += 1, before_ += before, after_ += after;
    squares_ += (after - before) * (after - before);
  }
  BeforeAndAfter result() const {
    if (count_ == 0) return {};
    const double difference = (after_ - before_) / count_;
    const double variance = count_ > 1 ? std::max(0.0, squares_ - count_ * difference * difference) / (count_ - 1) : 0;
    return {before_ / count_, after_ / count_, std::sqrt(variance / count_)};
  }

 private:
  double count_ = 0, before_ = 0, after_ = 0, squares_ = 0;
};

// What probabilities of the right classes say about a label, which may be wrong where there is noise.
struct Verdict {
  double right, loss;
};

Verdict verdict(std::span<const double> p, std::size_t label, const LabelNoise* noise) {
  const auto best = static_cast<std::size_t>(std::ranges::max_element(p) - p.begin());
  double probability = noise == nullptr ? p[label] : 0;
  for (std::size_t k = 0; noise != nullptr && k < p.size(); ++k) probability += p[k] * noise->of(k, label);
  constexpr double least = 1e-12;
  return {best == label ? 1.0 : 0.0, -std::log(std::max(least, probability))};
}

// The log probability of a label less its mean over labels that are drawn by the class frequencies.
double log_gain(std::span<const double> p, std::size_t label, const std::vector<double>& frequencies) {
  constexpr double least = 1e-12;
  double gain = 0;
  for (std::size_t k = 0; k < p.size(); ++k)
    gain += std::log(std::max(least, p[k])) * ((k == label ? 1 : 0) - frequencies[k]);
  return gain;
}

}  // namespace

Cleaner::Cleaner(const JobData& job, const Model& model, const Samples* trusted, double l2, std::uint64_t seed,
                 Progress& progress)
    : job_(job),
      model_(model),
      progress_(progress),
      all_(trusted != nullptr ? stacked(job.train, *trusted) : job.train),
      train_(static_cast<std::size_t>(job.train.count())),
      classes_(job.labels.size()),
      labels_(class_of_each(job, all_)),
      fold_(deal_out(std::span(labels_).first(train_), folds, seed)),
      judged_(labels_.size()),
      fits_of_all_(model, all_, classes_, l2) {
  const std::vector<std::size_t> of_trusted = deal_out(std::span(labels_).subspan(train_), folds, seed);
  fold_.insert(fold_.end(), of_trusted.begin(), of_trusted.end());
  for (std::size_t i = 0; i < train_; ++i) judged_[i] = fold_[i] != no_fold;
  const int within = static_cast<int>(folds) * (rounds + 2);
  fits_planned_ = within + 2 + static_cast<int>(folds) * (within + 2);
}

Judgement Cleaner::judge() {
  solutions_.clear();
  return judge_within(Mask(labels_.size(), true), model_.start(), solutions_);
}

Array Cleaner::fit_without(const std::vector<bool>& left_out) {
  Mask used(labels_.size(), true);
  for (std::size_t i = 0; i < train_; ++i) used[i] = !left_out[i];
  ClassProbabilities targets = labels_as_they_are(used);
  keep_every_class(targets, Mask(labels_.size(), true), no_fold);
  count_fit();
  const bool leaves_out = std::ranges::find(left_out, true) != left_out.end();
  if (solutions_.empty()) return fits_of_all_.fit(targets, model_.start());
  return fits_of_all_.fit(targets, mean(leaves_out ? solutions_.back() : solutions_.front()));
}

void Cleaner::count_fit() {
  ++fits_;
  progress_.show([&] { return fmt::format("clean: fit {} of about {}", fits_, fits_planned_); });
}

Array Cleaner::fit_closely(const ClassProbabilities& targets, const Array& start) {
  count_fit();
  return fits_of_all_.fit_closely(targets, start);
}

ClassProbabilities Cleaner::labels_as_they_are(const Mask& used) const {
  ClassProbabilities targets{classes_, std::vector<double>(labels_.size() * classes_)};
  for (std::size_t i = 0; i < labels_.size(); ++i) targets.row(i)[labels_[i]] = used[i] ? 1 : 0;
  return targets;
}

// Samples whose label another one exceeds in probability, the least probable half of a class at most: of a rare class that
// is hard to tell, most samples are not.
std::vector<bool> Cleaner::unlikely(const std::vector<std::size_t>& members, const ClassProbabilities& p) const {
  std::vector<std::vector<std::size_t>> of_class(classes_);
  for (std::size_t m = 0; m < members.size(); ++m) of_class[labels_[members[m]]].push_back(m);
  std::vector<bool> result(labels_.size());
  for (std::size_t k = 0; k < classes_; ++k) {
    std::ranges::stable_sort(of_class[k], {}, [&](std::size_t m) { return p.row(m)[k]; });
    for (std::size_t place = 0; place < of_class[k].size() / 2; ++place) {
      const std::size_t m = of_class[k][place];
      result[members[m]] = p.row(m)[best_other(p, m, k)] > p.row(m)[k];
    }
  }
  return result;
}

// Where a fit would have no sample of a class, those that were left out come back: what it says about the class would be
// that there is none.
void Cleaner::keep_every_class(ClassProbabilities& targets, const Mask& used, std::size_t fold) const {
  std::vector<double> weight(classes_);
  for (std::size_t i = 0; i < labels_.size(); ++i)
    for (std::size_t k = 0; k < classes_; ++k) weight[k] += targets.row(i)[k];
  for (std::size_t i = 0; i < labels_.size(); ++i)
    if (used[i] && (i >= train_ || fold == no_fold || fold_[i] != fold) && weight[labels_[i]] <= 0)
      targets.row(i)[labels_[i]] = 1;
}

void Cleaner::write_probabilities(const Array& x, std::size_t sample, std::span<double> to) const {
  const auto n = static_cast<std::size_t>(job_.n() + 1);
  const std::span<const double> a = all_.A.values().subspan(sample * n, n), entries = x.values();
  std::ranges::fill(to, 0.0);
  if (model_.loss() == Loss::logistic)
    for (std::size_t j = 0; j < n; ++j) to[1] += a[j] * entries[j];
  else
    for (std::size_t j = 0; j < n; ++j)
      for (std::size_t k = 0; k < classes_; ++k) to[k] += a[j] * entries[j * classes_ + k];
  const double largest = std::ranges::max(to);
  double sum = 0;
  for (double& entry : to) sum += entry = std::exp(entry - largest);
  for (double& entry : to) entry /= sum;
}

// Of the members, by fits to the others' targets: the next stage of the solutions. What a stage changes in one fold it
// nearly changes in all, which is where the other folds start.
ClassProbabilities Cleaner::cross_fit(const std::vector<std::size_t>& members, const Mask& used,
                                      const ClassProbabilities& targets, const Array& start, Solutions& solutions) {
  const std::vector<Array> last = solutions.empty() ? std::vector<Array>(folds, start) : solutions.back();
  std::vector<Array>& found = solutions.emplace_back(last);
  ClassProbabilities p{classes_, std::vector<double>(members.size() * classes_)};
  std::optional<std::size_t> first;
  for (std::size_t f = 0; f < folds; ++f) {
    if (first) found[f] = moved(last[f], last[*first], found[*first]);
    const auto held_out = [&](std::size_t i) { return i < train_ && fold_[i] == f; };
    if (std::ranges::none_of(members, held_out)) continue;
    ClassProbabilities rest = targets;
    for (std::size_t i = 0; i < train_; ++i)
      if (held_out(i)) std::ranges::fill(rest.row(i), 0.0);
    keep_every_class(rest, used, f);
    count_fit();
    found[f] = fits_of_all_.fit_roughly(rest, found[f]);
    if (!first) first = f;
    for (std::size_t m = 0; m < members.size(); ++m)
      if (held_out(members[m])) write_probabilities(found[f], members[m], p.row(m));
  }
  return p;
}

Judgement Cleaner::judge_within(const Mask& used, const Array& start, Solutions& solutions) {
  std::vector<std::size_t> members;
  ClassIndices labels;
  for (std::size_t i = 0; i < train_; ++i)
    if (used[i] && judged_[i]) members.push_back(i), labels.push_back(labels_[i]);
  const auto fit_to = [&](const ClassProbabilities& targets) { return cross_fit(members, used, targets, start, solutions); };
  ClassProbabilities targets = labels_as_they_are(used);
  ClassProbabilities p = fit_to(targets);
  constexpr int power_steps = 5, noise_steps = 10;
  const double plain_power = estimate_power(p, labels, power_steps);
  LabelNoise noise = confident_noise(p, labels);
  p = without_noise(p, noise);
  for (int round = 0; round < rounds; ++round) {
    const ClassProbabilities probable = posterior(p, labels, noise);
    for (std::size_t m = 0; m < members.size(); ++m) std::ranges::copy(probable.row(m), targets.row(members[m]).begin());
    p = fit_to(targets);
    noise = estimate_noise(p, labels, noise, 3);
  }
  const std::vector<bool> left_out = unlikely(members, p);
  Mask rest = used;
  for (std::size_t i = 0; i < train_; ++i) rest[i] = used[i] && !left_out[i];
  p = fit_to(labels_as_they_are(rest));
  const CalibratedNoise calibrated = estimate_noise_and_power(p, labels, noise, noise_steps);

  const std::vector<double> right = probably_right(tempered(p, calibrated.power), labels, calibrated.noise);
  const std::vector<bool> wrong = most_probably_wrong(right);
  Judgement result{.quality = std::vector<double>(train_, 1.0),
                   .right = std::vector<double>(train_, 1.0),
                   .other = std::vector<std::size_t>(train_),
                   .suspects = std::vector<bool>(train_),
                   .judged = judged_,
                   .noise = calibrated.noise.share,
                   .label_noise = calibrated.noise,
                   .power = calibrated.power,
                   .plain_power = plain_power};
  result.judged.resize(train_);
  for (std::size_t m = 0; m < members.size(); ++m) {
    const std::size_t i = members[m], other = best_other(p, m, labels[m]);
    result.quality[i] = p.row(m)[labels[m]];
    result.right[i] = right[m];
    result.other[i] = other;
    result.suspects[i] = wrong[m] && p.row(m)[other] > p.row(m)[labels[m]];
  }
  return result;
}

// Of the classes among the samples that are used, none of them 0.
std::vector<double> Cleaner::class_frequencies(const Mask& used) const {
  std::vector<double> share(classes_, 1);
  double all = static_cast<double>(classes_);
  for (std::size_t i = 0; i < used.size(); ++i)
    if (used[i]) share[labels_[i]] += 1, all += 1;
  for (double& s : share) s /= all;
  return share;
}

Comparison Cleaner::compare() {
  if (solutions_.empty()) judge();
  const std::size_t begin = train_ < labels_.size() ? train_ : 0, end = train_ < labels_.size() ? labels_.size() : train_;
  Comparison c;
  c.trusted = begin > 0;
  PairedMean accuracy, loss, accuracy_of_model, loss_of_model, association, association_without_suspects;
  ClassProbabilities p{classes_, std::vector<double>(classes_)};  // of one sample
  // Fits that end early remember where they started: no start may know the labels that are held out.
  const auto without_trusted = [&] {
    Mask used(labels_.size());
    std::fill_n(used.begin(), train_, true);
    count_fit();
    return fits_of_all_.fit_roughly(labels_as_they_are(used), model_.start());
  };
  const std::vector<Array> starts = c.trusted ? std::vector<Array>(folds, without_trusted()) : solutions_[0];
  for (std::size_t f = 0; f < folds; ++f) {
    const auto held_out = [&](std::size_t i) { return i >= begin && i < end && fold_[i] == f; };
    Mask used(labels_.size());
    for (std::size_t i = 0; i < used.size(); ++i) used[i] = !held_out(i);
    if (std::ranges::count(used, false) == 0) continue;
    const Array before = fit_closely(labels_as_they_are(used), starts[f]);
    Solutions nested;
    const Judgement judgement = judge_within(used, before, nested);
    Mask rest = used;
    for (std::size_t i = 0; i < train_; ++i) rest[i] = used[i] && !judgement.suspects[i];
    ClassProbabilities targets = labels_as_they_are(rest);
    keep_every_class(targets, used, no_fold);
    const Array after = fit_closely(targets, mean(nested.back()));
    // Without suspects the two models are the same, and so is what they say.
    const bool differ = std::ranges::find(judgement.suspects, true) != judgement.suspects.end();
    const LabelNoise* noise = c.trusted ? nullptr : &judgement.label_noise;
    const std::vector<double> frequencies = class_frequencies(used);
    const auto probabilities = [&](const Array& x, std::size_t i, double power) {
      write_probabilities(x, i, p.row(0));
      return c.trusted ? p : tempered(p, power);
    };
    for (std::size_t i = begin; i < end; ++i) {
      if (!held_out(i)) continue;
      ++c.samples;
      const Verdict b = verdict(probabilities(before, i, judgement.plain_power).row(0), labels_[i], nullptr);
      const Verdict a = differ ? verdict(probabilities(after, i, judgement.power).row(0), labels_[i], noise) : b;
      const Verdict without_model = verdict(frequencies, labels_[i], nullptr);
      accuracy.add(b.right, a.right), loss.add(b.loss, a.loss);
      accuracy_of_model.add(without_model.right, b.right), loss_of_model.add(without_model.loss, b.loss);
      for (const bool cleaned : {false, true}) {
        write_probabilities(cleaned ? after : before, i, p.row(0));
        (cleaned ? association_without_suspects : association).add(0, log_gain(p.row(0), labels_[i], frequencies));
      }
    }
    c.accuracy = accuracy.result(), c.loss = loss.result();
    c.accuracy_of_model = accuracy_of_model.result(), c.loss_of_model = loss_of_model.result();
    c.association = std::max(association.result(), association_without_suspects.result(), by_errors);
    if (c.is_clear()) break;
  }
  return c;
}

}  // namespace onestep::app::jobs
