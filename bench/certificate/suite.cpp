// Reads the options, runs the trials on threads, and prints the report.
#include "certificate/suite.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cmath>
#include <fstream>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "certificate/costs.h"
#include "certificate/report.h"
#include "certificate/selftest.h"
#include "certificate/trial.h"
#include "harness.h"

namespace onestep::bench {
namespace {

constexpr std::string_view usage =
    "onestep_bench certificate [OPTIONS]\n"
    "\n"
    "Solves random problems, asks for derivatives and their certificates, and holds each bound against the true error, "
    "which\n"
    "long double arithmetic gives without the library.\n"
    "\n"
    "  --count N          problems in all, shared among the classes (default 24000, which is more than 100,000 bounds)\n"
    "  --classes A,B      only these classes; --list names them\n"
    "  --class NAME       one class; with --index I only its I-th problem, everything about it printed\n"
    "  --seed S           of the random problems (default 1)\n"
    "  --jobs J           threads, each with problems of its own (default 1)\n"
    "  --timed N          problems of each class whose certificate, solve and Auto are timed (default 40; 0: none)\n"
    "  --examples E       false bounds to name for each class (default 3)\n"
    "  --list             the classes\n"
    "  --selftest         the truth against closed forms, and each class against a derivative of the library\n"
    "  --json FILE        also write the rows as a JSON list\n"
    "\n"
    "Example: onestep_bench certificate --class 'relu network' --index 17\n";

struct Settings {
  std::size_t count = 24000, jobs = 1, examples = 3, timed = 40;
  std::uint64_t seed = 1;
  std::vector<std::string> classes;
  std::optional<std::size_t> index;
  std::string json;
};

struct Misuse : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::uint64_t whole_number(std::string_view option, std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw Misuse(fmt::format("{} needs a whole number, not '{}'", option, text));
  return value;
}

Settings parse(std::span<const std::string_view> words) {
  Settings settings;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    const auto value = [&] {
      if (++i == words.size()) throw Misuse(fmt::format("{} needs a value", word));
      return words[i];
    };
    if (word == "--count") {
      settings.count = whole_number(word, value());
    } else if (word == "--jobs") {
      settings.jobs = std::max<std::size_t>(1, whole_number(word, value()));
    } else if (word == "--timed") {
      settings.timed = whole_number(word, value());
    } else if (word == "--examples") {
      settings.examples = whole_number(word, value());
    } else if (word == "--seed") {
      settings.seed = whole_number(word, value());
    } else if (word == "--index") {
      settings.index = whole_number(word, value());
    } else if (word == "--json") {
      settings.json = value();
    } else if (word == "--class" || word == "--classes") {
      std::string_view names = value();
      while (!names.empty()) {
        const std::size_t comma = std::min(names.find(','), names.size());
        settings.classes.emplace_back(names.substr(0, comma));
        names.remove_prefix(std::min(comma + 1, names.size()));
      }
    } else {
      throw Misuse(fmt::format("unknown option {}", word));
    }
  }
  for (const std::string& name : settings.classes)
    if (std::ranges::none_of(all_classes(), [&](const ProblemClass& c) { return c.name == name; }))
      throw Misuse(fmt::format("no class '{}'; --list names them", name));
  if (!settings.json.empty() && !std::ofstream(settings.json, std::ios::app))
    throw Misuse(fmt::format("cannot write {}", settings.json));
  if (settings.index && settings.classes.size() != 1) throw Misuse("--index needs one --class");
  return settings;
}

std::vector<ClassTrials> run_all(const Settings& settings, const std::vector<ProblemClass>& classes) {
  double shares = 0;
  for (const ProblemClass& c : classes) shares += c.share;
  struct Task {
    std::size_t which, index;
  };
  std::vector<Task> tasks;
  std::vector<ClassTrials> results;
  for (std::size_t k = 0; k < classes.size(); ++k) {
    const auto n = static_cast<std::size_t>(std::ceil(static_cast<double>(settings.count) * classes[k].share / shares));
    results.push_back({std::string(classes[k].name), std::vector<Trial>(n)});
    for (std::size_t i = 0; i < n; ++i) tasks.push_back({k, i});
  }
  std::atomic<std::size_t> next = 0;
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const auto work = [&] {
    for (std::size_t t = next++; t < tasks.size(); t = next++) {
      const auto [which, index] = tasks[t];
      Trial& trial = results[which].trials[index];
      try {
        trial = run_trial(classes[which], settings.seed, index);
      } catch (const std::exception& problem) {
        trial = {};
        trial.outcome = Trial::Outcome::failed;
        trial.index = index;
        trial.status = problem.what();
      }
      if (terminal && t % 100 == 0) fmt::print(stderr, "\r\033[K{} of {}, {}", t, tasks.size(), classes[which].name);
    }
  };
  std::vector<std::jthread> threads;
  for (std::size_t j = 0; j < settings.jobs; ++j) threads.emplace_back(work);
  threads.clear();
  if (terminal) fmt::print(stderr, "\r\033[K");
  return results;
}

}  // namespace

int run_certificate(std::span<const std::string_view> words) {
  if (std::ranges::any_of(words, [](std::string_view w) { return w == "--help" || w == "-h"; })) {
    fmt::print("{}", usage);
    return 0;
  }
  if (std::ranges::find(words, "--selftest") != words.end()) return run_selftest();
  if (std::ranges::find(words, "--list") != words.end()) {
    for (const ProblemClass& c : all_classes()) fmt::print("{}\n", c.name);
    return 0;
  }
  Settings settings;
  try {
    settings = parse(words);
  } catch (const Misuse& problem) {
    fmt::print(stderr, "onestep_bench certificate: {}; see onestep_bench certificate --help\n", problem.what());
    return 2;
  }
  set_threads(1);
  std::vector<ProblemClass> classes;
  for (const ProblemClass& c : all_classes())
    if (settings.classes.empty() || std::ranges::find(settings.classes, c.name) != settings.classes.end())
      classes.push_back(c);
  if (settings.index) {
    run_trial(classes.front(), settings.seed, *settings.index, &std::cout);
    return 0;
  }
  fmt::print("seed {}\n", settings.seed);
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<ClassTrials> trials = run_all(settings, classes);
  print_table(trials, settings.examples);
  Suite suite("certificate", {.json = settings.json, .filter = {}});
  add_bars(suite, trials, settings.classes.empty() && settings.count >= Settings{}.count);
  if (settings.timed > 0) add_costs(suite, settings.seed, settings.timed, classes);
  suite.note(fmt::format("{:.0f} s", std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()));
  fmt::print("\n");
  suite.print();
  if (settings.json.empty()) return 0;
  Suite by_class("certificate", {});
  add_classes(by_class, trials);
  write_json(settings.json, {suite, by_class});
  return 0;
}

}  // namespace onestep::bench
