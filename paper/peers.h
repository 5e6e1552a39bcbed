// What other libraries took on the same kind of problem, as `./run bench peers --json` writes it, drawn beside ours.
#pragma once

#include <string>
#include <vector>

#include "paper/result.h"

namespace onestep::app::paper {

/// One peer by one of its methods on one size of a problem.
struct PeerTime {
  std::string problem, contender, method, version;
  double parameters = 0;
  double gradient = 0;  ///< seconds of a solve with its gradient
};

/// Those with a gradient, ours left out. Throws Misuse, naming the file and what is wrong with it.
std::vector<PeerTime> read_peers(const std::string& file);

/// Draws the best method of each peer on the problem of this name (that with the least time at the largest size of all) on
/// the figure's first panel, says in the caption where the curves come from, and in the item's data which they are.
void add_peers(const std::vector<PeerTime>& peers, const std::string& problem, const std::string& differences, Item& item);

}  // namespace onestep::app::paper
