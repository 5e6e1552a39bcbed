// The command `onestep VERB …`: dispatches to a verb and turns what goes wrong into one line and an exit status.
#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "common.h"
#include "onestep/array.h"
#include "onestep/threads.h"
#include "verbs.h"

namespace {

using namespace onestep;

// OpenBLAS chooses its kernels while it is loaded. Where it does not know this CPU it chose slow ones, and the program
// starts once more, with the environment variable that the advice names.
void start_with_fast_blas(char** argv) {
  constexpr std::string_view variable = "OPENBLAS_CORETYPE";
  const std::string advice = blas_advice();
  const std::size_t at = advice.find(fmt::format("{}=", variable));
  if (at == advice.npos || std::getenv(variable.data()) != nullptr) return;
  const std::size_t begin = at + variable.size() + 1;
  ::setenv(variable.data(), advice.substr(begin, advice.find(' ', begin) - begin).c_str(), 1);
  ::execv("/proc/self/exe", argv);  // where that fails, slow kernels do
}

// One line, without the name of the function of the library that says it.
int complain(std::string message, app::Exit status) {
  if (message.starts_with('[') && message.find("] ") != message.npos) message.erase(0, message.find("] ") + 2);
  std::replace(message.begin(), message.end(), '\n', ' ');
  fmt::print(stderr, "onestep: {}\n", message);
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  start_with_fast_blas(argv);
  app::catch_signals();
  try {
    app::CommandLine line;
    app::add_paper(line);
    app::add_qp(line);
    app::add_fit(line);
    app::add_predict(line);
    app::add_influence(line);
    app::add_tune(line);
    app::add_clean(line);
    return line.run(argc, argv);
  } catch (const app::Misuse& wrong) { return complain(wrong.what(), app::misused); } catch (const WriteError& problem) {
    return complain(problem.what(), app::failed);
  } catch (const Error& wrong) { return complain(wrong.what(), app::misused); } catch (const std::bad_alloc&) {
    return complain("not enough memory", app::failed);
  } catch (const std::exception& problem) { return complain(problem.what(), app::failed); }
}
