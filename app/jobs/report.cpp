// Describes the data of a job, and certificates in the command's words.
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
  // Names in files may have ends of lines in them.
  std::string text = fmt::format("{}\n", printable(report.asked));
  for (const std::string& note : report.ending.notes) text += fmt::format("Note: {}.\n", printable(note));
  text += printable(report.sentence) + "\n";
  for (const page::Table& table : report.tables) text += fmt::format("\n{}", page::text_of(table));
  if (!report.accuracy.empty()) text += "\n";
  for (const std::string& line : report.accuracy) text += printable(line) + "\n";
  return text;
}

}  // namespace

Json description(const JobData& job) {
  Json result = {{"file", job.name},
                 {"loss", name_of(job.loss)},
                 {"samples", job.train.count()},
                 {"features", job.n()},
                 {"standardised", job.standardised},
                 {"memory_needed", static_cast<std::int64_t>(job.memory_needed)}};
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
  std::string text = fmt::format("{}: {}, {}", job.name, counted(job.train.count(), "sample"), counted(job.n(), "feature"));
  if (job.loss == Loss::softmax) text += fmt::format(", {} classes", job.labels.size());
  if (!job.target_name.empty()) text += fmt::format(", target {}", job.target_name);
  return text;
}

Json label_json(const JobData& job, double y) {
  return job.label_names.empty() ? Json(job.label(y)) : Json(job.label_text(y));
}

// What the library advises names its own options, not those of the command.
std::string text_of(const Certificate& certificate) {
  if (certificate.basis == Certificate::Basis::refused) return fmt::format("no bound: {}", certificate.reason);
  std::ostringstream text;
  text << certificate;
  return text.str();
}

Json json_of(const Certificate& certificate) {
  Json json = Json::parse(certificate.json());
  json.erase("advice");
  return json;
}

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
  picture.lines.push_back(fmt::format("sample {}", samples.rows[place]));
  return picture;
}

Ending ending_of(Status status, const JobData& job) {
  return {.status = to_string(status), .usable = is_solution(status), .notes = job.notes};
}

std::string why_fit_failed(Status status) {
  switch (status) {
    case Status::cancelled: return "Stopped by a signal before it had converged.";
    case Status::iteration_limit:
      return "A fit did not converge in the iterations allowed; a larger --l2 or --standardise may help.";
    case Status::singular:
      return "A fit failed, as its Hessian is singular: features may be constant, depend on each other or differ much in "
             "size; a larger --l2 or --standardise may help.";
    case Status::not_finite:
      return "A fit failed, as numbers became infinite: features may be too large; --standardise may help.";
    default: return "A fit failed, as no step made progress; a larger --l2 or --standardise may help.";
  }
}

int show(const JobOptions& options, Report report, Progress& progress) {
  Ending& ending = report.ending;
  // Asked once: what is written and the exit status say the same, also where a signal comes while they are written.
  const int stopped = stop_signal();
  if (stopped != 0 && ending.usable) {
    ending.status = to_string(Status::cancelled), ending.usable = false;
    ending.message = "Stopped by a signal before all that was asked for was done.";
    report.sentence = fmt::format("{} {}", ending.message, report.sentence);
  }
  if (!ending.usable && ending.message.empty()) ending.message = report.sentence;
  page::Folder folder(options);
  Json document;
  if (folder.wanted()) {
    progress.enter("drawing");
    for (const page::Figure& figure : report.figures) folder.draw(figure);
    document = document_of(options, ending, report.document);
    document["figures"] = page::to_json(report.figures);
    document["machine"] = page::machine();
    document["date"] = page::date();
    write_file(options, options.verb + ".json", to_text(document));
    write_file(options, "index.html", page_of(options, report, folder.pictures()));
  } else {
    document = document_of(options, ending, report.document);
  }
  progress.clear();
  std::string text = options.json ? to_text(document) : text_of(report);
  if (folder.wanted() && !options.json) text += fmt::format("\npage: {}\n", folder.path_of_page());
  if (!options.prints_a_file) print(text);
  if (options.prints_a_file && !ending.usable) fmt::print(stderr, "onestep: {}\n", ending.message);
  for (std::size_t i = 0; options.prints_a_file && i < ending.notes.size(); ++i)
    fmt::print(stderr, "onestep: note: {}\n", ending.notes[i]);
  const bool drawn = folder.complain();
  if (stopped != 0) return 128 + stopped;
  return ending.usable && drawn ? done : failed;
}

}  // namespace onestep::app::jobs
