// The table of the options of `tune`.
#include "jobs/tune_options.h"

namespace onestep::app::jobs {

std::vector<Option> tune_options(TuneOptions& options) {
  std::vector<Option> rows = sample_options(options, true);
  for (Option& row : rows)
    if (row.name == "--split") {
      row.to = &options.split_asked;
      row.help = "or split off this share of FILE for it (0.2 where FILE is large)";
    }
  const std::vector<Option> own{
      {.name = "--hyper",
       .to = &options.hyper,
       .type = "WHAT",
       .help = "l2 (default), l2-per-feature (where that is better on unseen samples\nthan one for all), class-weight (each "
               "class then counts the same in\nvalidation) or sample-group-weight; a penalty is searched for from\n--l2, "
               "or without it from the best of nine",
       .one_of = {"l2", "l2-per-feature", "class-weight", "sample-group-weight"}},
      {.name = "--folds",
       .to = &options.folds,
       .type = "K",
       .help = "judge by cross-validation with K folds (default 5, or a split for\nmore than 10,000 samples or 4 million "
               "samples times coefficients)",
       .takes = Takes::count,
       .excludes = {"--valid", "--split"}},
      {.name = "--groups",
       .to = &options.groups,
       .type = "FILE",
       .help = "for sample-group-weight: a number for each sample, its group",
       .takes = Takes::input_file},
      {.name = "--compare",
       .to = &options.compare,
       .type = "SEARCH",
       .help = "also search a grid (random points for several\nhyperparameters) with as many solves",
       .one_of = {"grid"}},
      {.name = "--save",
       .to = &options.save,
       .type = "FILE",
       .help = "write the model of all samples with what was found, for\nonestep predict; - for standard output",
       .takes = Takes::output_file},
      {.name = "--iterations",
       .to = &options.iterations,
       .type = "N",
       .help = "at most (default 100)",
       .takes = Takes::count},
      {.name = "--checkpoint",
       .to = &options.checkpoint,
       .type = "FILE",
       .help =
           "write what was found there (and the state of the search into\nFILE.search), and go on from it when it exists",
       .takes = Takes::output_file,
       .companion = ".search"}};
  rows.insert(rows.end(), own.begin(), own.end());
  return rows;
}

}  // namespace onestep::app::jobs
