// The command line by CLI11: options from the tables of the verbs, checks of numbers, and what was probably meant.
#include "base/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <span>
#include <sstream>
#include <type_traits>
#include <utility>

#include "base/json_document.h"
#include "onestep/threads.h"

namespace onestep::app {

std::string shell_word(std::string_view word) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=,:+@%";
  if (!word.empty() && word.find_first_not_of(plain) == word.npos) return std::string(word);
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

struct CommandLine::Impl {
  CLI::App line{"Derivatives of what iterative algorithms converge to.", "onestep"};
  std::function<int()> work;
  std::string typed;  // the line
};

CommandLine::CommandLine() : impl_(std::make_unique<Impl>()) {
  CLI::App& line = impl_->line;
  line.set_version_flag("--version", "onestep " ONESTEP_VERSION);
  line.require_subcommand(1);
  line.footer("onestep help VERB says more, with an example.");
  line.get_formatter()->label("SUBCOMMAND", "VERB");
}

CommandLine::~CommandLine() = default;

namespace {

std::string not_positive(const std::string& text) {
  double value = 0;
  const bool good = CLI::detail::lexical_cast(text, value) && value > 0 && std::isfinite(value);
  return good ? "" : fmt::format("{} is not a positive number", text);
}

std::string negative(const std::string& text) {
  double value = 0;
  const bool good = CLI::detail::lexical_cast(text, value) && value >= 0 && std::isfinite(value);
  return good ? "" : fmt::format("{} is not a number of at least 0", text);
}

std::string not_count(const std::string& text) {
  double value = 0;
  const bool good = CLI::detail::lexical_cast(text, value) && value >= 1 && value <= 1e9 && value == std::floor(value);
  return good ? "" : fmt::format("{} is not a whole number from 1 to 1e9", text);
}

// CLI11 takes -1 for the largest number, and so what is above it.
std::string not_seed(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool good = error == std::errc() && end == text.data() + text.size();
  return good ? "" : fmt::format("{} is not a whole number from 0 to 2^64 - 1", text);
}

// As it would be typed again.
std::string typed(std::span<char*> words) {
  std::string line = "onestep";
  for (const std::string_view word : words.subspan(1)) line += ' ' + shell_word(word);
  return line;
}

void add_option(CLI::App& verb, const Option& row) {
  CLI::Option* added = std::visit(
      [&](auto* to) {
        if constexpr (std::is_same_v<decltype(to), bool*>)
          return verb.add_flag(row.name, *to, row.help);
        else
          return verb.add_option(row.name, *to, row.help)->type_name(row.type)->required(row.required);
      },
      row.to);
  if (row.name.starts_with('-')) {
    added->allow_extra_args(false);
    if (std::holds_alternative<std::vector<std::string>*>(row.to)) added->expected(1)->take_all();  // one each time
  }
  if (row.takes == Takes::positive) added->check(not_positive);
  if (row.takes == Takes::not_negative) added->check(negative);
  if (row.takes == Takes::count) added->check(not_count);
  if (!row.one_of.empty()) added->check(CLI::IsMember(row.one_of));
  for (const std::string& other : row.excludes) added->excludes(verb.get_option(other));
}

// How many letters have to be changed, added, left out or swapped with their neighbour.
std::size_t distance_of(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i)
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

// "; did you mean fit?" where one of the words is near, or begins with what was typed.
std::string did_you_mean(const std::string& typed_word, const std::vector<std::string>& words) {
  constexpr std::size_t enough_letters = 3;
  std::string best;
  std::size_t nearest = typed_word.size() <= enough_letters ? 2 : 3;  // fewer than this
  for (const std::string& word : words) {
    const bool begins = typed_word.size() >= enough_letters && word.starts_with(typed_word);
    const std::size_t distance = begins ? 1 : distance_of(typed_word, word);
    if (distance < nearest) nearest = distance, best = word;
  }
  return best.empty() ? "" : fmt::format("; did you mean {}?", best);
}

std::vector<std::string> option_names(const CLI::App& verb) {
  std::vector<std::string> names;
  for (const CLI::Option* option : verb.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

// What is wrong with the words that belong to no option.
std::string unexpected(const CLI::App& parser, const std::vector<std::string>& words) {
  const std::string& verb = parser.get_name();
  const auto option = std::ranges::find_if(words, [](const std::string& word) { return word.starts_with('-'); });
  if (option != words.end()) {
    const std::string name = option->substr(0, option->find('='));
    return fmt::format("there is no option {} in onestep {}{}", name, verb, did_you_mean(name, option_names(parser)));
  }
  return fmt::format("{} is one argument too many for onestep {}", words.front(), verb);
}

struct NamedFile {
  std::string option;
  const std::string* file;
  std::string companion = "";
};

struct WrittenFile {
  std::string option, file;
};

bool is_picture(const std::filesystem::path& path) { return path.extension() == ".svg" || path.extension() == ".png"; }

// No output may be a file that is read, or another output of the same run.
void check_outputs(const CommonOptions& common, const std::vector<NamedFile>& inputs, const std::vector<NamedFile>& outputs,
                   const std::vector<std::string>& files_of_out) {
  std::vector<WrittenFile> others, named;
  for (const NamedFile& input : inputs) others.push_back({input.option, *input.file});
  for (const std::string& file : files_of_out)
    if (!common.out.empty())
      others.push_back(
          {fmt::format("{} of --out {}", file, common.out), (std::filesystem::path(common.out) / file).string()});
  for (const NamedFile& output : outputs) {
    if (output.file->empty() || *output.file == "-") continue;
    named.push_back({output.option, *output.file});
    if (!output.companion.empty()) named.push_back({output.option, *output.file + output.companion});
  }
  for (const WrittenFile& output : named) {
    check_output(output.option, output.file);
    const auto is_same = [&](const WrittenFile& other) {
      return &other != &output && is_same_file(other.file, output.file);
    };
    for (const std::vector<WrittenFile>* all : {&others, &named})
      if (const auto other = std::ranges::find_if(*all, is_same); other != all->end())
        throw Misuse(fmt::format("{} {}: is the same file as {}, which would be lost; name another", output.option,
                                 output.file, other->option));
    std::error_code ignored;
    const std::filesystem::path folder = std::filesystem::path(output.file).parent_path();
    if (!common.out.empty() && is_picture(output.file) &&
        std::filesystem::weakly_canonical(folder.empty() ? "." : folder, ignored) ==
            std::filesystem::weakly_canonical(common.out, ignored))
      throw Misuse(
          fmt::format("{} {}: --out {} writes its pictures there; name another", output.option, output.file, common.out));
  }
}

// Of all outputs one may be standard output.
void check_standard_output(CommonOptions& common, const std::vector<NamedFile>& outputs) {
  std::string first;
  for (const NamedFile& output : outputs) {
    if (*output.file != "-") continue;
    if (!output.companion.empty())
      throw Misuse(fmt::format("{} -: is written again and again, which takes a file; name one", output.option));
    if (common.json || !first.empty())
      throw Misuse(fmt::format("{} - and {} both write to standard output; name a file for one of them", output.option,
                               common.json ? "--json" : first + " -"));
    first = output.option;
  }
  common.prints_a_file = !first.empty();
}

}  // namespace

void CommandLine::add(Verb verb) {
  CLI::App* parser = impl_->line.add_subcommand(verb.name, verb.job);
  parser->group("Verbs");
  parser->footer("Example: " + verb.example);
  CommonOptions& common = verb.common;
  common.verb = verb.name;
  parser->add_flag("--json", common.json, "print one JSON document on standard output, nothing else");
  parser->add_option("--out", common.out, verb.out_help)->type_name("DIR")->take_last();
  parser->add_option("--seed", common.seed, verb.seed_help)->type_name("N")->check(not_seed);
  parser->add_option("--threads", common.threads, "use up to so many threads (default: one a core)")
      ->type_name("N")
      ->check(CLI::Range(1, 65535).description(""));
  parser->add_flag("--quiet", common.quiet, "show no progress");
  std::vector<NamedFile> inputs, outputs;
  for (const Option& row : verb.options) {
    add_option(*parser, row);
    if (row.takes == Takes::input_file) inputs.push_back({row.name, std::get<std::string*>(row.to), ""});
    if (row.takes == Takes::output_file) outputs.push_back({row.name, std::get<std::string*>(row.to), row.companion});
  }
  parser->final_callback([this, &common, inputs, outputs, files = verb.files_of_out, work = std::move(verb.work)] {
    impl_->work = [this, &common, inputs, outputs, files, work] {
      common.command = impl_->typed;
      try {
        if (common.threads > 0) set_threads(common.threads);
        for (const NamedFile& input : inputs) common.inputs.push_back(*input.file);
        if (std::ranges::count(common.inputs, "-") > 1)
          throw Misuse("- is given twice, but standard input can be read once only; give a file for one of them");
        check_standard_output(common, outputs);
        check_outputs(common, inputs, outputs, files);
        make_folder(common);  // before the work, not after it
        return work();
      } catch (...) {
        print_failure(common, failure_of(std::current_exception()));
        throw;
      }
    };
  });
}

std::vector<std::string> CommandLine::names_of_verbs() const {
  std::vector<std::string> names;
  for (const CLI::App* verb : impl_->line.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(verb->get_name());
  return names;
}

int CommandLine::run(int argc, char** argv) {
  impl_->typed = typed({argv, static_cast<std::size_t>(argc)});
  try {
    parse(argc, argv);
  } catch (const CLI::Success& wanted) {  // --help, --version
    std::ostringstream text;
    const int status = impl_->line.exit(wanted, text, text);
    print(text.str());
    return status;
  } catch (const Misuse&) {
    // What was read of the options until then is not known here.
    CommonOptions asked;
    const std::span<char*> words(argv, static_cast<std::size_t>(argc));
    asked.json = std::ranges::any_of(words, [](std::string_view word) { return word == "--json"; });
    asked.command = impl_->typed;
    const std::vector<std::string> verbs = names_of_verbs();
    if (argc > 1 && std::ranges::find(verbs, argv[1]) != verbs.end()) asked.verb = argv[1];
    print_failure(asked, failure_of(std::current_exception()));
    throw;
  }
  return impl_->work();
}

void CommandLine::parse(int argc, char** argv) {
  CLI::App& line = impl_->line;
  // `help fit` is `fit --help`, and `help` is `--help`.
  std::vector<char*> as_option;
  std::string help = "--help";
  if (argc > 1 && std::string_view(argv[1]) == "help") {
    if (argc > 2) {
      const std::vector<std::string> verbs = names_of_verbs();
      if (std::ranges::find(verbs, argv[2]) == verbs.end())
        throw Misuse(fmt::format("there is no verb {}{}; see onestep --help", argv[2], did_you_mean(argv[2], verbs)));
      as_option = {argv[0], argv[2], help.data()};
    } else {
      as_option = {argv[0], help.data()};
    }
    argc = static_cast<int>(as_option.size());
    argv = as_option.data();
  }
  try {
    line.parse(argc, argv);
  } catch (const CLI::Success&) { throw; } catch (const CLI::ParseError& wrong) {
    const auto verbs = line.get_subcommands();
    if (!verbs.empty()) {
      const std::string verb = verbs.front()->get_name();
      const std::vector<std::string> words = line.remaining(true);  // before the verb and behind it
      const bool extra = dynamic_cast<const CLI::ExtrasError*>(&wrong) != nullptr && !words.empty();
      throw Misuse(fmt::format("{}; see onestep {} --help", extra ? unexpected(*verbs.front(), words) : wrong.what(), verb));
    }
    if (argc == 1) throw Misuse("a verb is missing, such as qp; see onestep --help");
    throw Misuse(fmt::format("there is no verb {}{}; see onestep --help", argv[1], did_you_mean(argv[1], names_of_verbs())));
  }
}

}  // namespace onestep::app
