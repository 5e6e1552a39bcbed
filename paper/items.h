// The items of `onestep paper`, a file each in paper/items.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "paper/peers.h"
#include "paper/result.h"

namespace onestep::app::paper {

enum class Scale { quick, usual, full };

struct ItemOptions {
  Scale scale = Scale::usual;
  std::uint64_t seed = 0;
  std::string cpusmall;              ///< a LIBSVM file for the ridge item; empty: made data of its shape
  std::vector<PeerTime> peers = {};  ///< to be drawn beside the timings; empty: none
};

/// How an item tells how far it is, and learns that it shall stop.
struct Watch {
  std::function<void(const std::string&)> progress;
  std::function<bool()> cancelled;
};

struct ItemKind {
  const char *name, *title;
  /// Fills figures, tables, claims and data as they become known, so that what is there when it is cancelled can be shown.
  void (*compute)(const ItemOptions& options, const Watch& watch, Item& item);
};

/// In the order in which they are run and shown.
std::span<const ItemKind> item_kinds();

}  // namespace onestep::app::paper
