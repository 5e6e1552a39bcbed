// `onestep paper`: computes what the paper claims, item by item, and shows it on one page.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common.h"
#include "onestep/dataset.h"
#include "paper/items.h"
#include "paper/result.h"
#include "paper/run.h"
#include "verbs.h"

namespace onestep::app {

namespace {

struct PaperOptions : CommonOptions {
  std::vector<std::string> items;
  bool quick = false, full = false;
  std::string cpusmall, from;
};

std::vector<paper::ItemKind> wanted_kinds(const PaperOptions& options) {
  const auto all = paper::item_kinds();
  for (const std::string& name : options.items)
    if (std::ranges::none_of(all, [&](const paper::ItemKind& kind) { return kind.name == name; })) {
      std::vector<std::string> names;
      for (const paper::ItemKind& kind : all) names.emplace_back(kind.name);
      throw Misuse(fmt::format("there is no item {}; there are {}", name, fmt::join(names, ", ")));
    }
  std::vector<paper::ItemKind> kinds;
  for (const paper::ItemKind& kind : all)
    if (options.items.empty() || std::ranges::count(options.items, kind.name) > 0) kinds.push_back(kind);
  return kinds;
}

paper::Results compute(const PaperOptions& options, const std::function<void(const paper::Results&)>& save) {
  const std::vector<paper::ItemKind> kinds = wanted_kinds(options);
  // Before the work, not after half of it.
  if (!options.cpusmall.empty()) (void)read_libsvm(options.cpusmall);

  const char* scale = options.quick ? "quick" : options.full ? "full" : "usual";
  paper::Results results;
  results.version = ONESTEP_VERSION;
  results.date = fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr)));
  results.machine = paper::machine();
  results.options = {{"scale", scale}, {"seed", options.seed}, {"cpusmall", options.cpusmall}};

  Progress progress(options);
  const paper::Watch watch{[&](const std::string& what) {
                             progress.show([&] {
                               const std::size_t at = std::min(results.items.size(), kinds.size() - 1);
                               return fmt::format("{} ({} of {}): {}", kinds[at].name, at + 1, kinds.size(), what);
                             });
                           },
                           [] { return stop_signal() != 0; }};
  const paper::ItemOptions item_options{options.quick  ? paper::Scale::quick
                                        : options.full ? paper::Scale::full
                                                       : paper::Scale::usual,
                                        options.seed, options.cpusmall};
  paper::run_items(kinds, item_options, watch, results, [&] { save(results); });
  return results;
}

int show_paper(const PaperOptions& options) {
  const auto save = [&](const paper::Results& results) {
    write_file(options, "results.json", to_text(paper::to_json(results)));
  };
  const paper::Results results = compute(options, save);
  save(results);
  if (options.json) print(to_text(paper::to_json(results)));
  if (stop_signal() != 0) return 128 + stop_signal();
  const bool good = std::ranges::all_of(results.items, [](const paper::Item& item) { return item.status == "done"; });
  return good ? done : failed;
}

}  // namespace

void add_paper(Command& command) {
  auto options = std::make_shared<PaperOptions>();
  options->out = "paper";
  CLI::App* verb = add_verb(command, "paper", "Compute the figures and tables of the paper and show them on one page.",
                            "onestep paper newton qp --quick", *options, [options] { return show_paper(*options); });
  verb->add_option("ITEM", options->items, "only these items (default: all)")->type_name("");
  verb->add_flag("--quick", options->quick, "small sizes, under 20 seconds");
  verb->add_flag("--full", options->full, "the largest sizes, too")->excludes("--quick");
  verb->add_option("--cpusmall", options->cpusmall,
                   "data for the ridge item, in the LIBSVM format\n(default: made data of its shape)")
      ->type_name("FILE");
}

}  // namespace onestep::app
