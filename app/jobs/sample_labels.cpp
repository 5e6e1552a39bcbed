// Tells classes from quantities, and checks other samples against the labels of training.
#include "jobs/sample_labels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace onestep::app::jobs {

namespace {

bool is_whole(double label) { return label == std::floor(label) && std::fabs(label) < 1e15; }

// What whole numbers look like: two are classes, and so are a few that count up from -1, 0 or 1 without a gap; anything else
// is a quantity, such as marks from 3 to 8. Which of the two was guessed is noted where it could have been the other.
Loss loss_of(const Array& y, std::vector<std::string>& notes) {
  constexpr std::size_t most_classes = 10, most_noted = 30;
  std::set<double> found;
  for (const double label : y.values())
    if (found.size() <= most_noted) found.insert(label);
  if (!std::ranges::all_of(found, is_whole)) return Loss::ridge;
  if (found.size() <= 2) return Loss::logistic;
  const double first = *found.begin(), last = *found.rbegin();
  const bool gaps = last - first != static_cast<double>(found.size() - 1);
  const bool classes = found.size() <= most_classes && !gaps && first >= -1 && first <= 1;
  if (found.size() <= most_noted)
    notes.push_back(fmt::format("the target has {} whole numbers from {} to {}{}: {}", found.size(), first, last,
                                gaps ? " with gaps" : "",
                                classes ? "taken for classes; if they are a quantity: --loss ridge"
                                        : "taken for a quantity; if they are classes: --loss softmax"));
  return classes ? Loss::softmax : Loss::ridge;
}

}  // namespace

Loss chosen_loss(const JobOptions& options, const Dataset& train, std::vector<std::string>& notes) {
  if (options.loss == "logistic") return Loss::logistic;
  if (options.loss == "ridge") return Loss::ridge;
  if (options.loss == "softmax") return Loss::softmax;
  if (!train.label_names.empty()) return train.label_names.size() <= 2 ? Loss::logistic : Loss::softmax;
  return loss_of(train.y, notes);
}

void find_labels(JobData& job, const Dataset& train) {
  if (job.loss == Loss::ridge) {
    if (!train.label_names.empty())
      throw Misuse(
          fmt::format("{}: --loss ridge needs a quantity, the labels are names such as {}; name another column (--target "
                      "COLUMN), or take --loss softmax",
                      job.name, train.label_names.front()));
    return;
  }
  const std::span<const double> y = train.y.values();
  if (const auto odd = std::ranges::find_if_not(y, is_whole); odd != y.end())
    throw Misuse(fmt::format("{}: --loss {} needs classes, but the label of sample {} is {}; a quantity takes --loss ridge",
                             job.name, name_of(job.loss), odd - y.begin() + 1, *odd));
  constexpr std::size_t most_classes = 1000;
  if (const std::set<double> found(y.begin(), y.end()); found.size() > most_classes)
    throw Misuse(
        fmt::format("{}: {} different labels are too many to be classes, of which there may be {}; a quantity "
                    "takes --loss ridge",
                    job.name, found.size(), most_classes));
  job.labels = classes_of(train.y).values;
  if (!train.label_names.empty()) job.label_names = train.label_names;
  if (job.labels.size() < 2)
    throw Misuse(
        fmt::format("{}: all samples have the label {}, and there is nothing to tell apart; name the column of the labels "
                    "(--target COLUMN), or add samples with another label",
                    job.name, job.label_names.empty() ? fmt::format("{}", job.labels[0]) : job.label_names[0]));
  if (job.loss == Loss::logistic && job.labels.size() > 2)
    throw Misuse(
        fmt::format("{}: --loss logistic needs two labels, there are {}; try --loss softmax", job.name, job.labels.size()));
}

// Labels that training has, numbers or names as there.
void check_labels(const Dataset& other, const std::string& file, const JobData& job) {
  if (job.label_names.empty() && !other.label_names.empty())
    throw Misuse(fmt::format("{} has names for labels, such as {}, {} has numbers; write them in the same way in both", file,
                             other.label_names.front(), job.name));
  if (job.loss == Loss::ridge) return;
  for (std::size_t i = 0; i < other.y.values().size(); ++i) {
    const double label = other.y.values()[i];
    if (!std::ranges::binary_search(job.labels, label))
      throw Misuse(
          fmt::format("{}: the label of sample {} is {}, which no sample of {} has; correct it, leave the sample out, "
                      "or learn from samples that have it",
                      file, i + 1, label, job.name));
  }
}

std::size_t JobData::class_of(double y) const {
  if (loss == Loss::ridge) return 0;
  return loss == Loss::logistic ? (y > 0 ? 1U : 0U) : static_cast<std::size_t>(y);
}
double JobData::y_of(std::size_t k) const { return loss == Loss::logistic ? (k == 0 ? -1.0 : 1.0) : static_cast<double>(k); }

double JobData::label(double y) const { return loss == Loss::ridge ? y : labels[class_of(y)]; }

// All digits: labels are told apart by them.
std::string JobData::label_text(double y) const {
  return label_names.empty() ? fmt::format("{}", label(y)) : label_names[class_of(y)];
}

}  // namespace onestep::app::jobs
