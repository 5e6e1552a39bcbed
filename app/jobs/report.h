// What a job has to say, once: the terminal, the JSON document and the page are made from it.
#pragma once

#include <string>
#include <vector>

#include "base/json_document.h"
#include "jobs/model.h"
#include "jobs/samples.h"
#include "page/figure.h"

namespace onestep::app::jobs {

struct Report {  // NOLINT(bugprone-exception-escape): nlohmann's Json checks itself when it is moved
  std::string title;
  std::string asked;          ///< what was asked, with the data it was asked of
  std::string sentence = {};  ///< what came out
  std::vector<page::Table> tables = {};
  std::vector<page::Figure> figures = {};
  std::vector<page::Gallery> galleries = {};
  std::vector<std::string> accuracy = {};  ///< how accurate the derivatives and the solves were
  Ending ending = {};                      ///< how it ended; a failure without a message has the sentence for one
  Json document = {};                      ///< what --json prints behind the members that all verbs have
};

/// What is said of the samples in every job: file, loss, counts.
Json description(const JobData& job);
std::string description_text(const JobData& job);

/// A sample's label: its name where it has one, else the number.
Json label_json(const JobData& job, double y);

/// A certificate as the page and the terminal say it, and in JSON.
std::string text_of(const Certificate& certificate);
Json json_of(const Certificate& certificate);

/// The sample as a picture, its features being pixels.
page::Picture picture_of(const JobData& job, const Samples& samples, std::size_t place);

/// The ending of work that came to an end by this status.
Ending ending_of(Status status, const JobData& job);

/// Why a fit failed, in words of the command: the library's are about its own options.
std::string why_fit_failed(Status status);

/// Prints it, and writes page, figures and document into --out where that is given; the document then has every number
/// that is drawn. Returns the exit status.
int show(const JobOptions& options, Report report, Progress& progress);

}  // namespace onestep::app::jobs
