// Model files to and from JSON; a file that was edited is checked member by member.
#include "jobs/model_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "jobs/coefficients.h"
#include "onestep/data.h"

namespace onestep::app::jobs {

namespace {

constexpr const char* format_name = "onestep model";
constexpr int format_version = 1;

Json list_of(const Array& a) { return std::vector<double>(a.values().begin(), a.values().end()); }

Json json_of_column(const ColumnEncoding& column) {
  Json json = {{"name", column.name}};
  if (column.levels.empty()) {
    json["mean"] = column.fill;
  } else {
    json["reference"] = column.levels[0];
    json["levels"] = column.levels;
    json["most_frequent"] = column.levels[static_cast<std::size_t>(column.fill)];
  }
  json["missing_indicator"] = column.indicator;
  return json;
}

// Whatever is wrong is thrown as Misuse that names the file.
class ModelReader {
 public:
  explicit ModelReader(const std::string& file) : file_(file) {}

  SavedModel read(const std::string& text) const {
    const Json json = parsed(text);
    if (!json.is_object() || json.value("format", Json()) != format_name)
      wrong("is not a model that onestep fit --save or onestep tune --save wrote");
    if (json.value("format_version", Json()) != format_version)
      wrong(
          fmt::format("has format {} of models, written by onestep {}; onestep {} reads format {}: fit again, or use that "
                      "version",
                      json.value("format_version", Json()).dump(), json.value("version", Json("?")).dump(), ONESTEP_VERSION,
                      format_version));
    try {
      return take(json);
    } catch (const nlohmann::json::exception&) {
      wrong(
          "is damaged: a member is missing or has another type than --save gave it; fit again, or take a copy "
          "that nobody edited");
    }
  }

 private:
  // Of a member that stands twice, which one is meant is not known.
  Json parsed(const std::string& text) const {
    std::vector<std::set<std::string>> members;
    std::string twice;
    const auto note = [&](int, Json::parse_event_t event, Json& value) {
      if (event == Json::parse_event_t::object_start) members.emplace_back();
      if (event == Json::parse_event_t::object_end) members.pop_back();
      if (event == Json::parse_event_t::key && !members.back().insert(value.get<std::string>()).second)
        twice = value.get<std::string>();
      return true;
    };
    Json json = Json::parse(text, note, false);
    require(twice.empty(), fmt::format("{} stands twice in it", twice));
    return json;
  }

  [[noreturn]] void wrong(std::string_view what) const { throw Misuse(fmt::format("{} {}", file_, what)); }
  void require(bool holds, std::string_view what) const {
    if (!holds) wrong(fmt::format("is damaged: {}; fit again, or take a copy that nobody edited", what));
  }

  std::vector<double> numbers(const Json& json, std::size_t count, std::string_view what) const {
    require(json.is_array() && json.size() == count, fmt::format("{} is not a list of {} numbers", what, count));
    for (const Json& number : json)
      require(number.is_number() && std::isfinite(number.get<double>()), fmt::format("{} has {}", what, number.dump()));
    return json.get<std::vector<double>>();
  }

  SavedModel take(const Json& json) const {
    SavedModel model;
    JobData& job = model.job;
    model.version = json.at("version");
    model.command = json.at("command");
    model.l2 = json.at("l2");
    require(json.at("samples").is_number_unsigned() && json["samples"] > 0, "it says that it was fitted to no samples");
    require(std::isfinite(model.l2) && model.l2 >= 0, "its l2 is negative");
    model.samples = json["samples"];
    job.name = json.at("file");
    job.loss = loss_called(json.at("loss"));
    require(job.loss != Loss::ridge || !json.contains("classes"), "a ridge model has no classes");
    if (job.loss != Loss::ridge) take_classes(json.at("classes"), job);
    take_input(json.at("input"), model);
    job.features = json.at("features").get<std::vector<std::string>>();
    require(!job.features.empty(), "it has no features");
    if (json.contains("places")) job.kept = json["places"].get<std::vector<std::size_t>>();
    check_places(job);
    check_names(job);
    take_coefficients(json, model);
    return model;
  }

  Loss loss_called(const std::string& name) const {
    for (const Loss loss : {Loss::logistic, Loss::ridge, Loss::softmax})
      if (name == name_of(loss)) return loss;
    require(false, fmt::format("there is no loss {}", name));
    return {};
  }

  void take_classes(const Json& json, JobData& job) const {
    job.labels = numbers(json.at("labels"), json.at("labels").size(), "labels");
    require(job.labels.size() >= 2 && std::ranges::is_sorted(job.labels, std::less_equal<>()), "its labels do not ascend");
    require(job.loss != Loss::logistic || job.labels.size() == 2, "a logistic model has two labels");
    if (json.contains("names")) job.label_names = json["names"].get<std::vector<std::string>>();
    require(job.label_names.empty() || job.label_names.size() == job.labels.size(), "there are not as many names as labels");
    require(std::set(job.label_names.begin(), job.label_names.end()).size() == job.label_names.size(),
            "two classes have one name");
  }

