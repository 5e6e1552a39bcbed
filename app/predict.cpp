// onestep predict MODEL FILE: what a model that fit saved says of other samples.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "jobs/memory.h"
#include "jobs/model_file.h"
#include "jobs/report.h"
#include "jobs/sample_files.h"
#include "jobs/scores.h"
#include "page/text.h"
#include "verbs.h"

namespace onestep::app {

namespace {

using namespace jobs;

struct PredictOptions : JobOptions {
  std::string model, csv;
};

class Prediction {
 public:
  Prediction(const PredictOptions& options, Progress& progress) : options_(options), model_(read_model(options.model)) {
    progress.enter("reading");
    read();
    progress.enter("prediction");
    prediction_ = linear_prediction(samples_.A, model_.x);
    require_finite(job(), samples_, model_.x, prediction_, options_.file);
    if (is_class()) {
      probabilities_ = class_probabilities(job().loss, prediction_);
      likeliest_ = likeliest_classes(job().loss, prediction_);
    }
    score();
  }

  int show(Progress& progress) const {
    progress.clear();
    const std::string table = wants_table() ? csv_text() : "";
    if (!options_.csv.empty()) write_file(options_.csv, table);
    const Json document = document_of(options_, {.status = "done", .notes = notes_}, json());
    if (!options_.out.empty()) {
      write_file(options_, "predictions.csv", table);
      write_file(options_, "predict.json", to_text(document));
    }
    if (options_.csv == "-") {
      for (const std::string& note : notes_) fmt::print(stderr, "onestep: note: {}\n", note);
    } else {
      print(options_.json ? to_text(document) : text());
    }
    return done;
  }

 private:
  const JobData& job() const { return model_.job; }
  bool wants_table() const { return !options_.csv.empty() || !options_.out.empty(); }
  bool is_class() const { return job().loss != Loss::ridge; }

  // ---- samples ----

  void read() {
    DatasetOptions how = reading_options(options_);
    how.missing = model_.missing == "drop"     ? CsvOptions::drop_sample
                  : model_.missing == "impute" ? CsvOptions::impute
                                               : CsvOptions::refuse;
    how.missing_texts = model_.missing_texts;
    how.label_names = job().label_names;
    how.target_name = job().target_name;
    how.encoding = job().encoding;
    how.target_optional = true;
    if (job().first_index == 0) how.first_index = 0;
    if (!job().has_names && job().target_column > 0) how.target = std::to_string(job().target_column);
    Dataset set;
    try {
      set = read_dataset(options_.file, how);
    } catch (const FileError& wrong) { throw Misuse(in_words_of_the_command(wrong, options_.verb)); }
    check(set);
    for (const std::string& note : set.notes) notes_.push_back(note);
    in_file_ = std::max(set.in_file, static_cast<std::size_t>(set.A.shape()[0]));
    const Sizes sizes{static_cast<double>(set.A.shape()[0]), static_cast<double>(set.A.shape()[1]),
                      static_cast<double>(job().labels.size())};
    memory_needed_ = require_memory(
        options_, short_name(options_.file),
        needs_of_predict(job().scaling.has_value(), options_.json || !options_.out.empty(), wants_table()), sizes);
    labels_ = std::move(set.y);
    unknown_labels_ = std::move(set.unknown_labels);
    set.y = Array(Shape{0}, {});
    samples_ = samples_of(set, job());
  }

  void check(const Dataset& set) {
    const std::string file = short_name(options_.file);
    if (job().has_names && !set.encoding.empty() && set.names.empty())
      throw Misuse(fmt::format("{} has no header; the model knows its features by their names: {}", file,
                               some_names(job().features)));
    if (job().encoding.empty() != set.encoding.empty())
      throw Misuse(fmt::format("{} is {}, but the model was learned from {}, which is {}", file, kind(set.encoding.empty()),
                               job().name, kind(job().encoding.empty())));
    if (set.first_index < job().first_index)
      throw Misuse(fmt::format("{} has an index 0, {} had none: indices start at 0 in one of them and at 1 in the other",
                               file, job().name));
    if (!set.left_out.empty())
      notes_.push_back(fmt::format("columns that the model does not know are left out: {}", some_names(set.left_out)));
    const auto n = static_cast<std::size_t>(set.A.shape()[1]), known = job().features.size() + job().left_out.size();
    if (job().encoding.empty() && job().kept.empty() && n != known) {
      if (!set.open_ended)
        throw Misuse(fmt::format("{} has {} features, the model {}; give samples of the kind that it learned from, {}", file,
                                 n, known, job().name));
      notes_.push_back(fmt::format("{} has {} features, the model {}: {}", file, n, known,
                                   n > known ? "the model does not know the last ones" : "zero stands for the last ones"));
    }
  }
  static const char* kind(bool no_columns) { return no_columns ? "in LIBSVM's format or IDX" : "CSV"; }

