// The document of --json: what those of all verbs have in common, in one place. docs/json.md describes it.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "base/common.h"

namespace onestep::app {

/// How a verb ended, as its document says it.
struct Ending {
  std::string status;                   ///< one word: converged, done, infeasible, refused, …
  bool usable = true;                   ///< whether the answer can be used; the exit status is 0 only then
  std::string message = {};             ///< why not, with the way out; or what to know about an answer that can be used
  std::vector<std::string> notes = {};  ///< what was guessed or left out
};

/// The members that all documents begin with, and behind them those of the verb.
Json document_of(const CommonOptions& options, const Ending& ending, const Json& own);

/// What went wrong, for people and for the exit status.
struct Failure {
  Exit exit = failed;
  std::string status;   ///< refused: misuse or bad input; failed: anything else
  std::string message;  ///< one line; of files without the name of the function of the library that read or wrote them
};
Failure failure_of(std::exception_ptr problem);

/// The document of work that an exception ended, or a command line that made no sense; where --json asks for it, it is
/// printed. A standard output that cannot be written is not complained about a second time.
void print_failure(const CommonOptions& options, const Failure& failure);

/// The most memory that the process has had at once, in bytes.
std::int64_t peak_memory();

}  // namespace onestep::app
