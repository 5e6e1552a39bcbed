// Roles, levels and times. Times are as early as possible, except that a product with a whole vector waits for the loop that
// uses it: two products with the same tall matrix then share one walk over it.
#include "plan/schedule.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "graph/fail.h"
#include "graph/rules.h"

namespace onestep::detail {

bool together(const Slot& a, const Slot& b) {
  const auto in_loop = [](const Slot& s) { return s.role == Role::row || s.role == Role::reduce; };
  return in_loop(a) && in_loop(b) && a.level == b.level && a.time == b.time && a.rows == b.rows;
}

bool adds_diagonal(const Graph& graph, Id id) {
  return graph.node(id).op == Op::add && graph.node(graph.args(id)[1]).op == Op::diag;
}

bool repeats_number(const Graph& graph, Id id) {
  return graph.node(id).op == Op::broadcast && graph.node(graph.args(id)[0]).shape.size() == 1;
}

bool is_long_walk(const Graph& graph, Id id, const Limits& limits) {
  const Node& n = graph.node(id);
  return n.op == Op::matmul && n.attr.i == 0 && n.shape.rank() == 1 &&
         graph.node(graph.args(id)[0]).shape.size() >= limits.long_walk;
}

Id result_root(const Graph& graph, const Indexed<Slot>& slots, Id result) {
  const Id root = slots[result].root;
  return repeats_number(graph, root) ? slots[graph.args(root)[0]].root : root;
}

namespace {

Role role_of(const Graph& graph, Id id, const Limits& limits) {
  const Node& n = graph.node(id);
  switch (n.op) {
    case Op::input:
    case Op::constant:
    case Op::scalar: return Role::leaf;
    case Op::reshape: return Role::alias;
    case Op::broadcast: return Role::row;
    case Op::sum:
    case Op::max: return n.attr.i == 1 ? Role::row : Role::reduce;
    case Op::gram: return Role::reduce;
    case Op::matmul: {
      const Shape a = graph.node(graph.args(id)[0]).shape;
      const std::int64_t columns = n.shape.rank() == 1 ? 1 : n.shape[1];
      const bool tall = a[0] >= 4 * std::max(a[1], columns) && columns <= limits.narrow;
      if (n.attr.i == 0) return columns == 1 || tall ? Role::row : Role::whole;
      return (n.shape.rank() == 1 || tall) && n.attr.j == 0 ? Role::reduce : Role::whole;
    }
    case Op::eye:
    case Op::outer:
    case Op::transpose:
    case Op::diag:
    case Op::diagonal:
    case Op::concat:
    case Op::slice:
    case Op::pad:
    case Op::norm:
    case Op::cumsum:
    case Op::gather:
    case Op::scatter:
    case Op::det:
    case Op::cholesky:
    case Op::lu:
    case Op::ldlt:
    case Op::solve:
    case Op::logdet:
    case Op::call: return Role::whole;
#include "graph/elementwise_cases.inc"
      if (n.op == Op::stop_gradient || n.op == Op::arbitrary) return Role::alias;
      return adds_diagonal(graph, id) ? Role::whole : Role::row;
  }
  fail("Plan", "operation {} is not in the table", static_cast<int>(n.op));
}

std::int64_t rows_of(const Graph& graph, Id id) {
  const Node& n = graph.node(id);
  const bool over_argument = n.op == Op::sum || n.op == Op::max || n.op == Op::gram || (n.op == Op::matmul && n.attr.i != 0);
  return (over_argument ? graph.node(graph.args(id)[0]) : n).shape[0];
}

std::vector<Read> reads_of(const Graph& graph, const Indexed<Slot>& slots, Id id) {
  const Node& n = graph.node(id);
  std::vector<Read> reads;
  for (const Id given : graph.args(id)) {
    const bool added = adds_diagonal(graph, id) && !reads.empty();  // as its vector
    const Id a = added ? graph.args(given)[0] : given;
    const Shape shape = graph.node(a).shape;
    const bool number = is_elementwise(n.op) && repeats_number(graph, a) && (added || !adds_diagonal(graph, id));
    const bool by_rows = n.op == Op::matmul      ? reads.empty() || n.attr.i != 0
                         : n.op == Op::broadcast ? shape == Shape{n.shape[0], 1} && shape.size() != 1
                                                 : !number;
    reads.push_back({slots[number ? graph.args(a)[0] : a].root, number, by_rows && slots[id].role != Role::whole});
  }
  return reads;
}

class Scheduler {
 public:
  Scheduler(const Graph& graph, std::span<const Id> results, const Levels& levels, const Limits& limits)
      : slots(static_cast<std::size_t>(graph.size())), graph_(graph), limits_(limits) {
    for (const Id id : graph.needed(results)) {
      const Node& n = graph.node(id);
      Slot& s = slots[id];
      s.role = role_of(graph, id, limits);
      s.root = s.role == Role::alias ? slots[graph.args(id)[0]].root : id;
      s.rows = rows_of(graph, id);
      if (n.op == Op::input) s.level = levels.inputs[static_cast<std::size_t>(n.attr.i)];
      for (const Id a : graph.args(id)) s.level = std::max(s.level, slots[a].level);
      s.reads = reads_of(graph, slots, id);
    }
    postpone(results, levels);
    drop_unread(results);
    for (Slot& s : slots) {
      s.time = 1;
      for (const Read& r : s.reads)
        if (slots[r.root].is_scheduled() && slots[r.root].level == s.level)
          s.time = std::max(s.time, slots[r.root].time + (joins(s, r) ? 0 : 1));
    }
    join_loops();
  }