  // ---- scores, of the samples that have labels ----

  void score() {
    std::vector<std::size_t> labelled;
    std::vector<double> y;
    const std::span<const double> labels = labels_.values();
    if (!unknown_labels_.empty()) return refuse_to_score(some_names(unknown_labels_));
    for (std::size_t i = 0; i < labels.size(); ++i) {
      if (std::isnan(labels[i])) continue;
      if (is_class() && !std::ranges::binary_search(job().labels, labels[i]))
        return refuse_to_score(fmt::format("{} of sample {}", exact(labels[i]), samples_.rows[i]));
      labelled.push_back(i);
      const auto place = std::ranges::lower_bound(job().labels, labels[i]) - job().labels.begin();
      y.push_back(is_class() ? job().y_of(static_cast<std::size_t>(place)) : labels[i]);
    }
    if (labels.size() > y.size())
      notes_.push_back(fmt::format("{} of {} samples {} the target, and {} not scored", labels.size() - y.size(),
                                   labels.size(), labels.size() - y.size() == 1 ? "lacks" : "lack",
                                   labels.size() - y.size() == 1 ? "is" : "are"));
    if (y.empty()) return;
    const std::size_t K = prediction_.values().size() / static_cast<std::size_t>(samples_.count());
    std::vector<double> z;
    for (const std::size_t i : labelled)
      for (std::size_t k = 0; k < K; ++k) z.push_back(prediction_.values()[i * K + k]);
    const auto count = static_cast<std::int64_t>(y.size());
    const Array scored(job().loss == Loss::softmax ? Shape{count, static_cast<std::int64_t>(K)} : Shape{count},
                       std::move(z));
    scores_ = NamedScores{fmt::format("{}", short_name(options_.file)), scores_of(job(), scored, Array(Shape{count}, y))};
  }

  // Which class of the file would be which of the model is not known.
  void refuse_to_score(const std::string& such_as) {
    std::vector<std::string> known;
    for (std::size_t k = 0; k < classes(); ++k) known.push_back(job().label_text(job().y_of(k)));
    const std::string target = job().target_name.empty() ? "" : fmt::format(" in {}", job().target_name);
    notes_.push_back(
        is_class()
            ? fmt::format("predictions were not scored: the labels of {}{} are not those of the model, {}, but such as {}",
                          short_name(options_.file), target, some_names(known), such_as)
            : fmt::format("predictions were not scored: the model predicts a quantity, and {} has texts{} such as {}",
                          short_name(options_.file), target, such_as));
  }

  // ---- what is said ----

  std::string label(std::size_t i) const { return job().label_text(job().y_of(likeliest_[i])); }
  std::size_t classes() const { return job().labels.size(); }

  std::string csv_text() const {
    std::vector<std::string> fields{"sample", is_class() ? "label" : "prediction"};
    for (std::size_t k = 0; k < classes(); ++k) fields.push_back("probability of " + job().label_text(job().y_of(k)));
    CsvTable table(fields);
    std::size_t i = 0;
    for (std::size_t row = 1; row <= in_file_; ++row) {
      fields.assign(fields.size(), "");  // of a sample that lacks a value
      fields[0] = std::to_string(row);
      if (i < samples_.rows.size() && samples_.rows[i] == row) {
        fields[1] = is_class() ? label(i) : exact(prediction_.values()[i]);
        for (std::size_t k = 0; k < classes(); ++k) fields[2 + k] = exact(probabilities_.values()[i * classes() + k]);
        ++i;
      }
      table.add(fields);
    }
    return table.text();
  }