  void take_input(const Json& json, SavedModel& model) const {
    JobData& job = model.job;
    model.missing = json.at("missing");
    require(model.missing == "refuse" || model.missing == "drop" || model.missing == "impute",
            fmt::format("there is no way to treat missing values called {}", model.missing));
    if (json.contains("missing_texts")) model.missing_texts = json["missing_texts"].get<std::vector<std::string>>();
    job.has_names = json.at("header");
    job.first_index = json.at("first_index");
    job.target_name = json.at("target");
    job.target_column = json.at("target_column");
    for (const Json& column : json.at("columns")) {
      ColumnEncoding encoding{.name = column.at("name"), .unnamed = !job.has_names};
      encoding.indicator = column.at("missing_indicator");
      if (column.contains("levels")) {
        encoding.levels = column["levels"].get<std::vector<std::string>>();
        const auto found = std::ranges::find(encoding.levels, column.at("most_frequent").get<std::string>());
        require(found != encoding.levels.end() && column.at("reference") == encoding.levels[0],
                fmt::format("{} lacks a level", encoding.name));
        encoding.fill = static_cast<double>(found - encoding.levels.begin());
      } else {
        encoding.fill = column.at("mean");
      }
      job.encoding.push_back(std::move(encoding));
    }
  }

  // Coefficients belong to features by their order, which is that of the columns.
  void check_names(const JobData& job) const {
    const std::vector<std::string> all = feature_names(job.encoding);
    if (all.empty() || !job.has_names) return;
    for (std::size_t j = 0; j < job.features.size(); ++j) {
      const std::string& expected = all[job.kept.empty() ? j : job.kept[j]];
      require(job.features[j] == expected,
              fmt::format("its feature {} is {}, by its columns it would be {}", j + 1, job.features[j], expected));
    }
  }

  void check_places(const JobData& job) const {
    const std::size_t all = feature_names(job.encoding).size();
    if (job.kept.empty()) {
      require(job.encoding.empty() || all == job.features.size(), "its columns do not give its features");
      return;
    }
    require(job.kept.size() == job.features.size() && std::ranges::is_sorted(job.kept, std::less_equal<>()) &&
                (job.encoding.empty() || job.kept.back() < all),
            "its places are not those of its features");
  }

  void take_coefficients(const Json& json, SavedModel& model) const {
    JobData& job = model.job;
    const std::size_t n = job.features.size(), K = job.loss == Loss::softmax ? job.labels.size() : 0;
    std::vector<double> x;
    const Json& rows = json.at("coefficients");
    if (K == 0) {
      x = numbers(rows, n, "coefficients");
      x.push_back(numbers(Json::array({json.at("intercept")}), 1, "intercept")[0]);
    } else {
      require(rows.is_array() && rows.size() == n, fmt::format("coefficients is not a list of {} rows", n));
      for (const Json& row : rows)
        for (const double c : numbers(row, K, "a row of the coefficients")) x.push_back(c);
      for (const double c : numbers(json.at("intercept"), K, "intercept")) x.push_back(c);
    }
    const auto size = static_cast<std::int64_t>(n + 1);
    model.x = Array(K == 0 ? Shape{size} : Shape{size, static_cast<std::int64_t>(K)}, std::move(x));
    if (json.at("scaling").is_null()) return;
    std::vector<double> mean = numbers(json["scaling"].at("mean"), n, "mean"),
                        scale = numbers(json["scaling"].at("scale"), n, "scale");
    require(std::ranges::all_of(scale, [](double s) { return s > 0; }), "a scale is not positive");
    mean.push_back(0);
    scale.push_back(1);
    job.scaling = Scaling{Array(Shape{size}, std::move(mean)), Array(Shape{size}, std::move(scale))};
  }

  std::string file_;
};

}  // namespace

std::string text_of(const SavedModel& model) {
  const JobData& job = model.job;
  Json json = {
      {"format", format_name}, {"format_version", format_version}, {"version", model.version},  {"command", model.command},
      {"file", job.name},      {"samples", model.samples},         {"loss", name_of(job.loss)}, {"l2", model.l2}};
  if (!model.hyper.empty()) {
    Json& tuned = json["hyperparameters"] = {{"hyper", model.hyper}, {"names", Json::array()}, {"values", Json::array()}};
    for (const auto& [name, value] : model.hyperparameters) tuned["names"].push_back(name), tuned["values"].push_back(value);
  }
  if (job.loss != Loss::ridge) {
    json["classes"] = {{"labels", job.labels}};
    if (!job.label_names.empty()) json["classes"]["names"] = job.label_names;
  }
  json["input"] = {{"header", job.has_names},        {"target", job.target_name}, {"target_column", job.target_column},
                   {"first_index", job.first_index}, {"missing", model.missing},  {"columns", Json::array()}};
  if (!model.missing_texts.empty()) json["input"]["missing_texts"] = model.missing_texts;
  for (const ColumnEncoding& column : job.encoding) json["input"]["columns"].push_back(json_of_column(column));
  json["features"] = job.features;
  if (!job.kept.empty()) json["places"] = job.kept;
  const std::int64_t K = job.loss == Loss::softmax ? model.x.shape()[1] : 0;
  const auto n = job.features.size();
  const std::size_t split = n * static_cast<std::size_t>(std::max<std::int64_t>(1, K));
  json["scaling"] = Json();
  if (job.scaling) {
    Json mean = list_of(job.scaling->mean), scale = list_of(job.scaling->scale);
    mean.erase(n);
    scale.erase(n);
    json["scaling"] = {{"mean", mean}, {"scale", scale}};
  }
  json["coefficients"] = rows_to_json(model.x.values().first(split), K);
  json["intercept"] = K > 0 ? rows_to_json(model.x.values().subspan(split), 0) : Json(model.x.values().back());
  return to_text(json);
}

SavedModel model_from(const std::string& text, const std::string& file) { return ModelReader(file).read(text); }

SavedModel read_model(const std::string& file) {
  constexpr std::size_t largest = std::size_t{1} << 30;
  try {
    return model_from(read_text(file, largest), file);
  } catch (const FileError& wrong) { throw Misuse(wrong.problem); }
}

void write_model(const SavedModel& model, const std::string& file) { write_file(file, text_of(model)); }

}  // namespace onestep::app::jobs
