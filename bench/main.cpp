// onestep_bench [SUITE]: the benchmark tables.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "certificate/suite.h"
#include "engine.h"
#include "floors.h"
#include "harness.h"
#include "jobs.h"
#include "solve.h"

namespace {

constexpr std::string_view usage =
    "onestep_bench [SUITE] [--json FILE] [--filter TEXT] [--quick]\n"
    "\n"
    "Times the rows of a suite: ours and the floor (the same work written by hand on the same BLAS) in turn, medians over\n"
    "the turns, and whether each row's bar holds. Rows without a bar only report.\n"
    "\n"
    "  engine         steps and derivatives against BLAS written by hand\n"
    "  solve          whole solves and their derivatives, by every estimator\n"
    "  jobs           what the command's jobs need: reading data, hypergradients, checkpoints, whole fits; on real data\n"
    "                 where it is ($ONESTEP_DATA or ../shared/data, Fashion-MNIST from Debian), else made data\n"
    "  certificate    bounds of derivatives against the truth, on random problems; has options of its own, see\n"
    "                 onestep_bench certificate --help\n"
    "  (none given)   all of them but certificate\n"
    "\n"
    "  --json FILE    also write the rows as a JSON list\n"
    "  --filter TEXT  only rows whose name contains TEXT, such as \"n=100\" or \"newton step N=200\"\n"
    "  --quick        few repetitions, for a rough idea\n"
    "\n"
    "Example: onestep_bench engine --filter \"newton step\" --json engine.json\n";

int misuse(std::string_view what) {
  fmt::print(stderr, "onestep_bench: {}; see onestep_bench --help\n", what);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace onestep::bench;
  if (argc > 1 && std::string_view(argv[1]) == "certificate") {
    try {
      prepare_blas();
      return run_certificate(std::vector<std::string_view>(argv + 2, argv + argc));
    } catch (const std::exception& problem) {
      fmt::print(stderr, "onestep_bench: {}\n", problem.what());
      return 1;
    }
  }
  std::string_view suite;
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--help" || word == "-h") {
      fmt::print("{}", usage);
      return 0;
    }
    if (word == "--quick") {
      options.quick = true;
    } else if (word == "--json" || word == "--filter") {
      if (++i == argc) return misuse(fmt::format("{} needs a value", word));
      (word == "--json" ? options.json : options.filter) = argv[i];
    } else if (word.starts_with('-')) {
      return misuse(fmt::format("unknown option {}", word));
    } else if (suite.empty()) {
      suite = word;
    } else {
      return misuse(fmt::format("one suite at a time, not {} and {}", suite, word));
    }
  }
  constexpr std::array<std::pair<std::string_view, void (*)(Suite&)>, 3> known{
      {{"engine", run_engine}, {"solve", run_solve}, {"jobs", run_jobs}}};
  if (!suite.empty() && std::ranges::none_of(known, [&](const auto& entry) { return entry.first == suite; }))
    return misuse(fmt::format("no suite {}, there are: engine, solve, jobs, certificate", suite));
  if (!options.json.empty() && !std::ofstream(options.json, std::ios::app))
    return misuse(fmt::format("cannot write {}", options.json));
  try {
    prepare_blas();
    std::vector<Suite> suites;
    for (const auto& [name, run] : known) {
      if (!suite.empty() && suite != name) continue;
      Suite rows{std::string(name), options};
      run(rows);
      if (rows.rows().empty()) continue;
      if (!suites.empty()) fmt::print("\n");
      rows.print();
      std::fflush(stdout);
      suites.push_back(std::move(rows));
    }
    if (suites.empty()) return misuse(fmt::format("no row contains \"{}\"", options.filter));
    if (!options.json.empty()) write_json(options.json, suites);
  } catch (const std::exception& problem) {
    fmt::print(stderr, "onestep_bench: {}\n", problem.what());
    return 1;
  }
  return 0;
}
