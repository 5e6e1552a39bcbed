// Runs items of `onestep paper` one after the other; what goes wrong in one of them is kept and the next is run.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "paper/items.h"
#include "paper/result.h"

namespace onestep::app::paper {

/// Fills results.items. After each item that was done, failed or stopped halfway `finished` is called, so that what is
/// there can be saved; once `watch.cancelled` says so, the remaining items are put down as cancelled.
void run_items(std::span<const ItemKind> kinds, const ItemOptions& options, const Watch& watch, Results& results,
               const std::function<void()>& finished);

}  // namespace onestep::app::paper
