// The arena: hash-consing, reachability, copying between graphs.
#include "graph/graph.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "graph/fail.h"
#include "graph/rules.h"

namespace onestep {

Expr Site::make() const {
  std::shared_ptr<Graph> graph = args.empty() ? std::make_shared<Graph>() : graph_of(args.front());
  // Memory for each node of each trace would be most of its time.
  std::array<Id, 4> few;
  if (args.size() <= few.size()) std::ranges::transform(args, few.begin(), [](const Expr& e) { return id_of(e); });
  const Id id = args.size() > few.size() ? graph->make(op, ids_of(args), attr, shape)
                                         : graph->make(op, {few.data(), args.size()}, attr, shape);
  return detail::Access::expr(std::move(graph), id);
}

Site site_of(const Expr& e) {
  Site site{node(e).op, {}, node(e).attr, node(e).shape};
  for (const Id a : graph_of(e)->args(id_of(e))) site.args.push_back(graph_of(e)->expr(a));
  return site;
}

std::span<const Id> Graph::args(Id id) const {
  return {arg_pool_.data() + node(id).first_arg, static_cast<std::size_t>(node(id).arg_count)};
}

// Where the node is in the table, or the empty place where it belongs.
std::size_t Graph::slot(Op op, std::span<const Id> args, const Attr& attr, const Shape& shape) const {
  std::uint64_t h = static_cast<std::uint64_t>(op) + 0x9e3779b97f4a7c15ull;
  const auto mix = [&h](std::int64_t v) {
    h = (h ^ static_cast<std::uint64_t>(v)) * 0xbf58476d1ce4e5b9ull;
    h ^= h >> 29;
  };
  for (const Id a : args) mix(a);
  for (const std::int64_t v : {attr.i, attr.j, shape[0], shape[1]}) mix(v);
  const auto is_it = [&](Id id) {
    const Node& n = node(id);
    return n.op == op && n.attr == attr && n.shape == shape && std::ranges::equal(this->args(id), args);
  };
  std::size_t at = h & (table_.size() - 1);
  while (table_[at] >= 0 && !is_it(table_[at])) at = (at + 1) & (table_.size() - 1);
  return at;
}

Id Graph::make(Op op, std::span<const Id> args, const Attr& attr, const Shape& shape) {
  if (nodes_.empty() && op == Op::constant) {  // most often an array that is about to be adopted by another graph
    nodes_.push_back({op, 0, 0, shape, attr});
    return 0;
  }
  if (2 * (nodes_.size() + 1) > table_.size()) {
    if (table_.empty()) {
      nodes_.reserve(usual_nodes);
      arg_pool_.reserve(2 * usual_nodes);
    }
    table_.assign(std::max<std::size_t>(64, 2 * table_.size()), -1);
    for (Id id = 0; id < size(); ++id) table_[slot(node(id).op, this->args(id), node(id).attr, node(id).shape)] = id;
  }
  Id& place = table_[slot(op, args, attr, shape)];
  if (place >= 0) return place;
  nodes_.push_back({op, static_cast<Id>(arg_pool_.size()), static_cast<Id>(args.size()), shape, attr});
  arg_pool_.insert(arg_pool_.end(), args.begin(), args.end());
  return place = size() - 1;
}

Id Graph::add_input(std::string name, const Shape& shape) {
  names_.push_back(std::move(name));
  return make(Op::input, {}, {.i = static_cast<std::int64_t>(names_.size()) - 1}, shape);
}

Id Graph::add_constant(const Array& array) {
  // Column-major memory is its transpose in row-major memory: a flag instead of a copy.
  if (array.shape().rank() == 2 && array.column_stride() != 1 && array.row_stride() == 1) {
    const Id stored = add_constant(array.transposed());
    return make(Op::transpose, {&stored, 1}, {}, array.shape());
  }
  return make(Op::constant, {}, {.i = index_of(array)}, array.shape());
}

// Of the constant that is this array, which becomes one. Few are looked through, as they are in graphs that are made often:
// a lambda is traced for each solve.
std::int64_t Graph::index_of(const Array& array) {
  constexpr std::size_t few = 16;
  const auto is_it = [&](const Array& c) {
    return c.data() == array.data() && c.shape() == array.shape() && c.row_stride() == array.row_stride();
  };
  const auto next = static_cast<std::int64_t>(constants_.size());
  if (constants_.size() <= few) {
    const auto found = std::ranges::find_if(constants_, is_it);
    if (found != constants_.end()) return found - constants_.begin();
  } else {
    const auto [first, last] = constants_at_.equal_range(array.data());
    const auto known = std::find_if(first, last, [&](const auto& entry) { return is_it(constants_[entry.second]); });
    if (known != last) return known->second;
  }
  constants_.push_back(array);
  if (constants_.size() == few + 1)
    for (std::int64_t i = 0; i < next; ++i) constants_at_.emplace(constants_[i].data(), i);
  if (constants_.size() > few) constants_at_.emplace(array.data(), next);
  return next;
}

std::int64_t Graph::add_foreign(std::shared_ptr<const Foreign> function) {
  const auto at = std::ranges::find(foreigns_, function);
  const auto index = at - foreigns_.begin();
  if (at == foreigns_.end()) foreigns_.push_back(std::move(function));
  return index;
}

bool Graph::has_same_nodes(const Graph& other) const {
  return nodes_ == other.nodes_ && arg_pool_ == other.arg_pool_ && foreigns_ == other.foreigns_;
}

Indexed<bool> Graph::reachable(std::span<const Id> from) const {
  Indexed<bool> mark(nodes_.size());
  for (const Id id : from) mark[id] = true;
  for (Id id = from.empty() ? -1 : std::ranges::max(from); id >= 0; --id)
    if (mark[id])
      for (const Id a : args(id)) mark[a] = true;
  return mark;
}

std::vector<Id> Graph::needed(std::span<const Id> from) const {
  const Indexed<bool> mark = reachable(from);
  std::vector<Id> list;
  for (Id id = 0; id < size(); ++id)
    if (mark[id]) list.push_back(id);
  return list;
}

Indexed<bool> Graph::between(std::span<const Id> sources, std::span<const Id> results) const {
  const std::vector<Id> candidates = needed(results);
  Indexed<bool> mark(nodes_.size());
  for (const Id id : sources) mark[id] = std::ranges::binary_search(candidates, id);
  for (const Id id : candidates)
    for (const Id a : args(id)) mark[id] = mark[id] || mark[a];
  return mark;
}

std::vector<Id> Graph::kinks_between(std::span<const Id> sources, std::span<const Id> results) const {
  const Indexed<bool> moves = between(sources, results);
  Indexed<bool> is_seen(nodes_.size());
  for (const Id id : results) is_seen[id] = true;
  for (Id id = size(); id-- > 0;)
    if (is_seen[id] && node(id).op != Op::arbitrary)
      for (const Id a : args(id)) is_seen[a] = true;
  std::vector<Id> list;
  for (Id id = 0; id < size(); ++id)
    if (moves[id] && is_seen[id] && has_kink(node(id).op)) list.push_back(id);
  return list;
}

std::vector<Expr> Graph::import(const Graph& source, std::span<const Id> from, std::span<const Expr> inputs,
                                const std::function<Expr(const Site&, Id)>& make_node, std::span<const Expr> constants) {
  Indexed<Expr> image(static_cast<std::size_t>(source.size()));
  for (const Id id : source.needed(from)) {
    const Node& n = source.node(id);
    Site site{n.op, {}, n.attr, n.shape};
    for (const Id a : source.args(id)) site.args.push_back(image[a]);
    if (n.op == Op::call) site.attr.i = add_foreign(source.foreign(n.attr.i));
    if (n.op == Op::input)
      image[id] = inputs[static_cast<std::size_t>(n.attr.i)];
    else if (n.op == Op::constant && !constants.empty())
      image[id] = constants[static_cast<std::size_t>(n.attr.i)];
    else if (n.op == Op::constant)
      image[id] = expr(add_constant(source.constant(n.attr.i)));
    else if (site.args.empty())  // no argument would say which graph is meant
      image[id] = expr(make(n.op, {}, n.attr, n.shape));
    else
      image[id] = make_node ? make_node(site, id) : build(site.op, site.args, site.attr, site.shape);
  }
  std::vector<Expr> result;
  for (const Id id : from) result.push_back(image[id]);
  return result;
}

Expr Graph::adopt(const Expr& e) {
  if (!graph_of(e)) return expr(add_scalar(literal_of(e)));
  if (graph_of(e).get() == this) return e;
  const Id id = id_of(e);
  const Node& n = graph_of(e)->node(id);
  // Most often an array of the caller's, which has a graph of its own.
  if (n.op == Op::constant) return expr(add_constant(graph_of(e)->constant(n.attr.i)));
  return import(*graph_of(e), {&id, 1}, {}).front();
}

std::vector<Expr> unify(const char* operation, std::span<const Expr> args) {
  std::shared_ptr<Graph> home;
  for (const Expr& a : args) {
    if (!graph_of(a) || graph_of(a) == home) continue;
    if (home && home->has_inputs() && graph_of(a)->has_inputs())
      fail(operation,
           "the arguments belong to two different traced functions; make the one an Input of the other, or call its "
           "Function there");
    if (!home || graph_of(a)->has_inputs()) home = graph_of(a);
  }
  if (!home) home = std::make_shared<Graph>();
  std::vector<Expr> result;
  result.reserve(args.size());
  for (const Expr& a : args) result.push_back(home->adopt(a));
  return result;
}

std::vector<Id> ids_of(std::span<const Expr> expressions) {
  std::vector<Id> ids;
  ids.reserve(expressions.size());
  for (const Expr& e : expressions) ids.push_back(id_of(e));
  return ids;
}

namespace {
Site checked(Op op, std::vector<Expr> unified, const Attr& attr, const Shape& shape) {
  Site site{op, std::move(unified), attr, shape};
  site.shape = info(op).shape(site);
  return site;
}
}  // namespace

Expr build_unified(Op op, std::vector<Expr> args, const Attr& attr, const Shape& shape) {
  const Site site = checked(op, std::move(args), attr, shape);
  const Maybe simpler = rewrite(site);
  // A rule that made a number or an identity made it in a graph of its own.
  return !simpler ? site.make() : site.args.empty() ? *simpler : graph_of(site[0])->adopt(*simpler);
}
Expr build(Op op, std::span<const Expr> args, const Attr& attr, const Shape& shape) {
  return build_unified(op, unify(name(op), args), attr, shape);
}
Expr build(Op op, std::initializer_list<Expr> args, const Attr& attr, const Shape& shape) {
  return build(op, std::span(args.begin(), args.size()), attr, shape);
}
Expr build_as_is(Op op, std::initializer_list<Expr> args, const Attr& attr, const Shape& shape) {
  return checked(op, unify(name(op), {args.begin(), args.size()}), attr, shape).make();
}

const Node& origin(const Expr& e) {
  const Graph& graph = *graph_of(e);
  Id id = id_of(e);
  while (graph.node(id).op == Op::broadcast || graph.node(id).op == Op::reshape) id = graph.args(id)[0];
  return graph.node(id);
}

std::optional<double> literal(const Expr& e) {
  if (!graph_of(e)) return literal_of(e);
  const Node& n = origin(e);
  return n.op == Op::scalar ? std::optional(n.attr.value()) : std::nullopt;
}

bool may_move(const Expr& factor) {
  const auto value = literal(factor);
  return !value || (std::fabs(*value) >= 0x1p-64 && std::fabs(*value) <= 0x1p64);
}

}  // namespace onestep
