// The command `onestep VERB …`: dispatches to a verb and turns what goes wrong into one line and an exit status.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "common.h"
#include "onestep/array.h"
#include "verbs.h"

namespace {

using namespace onestep;

int complain(std::string message, app::Exit status) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  fmt::print(stderr, "onestep: {}\n", message);
  return status;
}

int run(int argc, char** argv) {
  app::Command command{CLI::App("Derivatives of what iterative algorithms converge to.", "onestep"), {}};
  CLI::App& line = command.line;
  line.set_version_flag("--version", "onestep " ONESTEP_VERSION);
  line.require_subcommand(1);
  line.footer("onestep VERB --help says more, with an example.");
  line.get_formatter()->label("SUBCOMMAND", "VERB");
  app::add_paper(command);
  app::add_qp(command);
  try {
    line.parse(argc, argv);
  } catch (const CLI::Success& wanted) {  // --help, --version
    return line.exit(wanted);
  } catch (const CLI::ParseError& wrong) {
    const auto verbs = line.get_subcommands();
    if (!verbs.empty())
      return complain(fmt::format("{}; see onestep {} --help", wrong.what(), verbs.front()->get_name()), app::misused);
    if (argc == 1) return complain("a verb is missing, such as qp; see onestep --help", app::misused);
    return complain(fmt::format("there is no verb {}; see onestep --help", argv[1]), app::misused);
  }
  return command.work();
}

}  // namespace

int main(int argc, char** argv) {
  app::catch_signals();
  try {
    return run(argc, argv);
  } catch (const app::Misuse& wrong) { return complain(wrong.what(), app::misused); } catch (const Error& wrong) {
    return complain(wrong.what(), app::misused);
  } catch (const std::bad_alloc&) {
    return complain("not enough memory", app::failed);
  } catch (const std::exception& problem) { return complain(problem.what(), app::failed); }
}
