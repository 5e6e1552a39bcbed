// When each node is computed: at which level (how often), at which time within the level, and together with which others in
// one walk over their rows.
#pragma once

#include <vector>

#include "plan/program.h"

namespace onestep::detail {

enum class Role : std::uint8_t {
  unused,  // not needed, or read through its argument (a repeated number, a diagonal that is only added)
  leaf,    // input, constant, number
  alias,   // the entries of its argument (reshape, stop_gradient)
  row,     // a row of it needs only the same row of some arguments: computed in a row loop
  reduce,  // adds up over rows in a row loop
  whole,   // everything else: an instruction of its own
};

struct Slot {
  Role role = Role::unused;
  Id root = -1;  // the node whose memory holds its entries
  int level = -1;
  int time = 0;
  std::int64_t rows = 0;  // of the loop it is computed in
};

class Schedule {
 public:
  Schedule(const Graph& graph, std::span<const Id> results, std::span<const int> input_levels, int loop, int branches);

  const Slot& operator[](Id id) const { return slots_[static_cast<std::size_t>(id)]; }
  /// What node `id` really reads: arguments with aliases and added diagonals looked through.
  std::vector<Id> reads(Id id) const;
  /// Whether that is one number for all entries.
  bool reads_number(Id reader, std::size_t i) const;
  /// Whether the i-th thing `id` reads is read row by row as its loop walks (and not as a whole, before the loop).
  bool by_rows(Id id, std::size_t i) const;
  /// Whether both are in the same row loop.
  bool together(Id a, Id b) const;
  /// add(X, diag(d)): runs on the diagonal of X.
  bool adds_diagonal(Id id) const;
  /// A number repeated: elementwise operations read the number itself.
  bool repeats_number(Id id) const;

 private:
  Role role(Id id) const;
  void postpone(std::span<const Id> results, int loop, int branches);
  Id argument(Id reader, std::size_t i) const;
  template <class Joins> void join_loops(const Joins& joins);

  const Graph& graph_;
  std::vector<Slot> slots_;
};

}  // namespace onestep::detail
