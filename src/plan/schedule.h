// When each node is computed: at which level (how often), at which time within the level, and together with which others in
// one walk over their rows.
#pragma once

#include "plan/program.h"

namespace onestep::detail {

enum class Role : std::uint8_t {
  unused,  // not needed, or read through its argument (a repeated number, a diagonal that is only added)
  leaf,    // input, constant, number
  alias,   // the entries of its argument (reshape, stop_gradient, arbitrary)
  row,     // a row of it needs only the same row of some arguments: computed in a row loop
  reduce,  // adds up over rows in a row loop
  whole,   // everything else: an instruction of its own
};

/// What a node really reads of an argument, aliases, repeated numbers and added diagonals looked through.
struct Read {
  Id root;       // the node whose memory holds it
  bool number;   // one number for all entries
  bool by_rows;  // row by row as the reader's loop walks, not as a whole before the loop
};

struct Slot {
  Role role = Role::unused;
  Id root = -1;  // the node whose memory holds its entries
  int level = -1, time = 0;
  std::int64_t rows = 0;  // of the loop it is computed in
  std::vector<Read> reads;
  bool is_scheduled() const { return role >= Role::row; }
};
/// Whether both are in the same row loop.
bool together(const Slot& a, const Slot& b);

/// A slot for each node.
Indexed<Slot> schedule(const Graph& graph, std::span<const Id> results, const Levels& levels, const Limits& limits);

/// add(X, diag(d)): runs on the diagonal of X.
bool adds_diagonal(const Graph& graph, Id id);
/// A number repeated: elementwise operations read the number itself.
bool repeats_number(const Graph& graph, Id id);
/// A product of a vector with a matrix that does not stay in the cache.
bool is_long_walk(const Graph& graph, Id id, const Limits& limits);
/// The node whose memory holds the result, or the number it repeats.
Id result_root(const Graph& graph, const Indexed<Slot>& slots, Id result);

}  // namespace onestep::detail
