// Runs the items in order and says how far they are.
#include "paper/run.h"

#include <chrono>
#include <exception>
#include <new>
#include <utility>

namespace onestep::app::paper {

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
