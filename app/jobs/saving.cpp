// Writes the model file and the command line of an equivalent fit.
#include "jobs/saving.h"

#include <fmt/format.h>

namespace onestep::app::jobs {

void save_model(SavedModel model, const JobOptions& options, const std::string& file) {
  model.missing = options.missing;
  model.missing_texts = options.missing_texts;
  model.version = ONESTEP_VERSION;
  model.command = options.command;
  const SavedModel again = model_from(text_of(model), file);
  if (again.job.features != model.job.features || again.job.label_names != model.job.label_names)
    throw Misuse(fmt::format("--save {}: names in {} are not in UTF-8; convert the file, for instance with iconv", file,
                             model.job.name));
  write_model(model, file);
}

std::string fit_command(const JobOptions& options, double l2) {
  std::string line =
      "onestep fit " + (options.demo ? fmt::format("--demo --seed {}", options.seed) : shell_word(options.file));
  const auto add = [&](const char* option, const std::string& value, const char* usual = "") {
    if (value != usual) line += fmt::format(" {} {}", option, shell_word(value));
  };
  add("--loss", options.loss);
  add("--target", options.target);
  for (const std::string& column : options.drop) add("--drop", column);
  for (const std::string& column : options.category) add("--category", column);
  add("--missing", options.missing, "refuse");
  for (const std::string& text : options.missing_texts) add("--missing-text", text);
  add("--header", options.header, "auto");
  add("--separator", options.separator, "auto");
  add("--decimal", options.decimal, "auto");
  if (options.standardise) line += " --standardise";
  return line + fmt::format(" --l2 {}", l2);
}

}  // namespace onestep::app::jobs
