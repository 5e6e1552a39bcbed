// Asks the system, the BLAS and the compiler for their names.
#include "page/machine.h"

#include <fmt/chrono.h>

#include <ctime>
#include <fstream>
#include <string>
#include <thread>

#include "onestep/threads.h"

extern "C" {
// OpenBLAS's own; null when another BLAS is linked.
[[gnu::weak]] char* openblas_get_config();
}

namespace onestep::app::page {

namespace {

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

constexpr const char* compiler =
#ifdef __clang__
    "clang " __clang_version__;
#else
    "gcc " __VERSION__;
#endif

}  // namespace

Json machine() {
  Json result = {{"cpu", processor()},
                 {"cores", std::thread::hardware_concurrency()},
                 {"blas", openblas_get_config != nullptr ? openblas_get_config() : "not OpenBLAS"},
                 {"compiler", compiler}};
  if (std::string advice = blas_advice(); !advice.empty()) {
    advice.pop_back();  // the end of the line
    result["slower than need be"] = advice;
  }
  return result;
}

std::string date() { return fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr))); }

}  // namespace onestep::app::page
