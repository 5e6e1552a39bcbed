// Sentences, a table and JSON of the comparison with and without the suspects.
#include "jobs/clean_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace onestep::app::jobs {

namespace {

std::string held_out(const Comparison& c) {
  return c.trusted ? fmt::format("{} held-out samples with trusted labels", c.samples)
                   : fmt::format("{} held-out samples, judged by their labels as they are", c.samples);
}

std::string compared_text(const Comparison& c) {
  return fmt::format(
      "on {}, the model without the suspects has a loss of {:.4f} instead of {:.4f} (standard error of the difference "
      "{:.4f}) and an accuracy of {:.4f} instead of {:.4f} (standard error {:.4f})",
      held_out(c), c.loss.after, c.loss.before, c.loss.standard_error, c.accuracy.after, c.accuracy.before,
      c.accuracy.standard_error);
}

Json pair_json(const BeforeAndAfter& b) {
  return {{"before", b.before}, {"after", b.after}, {"difference", b.difference()}, {"standard_error", b.standard_error}};
}

}  // namespace

std::string undecided_sentence(const Comparison& c) {
  return fmt::format(
      "Nothing can be said about the labels: on {}, the model does not predict them better than the class frequencies do. "
      "Its accuracy is {:.4f}, that of the most frequent class {:.4f} (standard error of the difference {:.4f}); it finds "
      "labels more probable than labels drawn at random by {:.4f} (standard error {:.4f}, of which {} are asked for). All "
      "samples are kept. Other features, more samples or another --l2 may help.",
      held_out(c), c.accuracy_of_model.after, c.accuracy_of_model.before, c.accuracy_of_model.standard_error,
      c.association.after, c.association.standard_error, Comparison::enough_errors);
}

std::string suspects_sentence(const Comparison& c, std::size_t suspects, std::size_t samples, bool removed) {
  const std::string counted =
      fmt::format("{} of {} samples {}", suspects, samples, suspects == 1 ? "is a suspect" : "are suspects");
  const std::string advice =
      c.trusted
          ? ""
          : " The labels they are judged by may be wrong themselves: where labels of one class are wrong more often than "
            "those of another, this comparison cannot see that cleaning helps. Give samples with trusted labels (--valid "
            "FILE), or look at the suspects";
  if (removed && c.helps())
    return fmt::format("{}, for which another label is more probable, and {} removed: {}.", counted,
                       suspects == 1 ? "is" : "are", compared_text(c));
  if (removed)
    return fmt::format(
        "{}, for which another label is more probable, and {} removed as --remove-suspects asks, although cleaning "
        "{} here: {}.{}{}",
        counted, suspects == 1 ? "is" : "are", c.verdict(), compared_text(c), advice, c.trusted ? "" : ".");
  if (c.trusted)
    return fmt::format("Cleaning {} here, and all samples are kept: {}. {}, worth a look at most.", c.verdict(),
                       compared_text(c), counted);
  return fmt::format(
      "{}, for which another label is more probable. Cleaning {} here, and all samples are kept: {}.{} and leave "
      "them out yourself (--remove-suspects with --cleaned FILE).",
      counted, c.verdict(), compared_text(c), advice);
}

Json comparison_json(const Comparison& c, bool has_suspects) {
  Json json = {{"samples", c.samples},
               {"labels", c.trusted ? "trusted" : "as they are"},
               {"class_frequencies",
                {{"accuracy", pair_json(c.accuracy_of_model)},
                 {"loss", pair_json(c.loss_of_model)},
                 {"association", c.association.after},
                 {"association_error", c.association.standard_error}}},
               {"helps", has_suspects && c.helps()}};
  if (has_suspects) json["verdict"] = c.verdict();
  if (has_suspects) json.update({{"accuracy", pair_json(c.accuracy)}, {"loss", pair_json(c.loss)}});
  return json;
}

page::Table comparison_table(const Comparison& c, bool has_suspects) {
  const auto row = [](const std::string& name, double loss, double accuracy) -> std::vector<std::string> {
    return {name, fmt::format("{:.4f}", loss), fmt::format("{:.4f}", accuracy)};
  };
  page::Table t{
      .id = "scores",
      .title = fmt::format("Scores on {} samples that no model saw", c.samples),
      .caption = "In five folds, each scored by models whose fits and suspects no label of the fold had a part in.",
      .columns = {"trained on", "loss", "accuracy"},
      .rows = {row("class frequencies alone", c.loss_of_model.before, c.accuracy_of_model.before),
               row("all samples as they are", c.loss.before, c.accuracy.before)}};
  if (!has_suspects) {
    t.rows.push_back(
        row("standard error of the difference", c.loss_of_model.standard_error, c.accuracy_of_model.standard_error));
    return t;
  }
  t.rows.push_back(row("all but the suspects", c.loss.after, c.accuracy.after));
  t.rows.push_back(row("standard error of the last difference", c.loss.standard_error, c.accuracy.standard_error));
  return t;
}

}  // namespace onestep::app::jobs
