// The options that say where samples are and how files are written, and what the readers say in words of these options.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "jobs/samples.h"

namespace onestep::app::jobs {

namespace {

char separator_of(const std::string& name) {
  if (name == "auto") return '\0';
  if (name == "tab") return '\t';
  if (name == "space") return ' ';
  if (name.size() != 1 || name == "\"" || name == "\n" || name == "\r")
    throw Misuse(fmt::format("--separator {}: one character, or tab or space", name));
  return name[0];
}

}  // namespace

std::string some_names(const std::vector<std::string>& names) {
  constexpr std::size_t most = 5;
  const std::size_t count = std::min(most, names.size());
  return fmt::format("{}{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(count), ", "),
                     names.size() > most ? fmt::format(" and {} more", names.size() - most) : "");
}

std::string short_name(const std::string& file) {
  return file == "-" ? "standard input" : std::filesystem::path(file).filename().string();
}

DatasetOptions reading_options(const JobOptions& options) {
  DatasetOptions how{.target = options.target, .drop = options.drop};
  how.header = options.header == "yes" ? CsvOptions::yes : options.header == "no" ? CsvOptions::no : CsvOptions::automatic;
  how.separator = separator_of(options.separator);
  how.decimal = options.decimal == "comma"   ? CsvOptions::comma
                : options.decimal == "point" ? CsvOptions::point
                                             : CsvOptions::guessed;
  if (how.separator == ',' && how.decimal == CsvOptions::comma)
    throw Misuse("--separator , and --decimal comma: commas cannot separate fields and decimals both");
  how.missing = options.missing == "drop"     ? CsvOptions::drop_sample
                : options.missing == "impute" ? CsvOptions::impute
                                              : CsvOptions::refuse;
  how.missing_texts = options.missing_texts;
  how.categories = true;
  how.category = options.category;
  how.memory_limit = static_cast<std::size_t>(options.memory * 0x1p30 / 2);  // every job holds two copies at least
  return how;
}

namespace {

// The options of the command that do what the library advises; of predict, which reads as fit did, those that it has.
std::string_view options_for(FileError::Remedy remedy, bool predicts) {
  using enum FileError::Remedy;
  switch (remedy) {
    case memory_limit: return "; that is half of --memory, as there are two copies at a time: give a larger --memory GIB";
    case drop: return predicts ? "" : " (--drop COLUMN)";
    case target: return predicts ? "" : " (--target COLUMN)";
    case drop_or_target: return predicts ? "" : " (--drop COLUMN, --target COLUMN)";
    case header: return " (--header yes or --header no)";
    case no_header: return " (--header no)";
    case separator: return " (--separator space, tab or a CHARACTER)";
    case decimal: return " (--decimal comma)";
    case missing_target: return predicts ? "" : " (--missing drop)";
    case missing_value:
      return predicts
                 ? " (onestep fit --missing impute makes a model that takes such samples)"
                 : " (--missing drop), or replace such values (--missing impute); --missing-text says what stands for them";
    case missing_text:
      return predicts ? ""
                      : "; if it stands for a missing value, leave the field empty (--missing drop, or --missing impute)";
    case none: break;
  }
  return "";
}

}  // namespace

std::string in_words_of_the_command(const FileError& wrong, std::string_view verb) {
  return fmt::format("{}{}", wrong.problem.empty() ? wrong.what() : wrong.problem,
                     options_for(wrong.remedy, verb == "predict"));
}

std::vector<Option> csv_options(JobOptions& options) {
  return {{.name = "--header",
           .to = &options.header,
           .type = "WHETHER",
           .help = "whether the first line of a CSV file has names (default: what it\nlooks like)",
           .one_of = {"auto", "yes", "no"}},
          {.name = "--separator",
           .to = &options.separator,
           .type = "CHARACTER",
           .help = "of the fields of a CSV file: a character, tab or space (default:\nthe tab, semicolon or comma that all "
                   "lines have as often); a file\nfor which it is given is CSV"},
          {.name = "--decimal",
           .to = &options.decimal,
           .type = "MARK",
           .help = "what stands before decimals in a CSV file (default: what it looks\nlike)",
           .one_of = {"auto", "point", "comma"}}};
}

namespace {

Option how_values_are_missing(JobOptions& options) {
  return {
      .name = "--missing",
      .to = &options.missing,
      .type = "HOW",
      .help =
          "values of a CSV file: refuse (default), drop the sample, or impute\nthe mean of the column with a feature that "
          "says so",
      .one_of = {"refuse", "drop", "impute"}};
}

Option which_texts_are_missing(JobOptions& options) {
  return {.name = "--missing-text",
          .to = &options.missing_texts,
          .type = "TEXT",
          .help =
              "of a CSV file: what stands for a missing value beside an empty\nfield, such as -999; may be given again "
              "(default: NA, N/A, #N/A,\nNaN, null, missing, None, ? and -)"};
}

}  // namespace

std::vector<Option> sample_options(JobOptions& options, bool with_validation) {
  std::vector<Option> rows{
      {.name = "FILE",
       .to = &options.file,
       .help = "samples in the format of LIBSVM, CSV or IDX, told by name (.csv)\nor content; plain, gz or bz2; - for "
               "standard input",
       .takes = Takes::input_file},
      {.name = "--demo",
       .to = &options.demo,
       .help =
           "made data in place of FILE, or Fashion-MNIST where Debian's\ndataset-fashion-mnist is installed and the job is "
           "about images",
       .excludes = {"FILE"}},
      {.name = "--loss",
       .to = &options.loss,
       .type = "LOSS",
       .help = "logistic (two labels), softmax (classes) or ridge (a quantity; the\nloss is half the squared error); "
               "without: what the labels look like",
       .one_of = {"logistic", "ridge", "softmax"}},
      {.name = "--l2",
       .to = &options.l2_asked,
       .type = "L",
       .help =
           "the penalty is L/2 times the sum of squared coefficients, the\nintercept's excepted, and the losses are summed: "
           "1/C of\nscikit-learn's LogisticRegression, alpha of its Ridge (default 1)",
       .takes = Takes::not_negative},
      {.name = "--target",
       .to = &options.target,
       .type = "COLUMN",
       .help = "of a CSV file: its name or number (default: last); texts in it\nname classes"},
      {.name = "--drop", .to = &options.drop, .type = "COLUMN", .help = "of a CSV file: leave it out; may be given again"},
      {.name = "--category",
       .to = &options.category,
       .type = "COLUMN",
       .help = "of a CSV file: a category even if it has numbers, compared as\ntexts; COLUMN=LEVEL names its reference; "
               "columns of texts are\n"
               "categories without it"},
      how_values_are_missing(options),
      which_texts_are_missing(options),
      {.name = "--standardise,--standardize",
       .to = &options.standardise,
       .help =
           "scale features to mean 0 and deviation 1 (of the training\nsamples); coefficients are given for the features as "
           "they were"},
      {.name = "--test",
       .to = &options.test,
       .type = "FILE",
       .help = "samples that are only scored",
       .takes = Takes::input_file,
       .excludes = {"--demo"}},
      {.name = "--memory",
       .to = &options.memory,
       .type = "GIB",
       .help = "refuse work that needs more (default 4)",
       .takes = Takes::positive}};
  for (Option& row : csv_options(options)) rows.push_back(std::move(row));
  if (with_validation) {
    rows.push_back({.name = "--valid",
                    .to = &options.valid,
                    .type = "FILE",
                    .help = "validation samples",
                    .takes = Takes::input_file,
                    .excludes = {"--demo"}});
    rows.push_back({.name = "--split",
                    .to = &options.split,
                    .type = "SHARE",
                    .help = "or split off this share of FILE for it (default 0.2)",
                    .takes = Takes::positive,
                    .excludes = {"--valid"}});
  }
  return rows;
}

}  // namespace onestep::app::jobs
