// The arena nodes live in. A node names its arguments by index, so creation order is topological order, a transform is one
// loop over the indices, and the same operation on the same arguments is the same node (hash-consing).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/op.h"
#include "onestep/array.h"
#include "onestep/expr.h"

namespace onestep {

using Id = std::int32_t;

/// What an operation needs beside its arguments. The meaning of i and j is the operation's (see Rules in rules.cpp):
/// matmul: transpose flags; sum, max, concat: axis (-1 for all); slice, pad: axis and begin; eye: offset; solve: transposed;
/// input, constant, call: index into the graph's lists (call: j says value, jvp, or 2 + which argument's vjp).
struct Attr {
  std::int64_t i = 0;
  std::int64_t j = 0;
  double value = 0.0;  ///< of a scalar
  bool operator==(const Attr& other) const;
};

struct Node {
  Op op{};
  std::int32_t first_arg = 0;
  std::int32_t arg_count = 0;
  Shape shape;
  Attr attr;
};

class Graph : public std::enable_shared_from_this<Graph> {
 public:
  std::int32_t size() const { return static_cast<std::int32_t>(nodes_.size()); }
  const Node& node(Id id) const { return nodes_[static_cast<std::size_t>(id)]; }
  std::span<const Id> args(Id id) const;
  Expr expr(Id id) { return {shared_from_this(), id}; }

  /// The node for this operation, made if it is not there. Nothing is checked or rewritten: that is build()'s work.
  Id make(Op op, std::span<const Id> args, const Attr& attr, const Shape& shape);

  Id add_input(std::string name, const Shape& shape);
  Id add_constant(const Array& array);
  Id add_scalar(double value);
  std::int64_t add_foreign(std::shared_ptr<const Foreign> function);

  std::span<const Id> inputs() const { return inputs_; }
  const std::string& input_name(std::int64_t index) const { return names_[static_cast<std::size_t>(index)]; }
  const Array& constant(std::int64_t index) const { return constants_[static_cast<std::size_t>(index)]; }
  const std::shared_ptr<const Foreign>& foreign(std::int64_t index) const {
    return foreigns_[static_cast<std::size_t>(index)];
  }

  /// Which nodes the given ones depend on (themselves included).
  std::vector<bool> reachable(std::span<const Id> from) const;
  /// Which nodes up to `last` depend on one of `sources` (themselves included).
  std::vector<bool> dependents(std::span<const Id> sources, Id last) const;

  /// Copies the nodes `from` depend on into this graph, inputs replaced by `inputs` (one for each input of `source`), and
  /// returns where they went. The nodes are built anew, so rules that now apply are applied.
  std::vector<Expr> import(const Graph& source, std::span<const Id> from, std::span<const Expr> inputs);

 private:
  std::size_t hash(Op op, std::span<const Id> args, const Attr& attr, const Shape& shape) const;
  bool same(Id id, Op op, std::span<const Id> args, const Attr& attr, const Shape& shape) const;
  void grow_table();

  std::vector<Node> nodes_;
  std::vector<Id> arg_pool_;
  std::vector<Id> table_;  // open addressing, -1 where empty
  std::vector<Id> inputs_;
  std::vector<std::string> names_;
  std::vector<Array> constants_;
  std::vector<std::shared_ptr<const Foreign>> foreigns_;
};

/// The one way expressions are made: brings the arguments into one graph, checks their shapes by the operation's rule,
/// rewrites (rewrite.h) and adds the node.
Expr build(Op op, std::span<const Expr> args, const Attr& attr = {}, const Shape& shape = {});
Expr build(Op op, std::initializer_list<Expr> args, const Attr& attr = {}, const Shape& shape = {});

/// Like build, without rewriting: for a plan that knows better what pays in its loop.
Expr build_as_is(Op op, std::initializer_list<Expr> args, const Attr& attr = {}, const Shape& shape = {});

/// Brings all into one graph: that of the inputs, if any. Throws Error, naming `operation`, when two have inputs of their
/// own.
std::vector<Expr> unify(const char* operation, std::span<const Expr> args);

// Looking at expressions, for rules.
inline const Node& node(const Expr& e) { return e.graph()->node(e.id()); }
inline bool is(const Expr& e, Op op) { return e.graph() ? node(e).op == op : op == Op::scalar; }
inline Expr arg(const Expr& e, int i) { return e.graph()->expr(e.graph()->args(e.id())[static_cast<std::size_t>(i)]); }
inline bool same(const Expr& a, const Expr& b) { return a.graph() == b.graph() && a.id() == b.id() && a.graph() != nullptr; }
/// The value if every entry is this one number written in the function.
std::optional<double> literal(const Expr& e);
inline bool is_literal(const Expr& e, double value) { return literal(e) == value; }

}  // namespace onestep