  Json json() const {
    Json json = {{"file", short_name(options_.file)},
                 {"model", {{"file", options_.model}, {"version", model_.version}, {"command", model_.command}}},
                 {"loss", name_of(job().loss)},
                 {"samples", in_file_},
                 {"memory_needed", static_cast<std::int64_t>(memory_needed_)},
                 {"sample", samples_.rows}};
    if (scores_) json["scores"] = json_of(job(), scores_->scores);
    if (!is_class()) {
      json["prediction"] = std::vector<double>(prediction_.values().begin(), prediction_.values().end());
      return json;
    }
    json["labels"] = Json::array();
    for (std::size_t k = 0; k < classes(); ++k) json["labels"].push_back(label_json(job(), job().y_of(k)));
    json["label"] = Json::array();
    json["probabilities"] = Json::array();
    for (std::size_t i = 0; i < likeliest_.size(); ++i) {
      json["label"].push_back(label_json(job(), job().y_of(likeliest_[i])));
      const auto row = probabilities_.values().subspan(i * classes(), classes());
      json["probabilities"].push_back(std::vector<double>(row.begin(), row.end()));
    }
    return json;
  }

  std::string text() const {
    constexpr std::size_t most = 10;
    std::string text = fmt::format("{}: {} by the {} model of {}, which learned from {}\n", short_name(options_.file),
                                   counted(static_cast<std::int64_t>(in_file_), "sample"), name_of(job().loss), job().name,
                                   counted(static_cast<std::int64_t>(model_.samples), "sample"));
    for (const std::string& note : notes_) text += fmt::format("Note: {}.\n", printable(note));
    page::Table table{.id = "predictions", .title = "Predictions", .caption = "", .columns = {"sample"}};
    const std::size_t count = std::min(most, samples_.rows.size());
    if (count < samples_.rows.size()) table.title = fmt::format("Predictions, the first {}; --csv FILE writes all", count);
    table.columns.emplace_back(is_class() ? "label" : "prediction");
    if (is_class()) table.columns.emplace_back("its probability");
    for (std::size_t i = 0; i < count; ++i) {
      table.rows.push_back({std::to_string(samples_.rows[i])});
      if (is_class())
        table.rows.back().insert(table.rows.back().end(),
                                 {label(i), fmt::format("{:.4f}", probabilities_.values()[i * classes() + likeliest_[i]])});
      else
        table.rows.back().push_back(shown(prediction_.values()[i]));
    }
    text += "\n" + page::text_of(table);
    if (!scores_) return text;
    text += "\n" + page::text_of(score_table(job(), {*scores_}));
    if (is_class())
      if (const auto confusion = confusion_table(job(), *scores_)) text += "\n" + page::text_of(*confusion);
    return text;
  }

  const PredictOptions& options_;
  SavedModel model_;
  Samples samples_;
  std::size_t in_file_ = 0;
  double memory_needed_ = 0;
  Array labels_, prediction_, probabilities_;
  std::vector<std::string> unknown_labels_;
  std::vector<std::size_t> likeliest_;
  std::optional<NamedScores> scores_;
  std::vector<std::string> notes_;
};

int run_predict(const PredictOptions& options) {
  if (options.json && options.csv == "-")
    throw Misuse("--json and --csv - both want standard output; name a file for --csv");
  Progress progress(options);
  return Prediction(options, progress).show(progress);
}

}  // namespace

void add_predict(CommandLine& line) {
  auto options = std::make_shared<PredictOptions>();
  std::vector<Option> rows{
      {.name = "MODEL",
       .to = &options->model,
       .help = "the file that onestep fit --save or onestep tune --save wrote",
       .required = true,
       .takes = Takes::input_file},
      {.name = "FILE",
       .to = &options->file,
       .help =
           "samples as those that the model learned from: columns of a CSV file\nare found by their names, and it need not "
           "have the target, which is\nscored if it has; - for standard input",
       .required = true,
       .takes = Takes::input_file},
      {.name = "--csv",
       .to = &options->csv,
       .type = "FILE",
       .help = "write predictions and probabilities as CSV; - for standard output",
       .takes = Takes::output_file},
      {.name = "--memory",
       .to = &options->memory,
       .type = "GIB",
       .help = "refuse files that need more (default 4)",
       .takes = Takes::positive}};
  for (Option& row : csv_options(*options)) rows.push_back(std::move(row));
  line.add({.name = "predict",
            .job = "Predict labels, probabilities or a quantity with a model that fit saved.",
            .example = "onestep predict model.json new.csv --csv predictions.csv",
            .common = *options,
            .options = std::move(rows),
            .work = [options] { return run_predict(*options); },
            .files_of_out = {"predict.json", "predictions.csv"},
            .out_help = "write predict.json and predictions.csv into this folder, which is\nmade if needed"});
}

}  // namespace onestep::app
