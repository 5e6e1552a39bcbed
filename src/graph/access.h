// What is private in the values users hold, as the library reads it.
#pragma once

#include <memory>

#include "onestep/function.h"

namespace onestep {
namespace detail {

struct Access {
  static Expr expr(std::shared_ptr<Graph> graph, std::int32_t id) { return {std::move(graph), id}; }
  static const std::shared_ptr<Graph>& graph(const Expr& e) { return e.graph_; }
  static std::int32_t id(const Expr& e) { return e.id_; }
  static double literal(const Expr& e) {
    if (e.id_ == Expr::moved_from) fail_moved_from("Expr");
    return e.literal_;
  }
  static Factor factor(Expr node) { return Factor(std::move(node)); }
  static const Expr& node(const Factor& factor) { return factor.node_; }
  static const std::shared_ptr<const Graph>& graph(const Function& f) { return f.graph(); }
  static bool owns_entries(const Array& a) { return a.data_.use_count() > 0; }
  static Array array(Shape shape, std::shared_ptr<const double> entries) {
    return {shape, std::move(entries), shape.rank() == 2 ? shape[1] : 1, 1};
  }
};

}  // namespace detail

/// Where the node lives: none for a number that was not yet used with anything else.
inline const std::shared_ptr<Graph>& graph_of(const Expr& e) { return detail::Access::graph(e); }
inline std::int32_t id_of(const Expr& e) { return detail::Access::id(e); }
/// Of an expression that lives in no graph.
inline double literal_of(const Expr& e) { return detail::Access::literal(e); }
inline const Expr& node_of(const Factor& factor) { return detail::Access::node(factor); }
/// Throws MisuseError unless the node is a factorisation.
inline Factor factor_of(Expr node) { return detail::Access::factor(std::move(node)); }
inline const std::shared_ptr<const Graph>& graph_of(const Function& f) { return detail::Access::graph(f); }
/// False for a view, whose entries may change.
inline bool owns_entries(const Array& a) { return detail::Access::owns_entries(a); }
/// Entries row by row, in memory that something else may own a part of, too.
inline Array array_of(Shape shape, std::shared_ptr<const double> entries) {
  return detail::Access::array(shape, std::move(entries));
}

}  // namespace onestep
