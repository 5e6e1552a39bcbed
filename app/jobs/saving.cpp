#include "jobs/saving.h"

#include <fmt/format.h>

#include <string_view>

namespace onestep::app::jobs {

void save_model(SavedModel model, const JobOptions& options, const std::string& file) {
  model.missing = options.missing;
  model.version = ONESTEP_VERSION;
  model.command = options.command;
  const SavedModel again = model_from(text_of(model), file);
  if (again.job.features != model.job.features || again.job.label_names != model.job.label_names)
    throw Misuse(fmt::format("--save {}: names in {} are not in UTF-8; convert the file, for instance with iconv", file,
                             model.job.name));
  write_model(model, file);
}

namespace {

// As a shell takes it for one word.
std::string quoted(const std::string& word) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=,:+@%";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace

std::string fit_command(const JobOptions& options, double l2) {
  std::string line = "onestep fit " + (options.demo ? fmt::format("--demo --seed {}", options.seed) : quoted(options.file));
  const auto add = [&](const char* option, const std::string& value, const char* usual = "") {
    if (value != usual) line += fmt::format(" {} {}", option, quoted(value));
  };
  add("--loss", options.loss);
  add("--target", options.target);
  for (const std::string& column : options.drop) add("--drop", column);
  for (const std::string& column : options.category) add("--category", column);
  add("--missing", options.missing, "refuse");
  add("--header", options.header, "auto");
  add("--separator", options.separator, "auto");
  add("--decimal", options.decimal, "auto");
  if (options.standardise) line += " --standardise";
  return line + fmt::format(" --l2 {}", l2);
}

}  // namespace onestep::app::jobs
