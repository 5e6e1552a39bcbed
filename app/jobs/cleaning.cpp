// Nested fits on sets of folds, judgements of labels by them, and the comparison of models without the suspects.
#include "jobs/cleaning.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

#include "jobs/folds.h"

namespace onestep::app::jobs {

namespace {

constexpr std::size_t folds = 5;
constexpr int fits_planned = 42;  // without three folds 10, without two 10 and 10, without one 5 and 5, of all 2

using FoldSet = unsigned;  // a bit for each fold

bool contains(FoldSet set, std::size_t fold) { return fold < folds && (set >> fold & 1U) != 0; }

std::vector<FoldSet> sets_of(int size) {
  std::vector<FoldSet> all;
  for (FoldSet set = 0; set < FoldSet{1} << folds; ++set)
    if (std::popcount(set) == size) all.push_back(set);
  return all;
}

Array mean(const std::vector<Array>& all) {
  std::vector<double> entries(all[0].values().size());
  for (const Array& a : all)
    for (std::size_t u = 0; u < entries.size(); ++u) entries[u] += a.values()[u] / static_cast<double>(all.size());
  return {all[0].shape(), std::move(entries)};
}

LabelNoise mean(const std::vector<LabelNoise>& all) {
  LabelNoise result = even_noise(all[0].classes, 0);
  std::ranges::fill(result.given, 0.0), result.share = 0;
  const auto count = static_cast<double>(all.size());
  for (const LabelNoise& noise : all) {
    for (std::size_t u = 0; u < noise.given.size(); ++u) result.given[u] += noise.given[u] / count;
    result.share += noise.share / count;
  }
  return result;
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
}

Array Cleaner::fit_without(const std::vector<bool>& left_out) {
  Mask used(labels_.size(), true);
  for (std::size_t i = 0; i < train_; ++i) used[i] = !left_out[i];
  ClassProbabilities targets = labels_as_they_are(used);
  keep_every_class(targets, Mask(labels_.size(), true));
  count_fit();
  const bool leaves_out = std::ranges::find(left_out, true) != left_out.end();
  std::vector<Array> starts;
  for (const auto& [held_out, fold] : one_fold_) starts.push_back(leaves_out ? fold.after : plain_.at(held_out));
  return fits_of_all_.fit(targets, mean(starts));
}

void Cleaner::count_fit() {
  ++fits_;
  progress_.show([&] { return fmt::format("clean: fit {} of about {}", fits_, fits_planned); });
}

ClassProbabilities Cleaner::labels_as_they_are(const Mask& used) const {
  ClassProbabilities targets{classes_, std::vector<double>(labels_.size() * classes_)};
  for (std::size_t i = 0; i < labels_.size(); ++i) targets.row(i)[labels_[i]] = used[i] ? 1 : 0;
  return targets;
}

// Samples whose label another one exceeds in probability, the least probable half of a class at most: of a rare class that
// is hard to tell, most samples are not.
Cleaner::Mask Cleaner::unlikely(const std::vector<std::size_t>& members, const ClassProbabilities& p) const {
  std::vector<std::vector<std::size_t>> of_class(classes_);
  for (std::size_t m = 0; m < members.size(); ++m) of_class[labels_[members[m]]].push_back(m);
  Mask result(train_);
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
void Cleaner::keep_every_class(ClassProbabilities& targets, const Mask& allowed) const {
  std::vector<double> weight(classes_);
  for (std::size_t i = 0; i < labels_.size(); ++i)
    for (std::size_t k = 0; k < classes_; ++k) weight[k] += targets.row(i)[k];
  for (std::size_t i = 0; i < labels_.size(); ++i)
    if (allowed[i] && weight[labels_[i]] <= 0) targets.row(i)[labels_[i]] = 1;
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

Array Cleaner::fit_without_folds(FoldSet held_out, const Mask& used, const Array& start, Precision precision) {
  Mask trained(labels_.size()), rest(labels_.size());
  for (std::size_t i = 0; i < labels_.size(); ++i)
    rest[i] = !contains(held_out, fold_[i]), trained[i] = rest[i] && (i >= train_ || used[i]);
  ClassProbabilities targets = labels_as_they_are(trained);
  keep_every_class(targets, rest);
  count_fit();
  return precision == Precision::close ? fits_of_all_.fit_closely(targets, start) : fits_of_all_.fit_roughly(targets, start);
}

// By all fits without the fold, those without others as well: a mean varies less.
void Cleaner::write_mean_probabilities(const Solutions& solutions, FoldSet fold, std::size_t sample,
                                       std::span<double> to) const {
  std::vector<double> sum(classes_);
  double count = 0;
  for (const auto& [held_out, x] : solutions) {
    if ((held_out & fold) == 0) continue;
    write_probabilities(x, sample, to);
    for (std::size_t k = 0; k < classes_; ++k) sum[k] += to[k];
    count += 1;
  }
  for (std::size_t k = 0; k < classes_; ++k) to[k] = sum[k] / count;
}

Cleaner::Unseen Cleaner::unseen(FoldSet held_out, const Solutions& solutions) const {
  Unseen result;
  for (std::size_t i = 0; i < train_; ++i)
    if (judged_[i] && !contains(held_out, fold_[i])) result.members.push_back(i), result.labels.push_back(labels_[i]);
  result.p = {classes_, std::vector<double>(result.members.size() * classes_)};
  for (std::size_t m = 0; m < result.members.size(); ++m) {
    const std::size_t i = result.members[m];
    write_probabilities(solutions.at(held_out | FoldSet{1} << fold_[i]), i, result.p.row(m));
  }
  return result;
}

Judgement Cleaner::judgement_of(const Unseen& unseen, const LabelNoise& guess) const {
  const ClassProbabilities& p = unseen.p;
  constexpr int first_steps = 3, noise_steps = 10;
  const CalibratedNoise calibrated =
      estimate_noise_and_power(p, unseen.labels, estimate_noise(p, unseen.labels, guess, first_steps), noise_steps);
  const std::vector<double> right = probably_right(tempered(p, calibrated.power), unseen.labels, calibrated.noise);
  const std::vector<bool> wrong = most_probably_wrong(right);
  Judgement result{.quality = std::vector<double>(train_, 1.0),
                   .right = std::vector<double>(train_, 1.0),
                   .other = std::vector<std::size_t>(train_),
                   .suspects = Mask(train_),
                   .judged = Mask(judged_.begin(), judged_.begin() + static_cast<std::ptrdiff_t>(train_)),
                   .noise = calibrated.noise.share,
                   .label_noise = calibrated.noise,
                   .power = calibrated.power};
  for (std::size_t m = 0; m < unseen.members.size(); ++m) {
    const std::size_t i = unseen.members[m], label = unseen.labels[m], other = best_other(p, m, label);
    result.quality[i] = p.row(m)[label];
    result.right[i] = right[m];
    result.other[i] = other;
    result.suspects[i] = wrong[m] && p.row(m)[other] > p.row(m)[label];
  }
  return result;
}

// A fit is judged by, and starts at, nothing but fits that leave out its folds, too.
Judgement Cleaner::judge() {
  plain_.clear(), without_unlikely_.clear(), one_fold_.clear();
  const Mask everything(train_, true);
  for (int size = 3; size >= 1; --size)
    for (const FoldSet held_out : sets_of(size)) {
      std::vector<Array> known;
      for (std::size_t f = 0; f < folds && size < 3; ++f)
        if (!contains(held_out, f)) known.push_back(plain_.at(held_out | FoldSet{1} << f));
      plain_[held_out] = fit_without_folds(held_out, everything, known.empty() ? model_.start() : mean(known),
                                           size == 1 ? Precision::close : Precision::rough);
    }
  std::map<FoldSet, LabelNoise> guesses;
  for (const FoldSet held_out : sets_of(2)) {
    const Unseen judged = unseen(held_out, plain_);
    const LabelNoise noise = guesses[held_out] = confident_noise(judged.p, judged.labels);
    Mask used = unlikely(judged.members, without_noise(judged.p, noise));
    used.flip();
    without_unlikely_[held_out] = fit_without_folds(held_out, used, plain_.at(held_out), Precision::rough);
  }
  std::vector<LabelNoise> found;
  Solutions after;
  for (const FoldSet held_out : sets_of(1)) {
    std::vector<LabelNoise> of_pairs;
    for (const auto& [pair, noise] : guesses)
      if ((pair & held_out) != 0) of_pairs.push_back(noise);
    OneFold& fold = one_fold_[held_out];
    fold.judgement = judgement_of(unseen(held_out, without_unlikely_), mean(of_pairs));
    const Unseen plain = unseen(held_out, plain_);
    constexpr int power_steps = 5;
    fold.judgement.plain_power = estimate_power(plain.p, plain.labels, power_steps);
    Mask used = fold.judgement.suspects;
    used.flip();
    fold.after = after[held_out] = fit_without_folds(held_out, used, plain_.at(held_out), Precision::close);
    found.push_back(fold.judgement.label_noise);
  }
  without_unlikely_.insert(after.begin(), after.end());
  return judgement_of(unseen(0, after), mean(found));
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
  if (one_fold_.empty()) judge();
  const std::size_t begin = train_ < labels_.size() ? train_ : 0, end = train_ < labels_.size() ? labels_.size() : train_;
  Comparison c;
  c.trusted = begin > 0;
  PairedMean accuracy, loss, accuracy_of_model, loss_of_model, association, association_without_suspects;
  ClassProbabilities p{classes_, std::vector<double>(classes_)};  // of one sample
  for (std::size_t f = 0; f < folds; ++f) {
    const auto held_out = [&](std::size_t i) { return i >= begin && i < end && fold_[i] == f; };
    Mask used(labels_.size());
    for (std::size_t i = 0; i < used.size(); ++i) used[i] = !held_out(i);
    if (std::ranges::count(used, false) == 0) continue;
    const FoldSet fold = FoldSet{1} << f;
    const auto& [judgement, after] = one_fold_.at(fold);
    const Array& before = plain_.at(fold);
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
      write_mean_probabilities(plain_, fold, i, p.row(0));
      association.add(0, log_gain(p.row(0), labels_[i], frequencies));
      write_mean_probabilities(without_unlikely_, fold, i, p.row(0));
      association_without_suspects.add(0, log_gain(p.row(0), labels_[i], frequencies));
    }
    c.accuracy = accuracy.result(), c.loss = loss.result();
    c.accuracy_of_model = accuracy_of_model.result(), c.loss_of_model = loss_of_model.result();
    c.association = std::max(association.result(), association_without_suspects.result(), by_errors);
  }
  return c;
}

}  // namespace onestep::app::jobs
