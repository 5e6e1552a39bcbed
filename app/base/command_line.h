// The command line as the verbs describe it: a verb is a Verb, an option is a row of its table.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/common.h"

namespace onestep::app {

/// As a shell takes it for one word.
std::string shell_word(std::string_view word);

/// What an option of the command line takes besides the type of its variable. Whether a file can be written is known before
/// the work begins, and no file that is read is written over.
enum class Takes : std::uint8_t { anything, positive, not_negative, count, input_file, output_file };

/// An option: a flag when its variable is a bool, an argument by its place when its name does not begin with dashes. One
/// that takes several values is given once for each. Other spellings of its name stand behind commas.
struct Option {
  std::string name;
  std::variant<bool*, double*, std::optional<double>*, std::string*, std::vector<std::string>*> to;
  std::string type = "";  ///< how the help calls its value
  std::string help;
  bool required = false;
  Takes takes = Takes::anything;
  std::vector<std::string> one_of = {};    ///< the words it may be; any when empty
  std::vector<std::string> excludes = {};  ///< the options it does not go with, which are rows before it
  std::string companion = "";              ///< of an output file: another is written, whose name ends in this
};

/// A verb: its options besides those that all have, and its work, which returns the exit status.
struct Verb {
  std::string name;
  std::string job;      ///< one sentence for the help
  std::string example;  ///< the last line of its help
  CommonOptions& common;
  std::vector<Option> options;
  std::function<int()> work;
  std::vector<std::string> files_of_out = {};  ///< what the work writes into the folder of --out, besides pictures
  std::string out_help = "write files into this folder, which is made if needed";
  std::string seed_help = "seed of everything random (default 0)";
};

/// Reads a command line. CLI11, which does it, takes long to compile and is seen by command_line.cpp only.
class CommandLine {
 public:
  CommandLine();
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  void add(Verb verb);

  /// Does what the line asks for and returns the exit status. Throws Misuse when it asks for what is not there.
  int run(int argc, char** argv);

 private:
  void parse(int argc, char** argv);
  std::vector<std::string> names_of_verbs() const;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace onestep::app
