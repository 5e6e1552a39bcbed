// The command `onestep VERB …`: dispatches to a verb and turns what goes wrong into one line and an exit status.
#include <fmt/format.h>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "base/common.h"
#include "base/json_document.h"
#include "onestep/threads.h"
#include "paper/command.h"
#include "verbs.h"

namespace {

using namespace onestep;

// OpenBLAS chooses its kernels while it is loaded. Where it does not know this CPU it chose slow ones, and the program
// starts once more, with the environment variable that names better ones.
void start_with_fast_blas(char** argv) {
  constexpr const char* variable = "OPENBLAS_CORETYPE";
  const std::string kernels = better_blas_kernels();
  if (kernels.empty() || std::getenv(variable) != nullptr) return;
  ::setenv(variable, kernels.c_str(), 1);
  ::execv("/proc/self/exe", argv);  // where that fails, slow kernels do
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
  } catch (...) {
    const app::Failure failure = app::failure_of(std::current_exception());
    fmt::print(stderr, "onestep: {}\n", failure.message);
    return failure.exit;
  }
}
