// Puts a report together as one HTML page.
#include "jobs/page.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "page/machine.h"

namespace onestep::app::jobs {

namespace {

using page::escaped, page::prose;

std::string section(const char* title, const std::string& body) {
  return body.empty() ? "" : fmt::format("<section>\n<h2>{}</h2>\n{}</section>\n", title, body);
}

// Prose in which lines do not end before a number that belongs to what stands before it.
std::string tied(std::string text) {
  const auto tie = [&](std::string_view loose, std::string_view tight) {
    for (std::size_t at = 0; (at = text.find(loose, at)) != text.npos; at += tight.size())
      text.replace(at, loose.size(), tight);
  };
  tie(" ± ", "\u00a0±\u00a0");
  tie(" = ", "\u00a0=\u00a0");
  return prose(text);
}

}  // namespace

std::string page_of(const JobOptions& options, const Report& report, const page::Pictures& pictures) {
  std::string text = page::head(report.title);
  text += fmt::format("<body>\n<main>\n<h1>{}</h1>\n<p class=\"soft\">{}</p>\n<p class=\"answer\">{}</p>\n",
                      escaped(report.title), escaped(report.asked), tied(report.sentence));
  for (const std::string& note : report.ending.notes)
    text += fmt::format("<p class=\"soft\">Note: {}.</p>\n", escaped(note));
  if (!pictures.missing.empty())
    text += fmt::format("<p class=\"box\"><span class=\"state\">Figures are missing:</span> {}; then run it again.</p>\n",
                        escaped(pictures.missing));
  std::string shown, said;
  for (const page::Gallery& gallery : report.galleries) shown += page::html_of(gallery);
  for (const page::Figure& figure : report.figures) shown += page::html_of(figure, pictures);
  for (const page::Table& table : report.tables) said += page::html_of(table, page::Cells::names);
  if (!said.empty()) said = fmt::format("<div class=\"tables\">\n{}</div>\n", said);
  std::string accuracy;
  for (const std::string& line : report.accuracy) accuracy += fmt::format("<p>{}</p>\n", tied(line));
  text += section("What came out", shown) + section("In numbers", said) + section("How accurate it is", accuracy);
  text +=
      section("How to repeat it", fmt::format("<pre>{}</pre>\n<p>Seed {}; on this machine with any number of threads the "
                                              "numbers are the same to the last digit, times excepted.</p>\n",
                                              escaped(options.command), options.seed));
  Json facts = {{"onestep", ONESTEP_VERSION}, {"date", page::date()}};
  facts.update(page::machine());
  return text + "</main>\n" + page::foot(facts, options.verb + ".json") + "</body>\n</html>\n";
}

}  // namespace onestep::app::jobs
