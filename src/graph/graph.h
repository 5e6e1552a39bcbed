// The arena nodes live in. A node names its arguments by index, so creation order is topological order, a transform is one
// loop over the indices, and the same operation on the same arguments is the same node (hash-consing).
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/access.h"
#include "graph/op.h"
#include "onestep/array.h"
#include "onestep/expr.h"

namespace onestep {

struct Input;
using Id = std::int32_t;
using Maybe = std::optional<Expr>;

/// A vector indexed by any whole number: nodes, buffers and inputs are counted with signed ones.
template <class T> struct Indexed : std::vector<T> {
  using std::vector<T>::vector;
  decltype(auto) operator[](std::integral auto i) { return std::vector<T>::operator[](static_cast<std::size_t>(i)); }
  decltype(auto) operator[](std::integral auto i) const { return std::vector<T>::operator[](static_cast<std::size_t>(i)); }
};

/// What an operation needs beside its arguments:
/// matmul: transpose flags; sum, max, norm, cumsum, concat, gather, scatter: axis (-1 for all; cumsum: j is not 0 where it
/// goes backwards); slice, pad: axis and begin; eye: offset; solve: transposed;
/// input, constant, call: index into the graph's lists (call: j says value, jvp, or 2 + which argument's vjp); scalar: the
/// bits of its value, so that NaN equals itself and 0.0 is not -0.0.
struct Attr {
  std::int64_t i = 0, j = 0;
  bool operator==(const Attr& other) const = default;
  double value() const { return std::bit_cast<double>(i); }
};

struct Node {
  Op op{};
  std::int32_t first_arg = 0, arg_count = 0;
  Shape shape;
  Attr attr;
  bool operator==(const Node& other) const = default;
};

/// An operation with its arguments, before it is a node or read back from one.
struct Site {
  Op op{};
  std::vector<Expr> args;
  Attr attr;
  Shape shape;  ///< of the result; reshape, broadcast, slice, pad and eye are asked for it, the others find theirs

  const Expr& operator[](std::size_t i) const { return args[i]; }
  /// The node, as it is: nothing is checked or rewritten.
  Expr make() const;
};
Site site_of(const Expr& e);

class Graph : public std::enable_shared_from_this<Graph> {
 public:
  Id size() const { return static_cast<Id>(nodes_.size()); }
  const Node& node(Id id) const { return nodes_[id]; }
  std::span<const Id> args(Id id) const;
  Expr expr(Id id) { return detail::Access::expr(shared_from_this(), id); }

  /// The node for this operation, made if it is not there. Nothing is checked or rewritten: that is build()'s work.
  Id make(Op op, std::span<const Id> args, const Attr& attr, const Shape& shape);

  /// The same node once more, which no other node shares.
  Id repeat(Id id) { return nodes_.push_back(Node(nodes_[id])), size() - 1; }

  Id add_input(std::string name, const Shape& shape);
  Id add_constant(const Array& array);
  Id add_scalar(double value) { return make(Op::scalar, {}, {.i = std::bit_cast<std::int64_t>(value)}, {}); }
  std::int64_t add_foreign(std::shared_ptr<const Foreign> function);

  bool has_inputs() const { return !names_.empty(); }
  const std::string& input_name(std::int64_t index) const { return names_[index]; }
  const Array& constant(std::int64_t index) const { return constants_[index]; }
  std::span<const Array> constants() const { return constants_; }
  const std::shared_ptr<const Foreign>& foreign(std::int64_t index) const { return foreigns_[index]; }

  /// Whether the other graph was built by the same operations in the same order, whatever the entries of its constants.
  bool has_same_nodes(const Graph& other) const;

  /// Which nodes the given ones depend on (themselves included).
  Indexed<bool> reachable(std::span<const Id> from) const;
  /// The same as a list, in order.
  std::vector<Id> needed(std::span<const Id> from) const;
  /// Which nodes are on the way from one of `sources` to one of `results` (both included).
  Indexed<bool> between(std::span<const Id> sources, std::span<const Id> results) const;
  /// Those of them that have kinks which may be seen in the results: what is `arbitrary` is not.
  std::vector<Id> kinks_between(std::span<const Id> sources, std::span<const Id> results) const;

  /// Copies the nodes `from` depend on into this graph, inputs replaced by `inputs` (one for each input of `source`), and
  /// returns where they went. `make_node` makes each that has arguments (and has that number in `source`); without it they
  /// are built anew, so that rules which now apply are applied. Constants are copied too, unless `constants` has an
  /// expression to stand for each.
  std::vector<Expr> import(const Graph& source, std::span<const Id> from, std::span<const Expr> inputs,
                           const std::function<Expr(const Site&, Id)>& make_node = nullptr,
                           std::span<const Expr> constants = {});
  /// A number, or an expression without inputs of another graph, as one of this graph.
  Expr adopt(const Expr& e);

 private:
  std::size_t slot(Op op, std::span<const Id> args, const Attr& attr, const Shape& shape) const;
  std::int64_t index_of(const Array& array);
  static constexpr std::size_t usual_nodes = 32;

  Indexed<Node> nodes_;
  std::vector<Id> arg_pool_;
  std::vector<Id> table_;  // open addressing, -1 where empty
  Indexed<std::string> names_;
  Indexed<Array> constants_;
  std::unordered_multimap<const double*, std::int64_t> constants_at_;  // by where their entries are, once there are many
  Indexed<std::shared_ptr<const Foreign>> foreigns_;
};

/// The one way expressions are made: brings the arguments into one graph, checks their shapes by the operation's rule,
/// rewrites (rewrite.cpp) and adds the node.
Expr build(Op op, std::span<const Expr> args, const Attr& attr = {}, const Shape& shape = {});
Expr build(Op op, std::initializer_list<Expr> args, const Attr& attr = {}, const Shape& shape = {});
/// The same of arguments that are in one graph already.
Expr build_unified(Op op, std::vector<Expr> args, const Attr& attr = {}, const Shape& shape = {});
/// Like build, without rewriting: for those who know better what pays.
Expr build_as_is(Op op, std::initializer_list<Expr> args, const Attr& attr = {}, const Shape& shape = {});

/// Throws MisuseError, naming `operation`, unless there is an array of the right shape for each input.
void check_inputs(const char* operation, std::span<const Input> inputs, std::span<const Array> given);

/// Brings all into one graph: that of the inputs, if any. Throws MisuseError, naming `operation`, when two have inputs of
/// their own.
std::vector<Expr> unify(const char* operation, std::span<const Expr> args);
std::vector<Id> ids_of(std::span<const Expr> expressions);

// Looking at expressions, for rules.
inline const Node& node(const Expr& e) { return graph_of(e)->node(id_of(e)); }
inline Expr arg(const Expr& e, int i) {
  return detail::Access::expr(graph_of(e), graph_of(e)->args(id_of(e))[static_cast<std::size_t>(i)]);
}
template <class... Ops> bool is(const Expr& e, Ops... ops) {
  const Op op = graph_of(e) ? node(e).op : Op::scalar;
  return ((op == ops) || ...);
}
inline bool same(const Expr& a, const Expr& b) {
  return graph_of(a) == graph_of(b) && id_of(a) == id_of(b) && graph_of(a) != nullptr;
}
/// The node whose entries e repeats or reshapes.
const Node& origin(const Expr& e);
/// The value if every entry is this one number written in the function.
std::optional<double> literal(const Expr& e);
inline bool is_literal(const Expr& e, double value) { return literal(e) == value; }
/// A factor that may be multiplied with others first: one not known yet, or a number of moderate size.
bool may_move(const Expr& factor);

}  // namespace onestep
