#include "jobs/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "jobs/page.h"
#include "page/folder.h"
#include "page/machine.h"
#include "page/text.h"

namespace onestep::app::jobs {

namespace {

std::string text_of(const Report& report) {
  std::string text = fmt::format("{}\n", report.asked);
  if (report.document.contains("notes"))
    for (const Json& note : report.document["notes"]) text += fmt::format("Note: {}.\n", note.get<std::string>());
  text += report.sentence + "\n";
  for (const page::Table& table : report.tables) text += fmt::format("\n{}", page::text_of(table));
  if (!report.accuracy.empty()) text += "\n";
  for (const std::string& line : report.accuracy) text += line + "\n";
  return text;
}

}  // namespace

Json description(const JobData& job) {
  Json result = {{"file", job.name},    {"loss", name_of(job.loss)},        {"samples", job.train.count()},
                 {"features", job.n()}, {"standardised", job.standardised}, {"notes", job.notes}};
  if (!job.target_name.empty()) result["target"] = job.target_name;
  if (!job.left_out.empty()) {
    result["left_out"] = Json::array();
    for (const auto& [name, why] : job.left_out) result["left_out"].push_back({{"name", name}, {"why", why}});
  }
  if (job.loss != Loss::ridge) result["labels"] = job.labels;
  if (!job.label_names.empty()) result["label_names"] = job.label_names;
  return result;
}

std::string description_text(const JobData& job) {
  std::string text = fmt::format("{}: {} samples, {} features", job.name, job.train.count(), job.n());
  if (job.loss == Loss::softmax) text += fmt::format(", {} classes", job.labels.size());
  if (!job.target_name.empty()) text += fmt::format(", target {}", job.target_name);
  return text;
}

Json label_json(const JobData& job, double y) {
  return job.label_names.empty() ? Json(job.label(y)) : Json(job.label_text(y));
}

std::string text_of(const Certificate& certificate) {
  std::ostringstream text;
  text << certificate;
  return text.str();
}

Json json_of(const Certificate& certificate) { return Json::parse(certificate.json()); }

page::Picture picture_of(const JobData& job, const Samples& samples, std::size_t place) {
  const auto n = static_cast<std::size_t>(job.n());
  std::vector<double> values(n);
  double brightest = 0;
  for (std::size_t j = 0; j < n; ++j) {
    values[j] = samples.A.values()[place * (n + 1) + j];
    if (job.scaling) values[j] = values[j] * job.scaling->scale.values()[j] + job.scaling->mean.values()[j];
    brightest = std::max(brightest, values[j]);
  }
  // Pixels are from 0 to 1 or from 0 to 255; rounding of standardised ones counts for nothing.
  const double white = brightest <= 1.001 ? 1 : brightest <= 255.1 ? 255 : brightest;
  page::Picture picture;
  for (const double value : values)
    picture.pixels.push_back(static_cast<std::uint8_t>(std::lround(std::clamp(255 * value / white, 0.0, 255.0))));
  picture.lines.push_back(fmt::format("{}", samples.rows[place]));
  return picture;
}

int show(const JobOptions& options, const Report& report, Status status, Progress& progress) {
  Json document = report.document;
  document["command"] = options.command;
  document["seed"] = options.seed;
  document["version"] = ONESTEP_VERSION;
  page::Folder folder(options);
  if (folder.wanted()) {
    progress.begin(fmt::format("{}: drawing", report.verb));
    for (const page::Figure& figure : report.figures) folder.draw(figure);
    document["figures"] = page::to_json(report.figures);
    document["machine"] = page::machine();
    document["date"] = page::date();
    write_file(options, report.verb + ".json", to_text(document));
    write_file(options, "index.html", page_of(options, report, folder.pictures()));
  }
  progress.clear();
  std::string text = options.json ? to_text(document) : text_of(report);
  if (folder.wanted() && !options.json) text += fmt::format("\npage: {}\n", folder.path_of_page());
  print(text);
  const bool drawn = folder.complain();
  if (stop_signal() != 0) return 128 + stop_signal();
  return is_solution(status) && drawn ? done : failed;
}

}  // namespace onestep::app::jobs
