// Writes the members that all documents have, and turns failures into theirs.
#include "base/json_document.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "onestep/dataset.h"
#include "onestep/error.h"

namespace onestep::app {

Json document_of(const CommonOptions& options, const Ending& ending, const Json& own) {
  Json times = Json::object();
  for (const auto& [phase, seconds] : options.clock->times()) times[phase] = seconds;
  Json document = {
      {"verb", options.verb},    {"version", ONESTEP_VERSION}, {"command", options.command}, {"seed", options.seed},
      {"status", ending.status}, {"usable", ending.usable},    {"message", ending.message},  {"times", times},
      {"memory", peak_memory()}, {"notes", ending.notes}};
  for (const auto& [key, value] : own.items()) document[key] = value;
  return document;
}

namespace {

std::string problem_of(const FileError& wrong) { return wrong.problem.empty() ? wrong.what() : wrong.problem; }

}  // namespace

Failure failure_of(std::exception_ptr problem) {
  Failure failure{.exit = failed, .status = "failed", .message = ""};
  const auto refuse = [&](const std::string& what) { failure = {misused, "refused", what}; };
  try {
    std::rethrow_exception(std::move(problem));
  } catch (const Misuse& wrong) { refuse(wrong.what()); } catch (const std::bad_alloc&) {
    failure.message = "not enough memory";
  } catch (const WriteError& wrong) { failure.message = problem_of(wrong); } catch (const FileError& wrong) {
    refuse(problem_of(wrong));
  } catch (const NotConvergedError& wrong) {
    failure.message = fmt::format("a solve did not converge: {}", to_string(wrong.status));
  } catch (const NoDerivativeError& wrong) {
    failure.message = fmt::format("there is no derivative: {}", wrong.reason);
  } catch (const Error& wrong) { refuse(wrong.what()); } catch (const std::exception& wrong) {
    failure.message = wrong.what();
  }
  std::string& text = failure.message;
  std::ranges::replace(text, '\n', ' ');
  text = printable(text);
  return failure;
}

void print_failure(const CommonOptions& options, const Failure& failure) {
  if (!options.json) return;
  try {
    print(to_text(document_of(options, {.status = failure.status, .usable = false, .message = failure.message}, {})));
  } catch (const std::exception&) { return; }
}

// The kernel's own count of this program. What getrusage says may be of the program that started this one.
std::int64_t peak_memory() {
  constexpr std::int64_t kibibyte = 1024;
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("VmHWM:")) return kibibyte * std::stoll(line.substr(line.find(':') + 1));
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return kibibyte * used.ru_maxrss;
}

}  // namespace onestep::app
