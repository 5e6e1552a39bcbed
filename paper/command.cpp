// `onestep paper`: computes what the paper claims, item by item, and shows it on one page.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/common.h"
#include "base/json_document.h"
#include "onestep/dataset.h"
#include "page/folder.h"
#include "page/machine.h"
#include "page/text.h"
#include "paper/command.h"
#include "paper/items.h"
#include "paper/page.h"
#include "paper/result.h"
#include "paper/run.h"

namespace onestep::app {

namespace {

struct PaperOptions : CommonOptions {
  std::vector<std::string> items;
  bool quick = false, full = false;
  std::string cpusmall, peers, from;
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

struct Size {
  paper::Scale scale;
  const char *name, *takes;  ///< measured on two cores, alone and beside other work
};
Size size_of(const PaperOptions& options) {
  return options.quick  ? Size{paper::Scale::quick, "quick", "5 s"}
         : options.full ? Size{paper::Scale::full, "full", "5 to 10 min"}
                        : Size{paper::Scale::usual, "usual", "1 to 3 min"};
}

paper::Results compute(const PaperOptions& options, const std::function<void(const paper::Results&)>& save) {
  const std::vector<paper::ItemKind> kinds = wanted_kinds(options);
  // Before the work, not after half of it.
  if (!options.cpusmall.empty()) (void)read_libsvm(options.cpusmall);
  const auto peers = options.peers.empty() ? std::vector<paper::PeerTime>() : paper::read_peers(options.peers);

  const Size size = size_of(options);
  paper::Results results;
  results.version = ONESTEP_VERSION;
  results.date = page::date();
  results.machine = page::machine();
  results.options = {{"scale", size.name}, {"seed", options.seed}, {"cpusmall", options.cpusmall}, {"peers", options.peers}};

  Progress progress(options);
  const std::string in_all = options.items.empty() ? fmt::format(", {} in all", size.takes) : "";
  const paper::Watch watch{[&](const std::string& what) {
                             progress.show([&] {
                               const std::size_t at = std::min(results.items.size(), kinds.size() - 1);
                               return fmt::format("{} ({} of {}{}): {}", kinds[at].name, at + 1, kinds.size(), in_all, what);
                             });
                           },
                           [] { return stop_signal() != 0; }};
  const paper::ItemOptions item_options{size.scale, options.seed, options.cpusmall, peers};
  paper::run_items(kinds, item_options, watch, results, [&] {
    options.clock->count(results.items.back().name, results.items.back().seconds);
    save(results);
  });
  return results;
}

paper::Results read_results(const PaperOptions& options) {
  std::ifstream file(options.from, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) throw Misuse(fmt::format("--from {}: the file cannot be read", options.from));
  paper::Results results;
  try {
    results = paper::from_json(Json::parse(text.str()));
  } catch (const Json::exception& wrong) {
    throw Misuse(fmt::format("--from {}: {}", options.from, wrong.what()));
  } catch (const Misuse& wrong) { throw Misuse(fmt::format("--from {}: {}", options.from, wrong.what())); }
  for (const std::string& name : options.items)
    if (std::ranges::none_of(results.items, [&](const paper::Item& item) { return item.name == name; }))
      throw Misuse(fmt::format("--from {}: it has no item {}", options.from, name));
  if (!options.items.empty())
    std::erase_if(results.items, [&](const paper::Item& item) { return std::ranges::count(options.items, item.name) == 0; });
  return results;
}

Ending ending_of(const paper::Results& results) {
  std::vector<std::string> missing;
  for (const paper::Item& item : results.items)
    if (item.status != "done") missing.push_back(fmt::format("{}: {}: {}", item.name, item.status, item.reason));
  const auto has = [&](std::string_view status) {
    return std::ranges::any_of(results.items, [&](const paper::Item& item) { return item.status == status; });
  };
  return {.status = has("failed")      ? "failed"
                    : has("cancelled") ? "cancelled"
                                       : "done",
          .usable = !has("failed") && stop_signal() == 0,
          .message = fmt::format("{}", fmt::join(missing, "; "))};
}

// What is saved is what --json prints; the version is that of the program that computed it.
std::string text_of(const PaperOptions& options, const paper::Results& results) {
  return to_text(document_of(options, ending_of(results), paper::to_json(results)));
}

// Draws what is new, and writes everything: what is in the folder is complete after each item.
void save(const PaperOptions& options, page::Folder& folder, const paper::Results& results) {
  if (!folder.wanted()) return;
  options.clock->enter("drawing");
  for (const paper::Item& item : results.items)
    for (const paper::Figure& figure : item.figures) folder.draw(figure);
  options.clock->leave();
  write_file(options, "results.json", text_of(options, results));
  write_file(options, "index.html", paper::page_of(results, folder.pictures()));
}

std::string summary(const page::Folder& folder, const paper::Results& results) {
  std::string text;
  std::size_t width = 0;
  for (const paper::Item& item : results.items) width = std::max(width, item.name.size());
  for (const paper::Item& item : results.items) {
    for (const paper::Claim& claim : item.claims)
      text += fmt::format("{}  {:<7}  {}{}\n{}           {}\n", page::padded(item.name, width),
                          claim.verdict == "no" ? "NO" : claim.verdict, claim.whose == "ours" ? "ours: " : "", claim.says,
                          std::string(width, ' '), claim.measured);
    if (item.status != "done") text += fmt::format("{}  {}: {}\n", page::padded(item.name, width), item.status, item.reason);
  }
  return text + fmt::format("\n{}\npage: {}\n", paper::tally_of(results), folder.path_of_page());
}

int show_paper(PaperOptions options) {
  // A document on standard output is for programs; a page only when it is asked for.
  if (options.out.empty() && !options.json) options.out = "paper";
  make_folder(options);
  page::Folder folder(options);
  paper::Results results;
  if (options.from.empty())
    results = compute(options, [&](const paper::Results& so_far) { save(options, folder, so_far); });
  else
    results = read_results(options);
  save(options, folder, results);
  print(options.json ? text_of(options, results) : summary(folder, results));
  const bool drawn = folder.complain();
  if (stop_signal() != 0) return 128 + stop_signal();
  return ending_of(results).usable && drawn ? done : failed;
}

}  // namespace

void add_paper(CommandLine& line) {
  auto options = std::make_shared<PaperOptions>();
  line.add({.name = "paper",
            .job = "Compute the figures and tables of the paper and show them on one page.",
            .example = "onestep paper newton qp --quick",
            .common = *options,
            .options = {{.name = "ITEM", .to = &options->items, .help = "only these items (default: all)"},
                        {.name = "--quick", .to = &options->quick, .help = "small sizes, 5 s (usual: 1 to 3 min)"},
                        {.name = "--full",
                         .to = &options->full,
                         .help = "the largest sizes, too, 5 to 10 min on two cores",
                         .excludes = {"--quick"}},
                        {.name = "--cpusmall",
                         .to = &options->cpusmall,
                         .type = "FILE",
                         .help = "data for the ridge item, in the LIBSVM format\n(default: made data of its shape)"},
                        {.name = "--peers",
                         .to = &options->peers,
                         .type = "FILE",
                         .help = "draw other libraries beside ours in qp and logistic: what\n"
                                 "./run bench peers --json FILE measured"},
                        {.name = "--from",
                         .to = &options->from,
                         .type = "FILE",
                         .help = "draw a saved results.json without computing",
                         .excludes = {"--quick", "--full", "--cpusmall", "--peers", "--seed"}}},
            .work = [options] { return show_paper(*options); },
            .out_help = "the folder of the page (default: paper; with --json: none)"});
}

}  // namespace onestep::app
