// The arena: hash-consing, reachability, copying between graphs.
#include "graph/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "graph/rewrite.h"
#include "graph/rules.h"

namespace onestep {

// By bits: NaN equals itself and 0.0 differs from -0.0, as hash-consing needs.
bool Attr::operator==(const Attr& other) const {
  return i == other.i && j == other.j && std::bit_cast<std::uint64_t>(value) == std::bit_cast<std::uint64_t>(other.value);
}

std::span<const Id> Graph::args(Id id) const {
  const Node& n = node(id);
  return {arg_pool_.data() + n.first_arg, static_cast<std::size_t>(n.arg_count)};
}

std::size_t Graph::hash(Op op, std::span<const Id> args, const Attr& attr, const Shape& shape) const {
  std::uint64_t h = static_cast<std::uint64_t>(op) + 0x9e3779b97f4a7c15ull;
  const auto mix = [&h](std::uint64_t v) {
    h = (h ^ v) * 0xbf58476d1ce4e5b9ull;
    h ^= h >> 29;
  };
  for (const Id a : args) mix(static_cast<std::uint64_t>(a));
  mix(static_cast<std::uint64_t>(attr.i));
  mix(static_cast<std::uint64_t>(attr.j));
  mix(std::bit_cast<std::uint64_t>(attr.value));
  mix(static_cast<std::uint64_t>(shape[0]));
  mix(static_cast<std::uint64_t>(shape[1]));
  return static_cast<std::size_t>(h);
}

bool Graph::same(Id id, Op op, std::span<const Id> args, const Attr& attr, const Shape& shape) const {
  const Node& n = node(id);
  return n.op == op && n.attr == attr && n.shape == shape && std::ranges::equal(this->args(id), args);
}

void Graph::grow_table() {
  table_.assign(table_.empty() ? 64 : 2 * table_.size(), -1);
  for (Id id = 0; id < size(); ++id) {
    const Node& n = node(id);
    std::size_t slot = hash(n.op, args(id), n.attr, n.shape) & (table_.size() - 1);
    while (table_[slot] >= 0) slot = (slot + 1) & (table_.size() - 1);
    table_[slot] = id;
  }
}

Id Graph::make(Op op, std::span<const Id> args, const Attr& attr, const Shape& shape) {
  if (2 * (nodes_.size() + 1) > table_.size()) grow_table();
  std::size_t slot = hash(op, args, attr, shape) & (table_.size() - 1);
  for (; table_[slot] >= 0; slot = (slot + 1) & (table_.size() - 1))
    if (same(table_[slot], op, args, attr, shape)) return table_[slot];
  const auto first = static_cast<std::int32_t>(arg_pool_.size());
  arg_pool_.insert(arg_pool_.end(), args.begin(), args.end());
  nodes_.push_back({op, first, static_cast<std::int32_t>(args.size()), shape, attr});
  return table_[slot] = size() - 1;
}

Id Graph::add_input(std::string name, const Shape& shape) {
  names_.push_back(std::move(name));
  inputs_.push_back(make(Op::input, {}, {.i = static_cast<std::int64_t>(inputs_.size())}, shape));
  return inputs_.back();
}

Id Graph::add_constant(const Array& array) {
  // Column-major memory is its transpose in row-major memory: a flag instead of a copy.
  if (array.shape().rank() == 2 && array.column_stride() != 1 && array.row_stride() == 1) {
    const Id stored = add_constant(array.transposed());
    return make(Op::transpose, {&stored, 1}, {}, array.shape());
  }
  std::size_t index = 0;
  const auto same_memory = [&](const Array& c) {
    return c.data() == array.data() && c.shape() == array.shape() && c.row_stride() == array.row_stride();
  };
  while (index < constants_.size() && !same_memory(constants_[index])) ++index;
  if (index == constants_.size()) constants_.push_back(array);
  return make(Op::constant, {}, {.i = static_cast<std::int64_t>(index)}, array.shape());
}

Id Graph::add_scalar(double value) { return make(Op::scalar, {}, {.value = value}, {}); }

std::int64_t Graph::add_foreign(std::shared_ptr<const Foreign> function) {
  const auto at = std::ranges::find(foreigns_, function);
  const auto index = at - foreigns_.begin();
  if (at == foreigns_.end()) foreigns_.push_back(std::move(function));
  return index;
}

std::vector<bool> Graph::reachable(std::span<const Id> from) const {
  std::vector<bool> mark(nodes_.size());
  Id last = -1;
  for (const Id id : from) {
    mark[static_cast<std::size_t>(id)] = true;
    last = std::max(last, id);
  }
  for (Id id = last; id >= 0; --id)
    if (mark[static_cast<std::size_t>(id)])
      for (const Id a : args(id)) mark[static_cast<std::size_t>(a)] = true;
  return mark;
}

std::vector<bool> Graph::dependents(std::span<const Id> sources, Id last) const {
  std::vector<bool> mark(nodes_.size());
  for (const Id id : sources) mark[static_cast<std::size_t>(id)] = true;
  for (Id id = 0; id <= last; ++id)
    for (const Id a : args(id))
      if (mark[static_cast<std::size_t>(a)]) mark[static_cast<std::size_t>(id)] = true;
  return mark;
}

std::vector<Expr> Graph::import(const Graph& source, std::span<const Id> from, std::span<const Expr> inputs) {
  const std::vector<bool> needed = source.reachable(from);
  std::vector<Expr> image(static_cast<std::size_t>(source.size()));
  std::vector<Expr> args;
  for (Id id = 0; id < source.size(); ++id) {
    if (!needed[static_cast<std::size_t>(id)]) continue;
    const Node& n = source.node(id);
    Expr& to = image[static_cast<std::size_t>(id)];
    switch (n.op) {
      case Op::input: to = inputs[static_cast<std::size_t>(n.attr.i)]; break;
      case Op::constant: to = expr(add_constant(source.constant(n.attr.i))); break;
      case Op::scalar: to = expr(add_scalar(n.attr.value)); break;
      default: {
        args.clear();
        for (const Id a : source.args(id)) args.push_back(image[static_cast<std::size_t>(a)]);
        Attr attr = n.attr;
        if (n.op == Op::call) attr.i = add_foreign(source.foreign(n.attr.i));
        // A leaf such as eye has no argument that would say which graph is meant.
        to = args.empty() ? expr(make(n.op, {}, attr, n.shape)) : build(n.op, args, attr, n.shape);
      }
    }
  }
  std::vector<Expr> result;
  for (const Id id : from) result.push_back(image[static_cast<std::size_t>(id)]);
  return result;
}

std::vector<Expr> unify(const char* operation, std::span<const Expr> args) {
  std::shared_ptr<Graph> home;
  for (const Expr& a : args) {
    if (!a.graph() || a.graph() == home) continue;
    const bool rooted = !a.graph()->inputs().empty();
    if (home && rooted && !home->inputs().empty())
      throw Error(
          fmt::format("[{}] the arguments belong to two different traced functions; make the one an Input of the other, or "
                      "call its Function there",
                      operation));
    if (!home || rooted) home = a.graph();
  }
  if (!home) home = std::make_shared<Graph>();
  std::vector<Expr> result(args.begin(), args.end());
  for (Expr& a : result) {
    if (!a.graph())
      a = home->expr(home->add_scalar(a.literal()));
    else if (a.graph() != home) {
      const Id id = a.id();
      a = home->import(*a.graph(), {&id, 1}, {}).front();
    }
  }
  return result;
}

Expr build(Op op, std::span<const Expr> args, const Attr& attr, const Shape& shape) {
  const Site site{op, unify(name(op), args), attr, shape};
  const Shape result = site.result_shape();
  const std::optional<Expr> simpler = rewrite(site, result);
  if (!simpler) return site.make(result);
  // A rule that made a number or an identity made it in a graph of its own.
  const std::shared_ptr<Graph>& home = site.args.empty() ? simpler->graph() : site[0].graph();
  if (simpler->graph() == home) return *simpler;
  const Id id = simpler->id();
  return simpler->graph() ? home->import(*simpler->graph(), {&id, 1}, {}).front()
                          : home->expr(home->add_scalar(simpler->literal()));
}

Expr build(Op op, std::initializer_list<Expr> args, const Attr& attr, const Shape& shape) {
  return build(op, std::span<const Expr>(args.begin(), args.size()), attr, shape);
}

Expr build_as_is(Op op, std::initializer_list<Expr> args, const Attr& attr, const Shape& shape) {
  const Site site{op, unify(name(op), {args.begin(), args.size()}), attr, shape};
  return site.make(site.result_shape());
}

std::optional<double> literal(const Expr& e) {
  if (!e.graph()) return e.literal();
  const Node* n = &node(e);
  while (n->op == Op::broadcast || n->op == Op::reshape)
    n = &e.graph()->node(e.graph()->args(static_cast<Id>(n - &e.graph()->node(0)))[0]);
  if (n->op != Op::scalar) return std::nullopt;
  return n->attr.value;
}

}  // namespace onestep
