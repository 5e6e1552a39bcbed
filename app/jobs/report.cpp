#include "jobs/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

namespace onestep::app::jobs {

namespace {

// Columns that begin with digits are set to the right, as on the page.
std::string text_of(const paper::Table& table) {
  std::vector<std::size_t> widths;
  for (const std::string& column : table.columns) widths.push_back(column.size());
  for (const auto& row : table.rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text = fmt::format("{}\n", table.title);
  const auto append = [&](const std::vector<std::string>& row) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i)
      line += i == 0 ? fmt::format("  {:<{}}", row[i], widths[i]) : fmt::format("  {:>{}}", row[i], widths[i]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  };
  append(table.columns);
  for (const auto& row : table.rows) append(row);
  return text;
}

std::string text_of(const Report& report) {
  std::string text = fmt::format("{}\n{}\n", report.asked, report.sentence);
  for (const paper::Table& table : report.tables) text += fmt::format("\n{}", text_of(table));
  if (!report.accuracy.empty()) text += "\n";
  for (const std::string& line : report.accuracy) text += line + "\n";
  return text;
}

}  // namespace

Json description(const JobData& job) {
  Json result = {{"file", job.name},
                 {"loss", name_of(job.loss)},
                 {"samples", job.train.count()},
                 {"features", job.n()},
                 {"standardised", job.scaling.has_value()}};
  if (job.loss != Loss::ridge) result["labels"] = job.labels;
  return result;
}

std::string description_text(const JobData& job) {
  std::string text = fmt::format("{}: {} samples, {} features", job.name, job.train.count(), job.n());
  if (job.loss == Loss::softmax) text += fmt::format(", {} classes", job.labels.size());
  return text;
}

std::string text_of(const Certificate& certificate) {
  std::ostringstream text;
  text << certificate;
  return text.str();
}

Json json_of(const Certificate& certificate) { return Json::parse(certificate.json()); }

int show(const JobOptions& options, const Report& report, Status status) {
  Json document = report.document;
  document["command"] = options.command;
  document["seed"] = options.seed;
  const std::string text = to_text(document);
  if (!options.out.empty()) write_file(options, report.verb + ".json", text);
  print(options.json ? text : text_of(report));
  if (stop_signal() != 0) return 128 + stop_signal();
  return is_solution(status) ? done : failed;
}

}  // namespace onestep::app::jobs
