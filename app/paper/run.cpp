#include "paper/run.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <fstream>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "onestep/threads.h"

extern "C" {
// OpenBLAS's own; null when another BLAS is linked.
[[gnu::weak]] char* openblas_get_config();
}

namespace onestep::app::paper {

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

void run_items(std::span<const ItemKind> kinds, const ItemOptions& options, const Watch& watch, Results& results,
               const std::function<void()>& finished) {
  for (const ItemKind& kind : kinds) {
    Item item;
    item.name = kind.name;
    item.title = kind.title;
    if (watch.cancelled()) {
      item.status = "cancelled";
      item.reason = "it was not begun";
      results.items.push_back(std::move(item));
      continue;
    }
    const auto begin = std::chrono::steady_clock::now();
    try {
      kind.compute(options, watch, item);
      if (watch.cancelled()) {
        item.status = "cancelled";
        item.reason = "it was stopped before its end";
      }
    } catch (const std::bad_alloc&) {
      item.status = "failed";
      item.reason = "not enough memory";
    } catch (const std::exception& problem) {
      item.status = "failed";
      item.reason = problem.what();
    }
    item.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    results.items.push_back(std::move(item));
    finished();
  }
}

}  // namespace onestep::app::paper
