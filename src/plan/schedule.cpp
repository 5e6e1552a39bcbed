// Roles, levels and times. Times are as early as possible, except that a product with a whole vector waits for the loop that
// uses it: two products with the same tall matrix then share one walk over it.
#include "plan/schedule.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "graph/rules.h"

namespace onestep::detail {
namespace {

std::int64_t rows_of(const Shape& shape) { return shape[0]; }

// Products with few columns are done by rows; wide ones are better left to one large GEMM.
constexpr std::int64_t narrow = 64;

}  // namespace

bool Schedule::repeats_number(Id id) const {
  const Node& n = graph_.node(id);
  return n.op == Op::broadcast && graph_.node(graph_.args(id)[0]).shape.size() == 1;
}

bool Schedule::adds_diagonal(Id id) const {
  return graph_.node(id).op == Op::add && graph_.node(graph_.args(id)[1]).op == Op::diag;
}

bool Schedule::reads_number(Id reader, std::size_t i) const {
  return is_elementwise(graph_.node(reader).op) && !(adds_diagonal(reader) && i == 0) && repeats_number(argument(reader, i));
}

// An added diagonal is read as its vector.
Id Schedule::argument(Id reader, std::size_t i) const {
  const Id a = graph_.args(reader)[i];
  return i == 1 && adds_diagonal(reader) ? graph_.args(a)[0] : a;
}

Role Schedule::role(Id id) const {
  const Node& n = graph_.node(id);
  const auto arg_shape = [&](std::size_t i) { return graph_.node(graph_.args(id)[i]).shape; };
  switch (n.op) {
    case Op::input:
    case Op::constant:
    case Op::scalar: return Role::leaf;
    case Op::reshape:
    case Op::stop_gradient: return Role::alias;
    case Op::broadcast: return Role::row;
    case Op::add: return adds_diagonal(id) ? Role::whole : Role::row;
    case Op::sum:
    case Op::max: return n.attr.i == 1 ? Role::row : Role::reduce;
    case Op::gram: return Role::reduce;
    case Op::matmul: {
      const Shape a = arg_shape(0);
      const std::int64_t columns = n.shape.rank() == 1 ? 1 : n.shape[1];
      const bool tall = a[0] >= 4 * std::max(a[1], columns) && columns <= narrow;
      if (n.attr.i == 0) return columns == 1 || tall ? Role::row : Role::whole;
      return (n.shape.rank() == 1 || tall) && n.attr.j == 0 ? Role::reduce : Role::whole;
    }
    default: return is_elementwise(n.op) ? Role::row : Role::whole;
  }
}

std::vector<Id> Schedule::reads(Id id) const {
  std::vector<Id> result;
  for (std::size_t i = 0; i < graph_.args(id).size(); ++i) {
    const Id a = argument(id, i);
    result.push_back((*this)[reads_number(id, i) ? graph_.args(a)[0] : a].root);
  }
  return result;
}

bool Schedule::by_rows(Id id, std::size_t i) const {
  const Node& n = graph_.node(id);
  const Id a = graph_.args(id)[i];
  switch (n.op) {
    case Op::matmul: return i == 0 || n.attr.i != 0;
    case Op::broadcast:
      return graph_.node(a).shape == Shape{n.shape[0], 1} && n.shape.size() != 1 && graph_.node(a).shape.size() != 1;
    default: return (*this)[id].role != Role::whole && !reads_number(id, i);
  }
}

bool Schedule::together(Id a, Id b) const {
  const Slot &x = (*this)[a], &y = (*this)[b];
  const auto in_loop = [](const Slot& s) { return s.role == Role::row || s.role == Role::reduce; };
  return in_loop(x) && in_loop(y) && x.level == y.level && x.time == y.time && x.rows == y.rows;
}

// What the loop computes for nothing but levels above it is computed there; for branches, once for all of them.
void Schedule::postpone(std::span<const Id> results, int loop, int branches) {
  const bool branched = branches != std::numeric_limits<int>::max();
  const int last = branched ? branches - 2 : loop;  // of the loop's own levels
  std::vector<Id> of_loop;
  for (const Id id : results)
    if ((*this)[id].level <= last) of_loop.push_back(id);
  const std::vector<bool> in_loop = graph_.reachable(of_loop);
  std::vector<int> first_reader(slots_.size(), std::numeric_limits<int>::max());
  for (Id id = graph_.size() - 1; id >= 0; --id) {
    const auto i = static_cast<std::size_t>(id);
    Slot& s = slots_[i];
    if (s.role == Role::unused) continue;
    if (s.level >= loop && s.level <= last && !in_loop[i] && s.role != Role::leaf)
      s.level = branched ? branches - 1 : first_reader[i];
    for (const Id a : graph_.args(id)) {
      int& first = first_reader[static_cast<std::size_t>(a)];
      first = std::min(first, s.level);
    }
  }
}

Schedule::Schedule(const Graph& graph, std::span<const Id> results, std::span<const int> input_levels, int loop,
                   int branches)
    : graph_(graph) {
  const std::vector<bool> reached = graph.reachable(results);
  slots_.resize(static_cast<std::size_t>(graph.size()));
  const auto slot = [&](Id id) -> Slot& { return slots_[static_cast<std::size_t>(id)]; };
  for (Id id = 0; id < graph.size(); ++id) {
    if (!reached[static_cast<std::size_t>(id)]) continue;
    Slot& s = slot(id);
    s.role = role(id);
    s.root = s.role == Role::alias ? slot(graph.args(id)[0]).root : id;
    const Node& n = graph.node(id);
    s.rows = rows_of(n.op == Op::sum || n.op == Op::max || n.op == Op::gram || (n.op == Op::matmul && n.attr.i != 0)
                         ? graph.node(graph.args(id)[0]).shape
                         : n.shape);
    s.level = -1;
    if (n.op == Op::input) s.level = input_levels.empty() ? 0 : input_levels[static_cast<std::size_t>(n.attr.i)];
    for (const Id a : graph.args(id)) s.level = std::max(s.level, slot(a).level);
  }

  postpone(results, loop, branches);

  // Repeated numbers and added diagonals that are only read through need not be made.
  std::vector<bool> wanted(slots_.size());
  for (const Id id : results) {
    const Id root = slot(id).root;
    wanted[static_cast<std::size_t>(repeats_number(root) ? slot(graph.args(root)[0]).root : root)] = true;
  }
  for (Id id = graph.size() - 1; id >= 0; --id) {
    if (slot(id).role < Role::row) continue;
    if (!wanted[static_cast<std::size_t>(id)])
      slot(id).role = Role::unused;
    else
      for (const Id r : reads(id)) wanted[static_cast<std::size_t>(r)] = true;
  }

  const auto scheduled = [&](Id id) { return slot(id).role >= Role::row; };
  const auto joins = [&](Id reader, std::size_t i, Id read) {
    return slot(reader).role != Role::whole && slot(read).role == Role::row && by_rows(reader, i) &&
           slot(reader).rows == slot(read).rows;
  };
  for (Id id = 0; id < graph.size(); ++id) {
    if (!scheduled(id)) continue;
    const std::vector<Id> read = reads(id);
    slot(id).time = 1;
    for (std::size_t i = 0; i < read.size(); ++i)
      if (scheduled(read[i]) && slot(read[i]).level == slot(id).level)
        slot(id).time = std::max(slot(id).time, slot(read[i]).time + (joins(id, i, read[i]) ? 0 : 1));
  }

  join_loops(joins);
}

template <class Joins> void Schedule::join_loops(const Joins& joins) {
  struct Read {
    Id reader;
    bool joins;
  };
  std::vector<std::vector<Read>> readers(slots_.size());
  using Key = std::tuple<int, std::int64_t, int>;  // level, rows, time
  std::map<Key, std::vector<Id>> loops;
  for (Id id = 0; id < graph_.size(); ++id) {
    const Slot& s = (*this)[id];
    if (s.role < Role::row) continue;
    const std::vector<Id> read = reads(id);
    for (std::size_t i = 0; i < read.size(); ++i)
      if ((*this)[read[i]].role >= Role::row)
        readers[static_cast<std::size_t>(read[i])].push_back({id, joins(id, i, read[i])});
    if (s.role != Role::whole) loops[{s.level, s.rows, s.time}].push_back(id);
  }
  // Latest first: what a loop waits for has been placed when it is looked at.
  std::vector<Key> order;
  for (const auto& [key, members] : loops) order.push_back(key);
  std::ranges::sort(order, [](const Key& a, const Key& b) { return std::get<2>(a) > std::get<2>(b); });
  for (const Key& key : order) {
    const auto [level, rows, time] = key;
    int latest = std::numeric_limits<int>::max();
    for (const Id id : loops[key])
      for (const auto& [reader, by_row] : readers[static_cast<std::size_t>(id)]) {
        const Slot& r = (*this)[reader];
        if (r.level == level && !together(id, reader)) latest = std::min(latest, r.time - (by_row ? 0 : 1));
        if (r.level != level) latest = std::min(latest, time);
      }
    // The latest loop over the same rows that is not too late.
    auto target = loops.upper_bound({level, rows, latest});
    if (latest <= time || target == loops.begin()) continue;
    --target;
    const auto [to_level, to_rows, to_time] = target->first;
    if (to_level != level || to_rows != rows || to_time <= time) continue;
    for (const Id id : loops[key]) slots_[static_cast<std::size_t>(id)].time = to_time;
    target->second.insert(target->second.end(), loops[key].begin(), loops[key].end());
    loops.erase(key);
  }
}

}  // namespace onestep::detail