  Indexed<Slot> slots;

 private:
  // Whether what is read can be made in the loop of its reader.
  bool joins(const Slot& reader, const Read& r) const {
    return r.by_rows && slots[r.root].role == Role::row && slots[r.root].rows == reader.rows;
  }

  // What the loop would compute for nothing but levels above it is computed there; for branches, once for all of them, but
  // for a walk over a large matrix that one branch can join.
  void postpone(std::span<const Id> results, const Levels& levels) {
    const bool branched = levels.branches != for_ever;
    const int last = branched ? levels.branches - 2 : levels.loop;  // of the loop's own levels
    std::vector<Id> of_loop;
    for (const Id id : results)
      if (slots[id].level <= last) of_loop.push_back(id);
    const Indexed<bool> in_loop = graph_.reachable(of_loop);
    Indexed<int> first_reader(slots.size(), for_ever), last_reader(slots.size(), -1);
    for (Id id = graph_.size() - 1; id >= 0; --id) {
      Slot& s = slots[id];
      if (s.level >= levels.loop && s.level <= last && !in_loop[id] && s.role > Role::leaf)
        s.level = !branched || (first_reader[id] == last_reader[id] && is_long_walk(graph_, id, limits_))
                      ? first_reader[id]
                      : levels.branches - 1;
      if (s.role == Role::unused) continue;
      for (const Id a : graph_.args(id)) {
        first_reader[a] = std::min(first_reader[a], s.level);
        last_reader[a] = std::max(last_reader[a], s.level);
      }
    }
  }

  // Repeated numbers and added diagonals that are only read through need not be made.
  void drop_unread(std::span<const Id> results) {
    Indexed<bool> wanted(slots.size());
    for (const Id id : results) wanted[result_root(graph_, slots, id)] = true;
    for (Id id = graph_.size() - 1; id >= 0; --id) {
      if (!slots[id].is_scheduled()) continue;
      if (!wanted[id]) slots[id].role = Role::unused;
      if (wanted[id])
        for (const Read& r : slots[id].reads) wanted[r.root] = true;
    }
  }

  // Latest first, each loop moves to the latest one over the same rows that is not too late for its readers.
  void join_loops() {
    using Key = std::tuple<int, std::int64_t, int>;  // level, rows (-1: not a loop), time
    std::map<Key, std::vector<Id>> groups;
    for (Id id = 0; id < graph_.size(); ++id)
      if (const Slot& s = slots[id]; s.is_scheduled())
        groups[{s.level, s.role == Role::whole ? -1 : s.rows, s.time}].push_back(id);
    std::vector<Key> order;
    for (const auto& [key, members] : groups) order.push_back(key);
    std::ranges::stable_sort(order, std::greater<>(), [](const Key& k) { return std::get<2>(k); });
    Indexed<int> latest(slots.size(), for_ever);
    for (const Key& key : order) {
      const auto [level, rows, time] = key;
      const std::vector<Id> members = groups[key];
      int limit = for_ever;
      for (const Id id : members) limit = std::min(limit, latest[id]);
      const auto target = std::prev(groups.upper_bound({level, rows, std::max(limit, time)}));
      if (rows >= 0 && std::get<2>(target->first) > time) {
        for (const Id id : members) slots[id].time = std::get<2>(target->first);
        target->second.insert(target->second.end(), members.begin(), members.end());
        groups.erase(key);
      }
      for (const Id id : members)
        for (const Read& r : slots[id].reads) {
          const Slot &reader = slots[id], &from = slots[r.root];
          if (!from.is_scheduled() || together(reader, from)) continue;
          const int limit_here = reader.level != from.level ? from.time : reader.time - (joins(reader, r) ? 0 : 1);
          latest[r.root] = std::min(latest[r.root], limit_here);
        }
    }
  }

  const Graph& graph_;
  Limits limits_;
};

}  // namespace

Indexed<Slot> schedule(const Graph& graph, std::span<const Id> results, const Levels& levels, const Limits& limits) {
  return std::move(Scheduler(graph, results, levels, limits).slots);
}

}  // namespace onestep::detail
