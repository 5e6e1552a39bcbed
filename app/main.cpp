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

}  // namespace

int main(int argc, char** argv) {
  app::catch_signals();
  try {
    app::CommandLine line;
    app::add_paper(line);
    app::add_qp(line);
    app::add_fit(line);
    app::add_influence(line);
    app::add_tune(line);
    app::add_clean(line);
    return line.run(argc, argv);
  } catch (const app::Misuse& wrong) { return complain(wrong.what(), app::misused); } catch (const Error& wrong) {
    return complain(wrong.what(), app::misused);
  } catch (const std::bad_alloc&) {
    return complain("not enough memory", app::failed);
  } catch (const std::exception& problem) { return complain(problem.what(), app::failed); }
}
