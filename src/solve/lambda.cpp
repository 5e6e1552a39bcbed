// Comparing traced lambdas, and making their data arguments.
#include "solve/lambda.h"

#include <algorithm>
#include <cstring>

#include "graph/graph.h"

namespace onestep::detail {

std::span<const Array> data_of(const Function& traced) { return graph_of(traced)->constants(); }

bool same_graph(const Function& a, const Function& b) {
  return std::ranges::equal(a.outputs(), b.outputs(), {}, id_of, id_of) && graph_of(a)->has_same_nodes(*graph_of(b));
}

bool same_data(const Function& a, const Function& b) {
  return std::ranges::equal(data_of(a), data_of(b), [](const Array& one, const Array& other) {
    if (one.row_stride() != other.row_stride() || one.column_stride() != other.column_stride()) return false;
    if (one.data() == other.data()) return true;
    // What a lambda computes from its data, -y or the indices of gather, is made anew each time it is called.
    return owns_entries(one) && owns_entries(other) && one.is_contiguous() && other.is_contiguous() &&
           std::memcmp(one.data(), other.data(), one.values().size_bytes()) == 0;
  });
}

bool has_views(const Function& traced) {
  return !std::ranges::all_of(data_of(traced), [](const Array& a) { return owns_entries(a); });
}

namespace {
// Of each call of a solve in the function.
template <class Visit> void visit_solves(const Function& traced, const Visit& visit) {
  const Graph& graph = *graph_of(traced);
  for (const Id id : graph.needed(ids_of(traced.outputs()))) {
    if (graph.node(id).op != Op::call) continue;
    if (const auto* solve = dynamic_cast<const SolveInside*>(graph.foreign(graph.node(id).attr.i).get())) visit(*solve, id);
  }
}
}  // namespace

bool has_solves(const Function& traced) {
  bool has = false;
  visit_solves(traced, [&](const SolveInside&, Id) { has = true; });
  return has;
}

std::string left_out_inside(const Function& traced) {
  std::string first;
  visit_solves(traced, [&](const SolveInside& solve, Id) {
    if (first.empty()) first = solve.left_out();
  });
  return first;
}

bool lacks_orders_inside(const Function& traced, int orders) {
  const Graph& graph = *graph_of(traced);
  bool lacks = false;
  visit_solves(traced, [&](const SolveInside& solve, Id id) {
    if (!solve.has_first_derivative_only()) return;
    // The step has one linear system behind the solve; where there are more, the function contains its derivative.
    const Indexed<bool> behind = graph.between({&id, 1}, ids_of(traced.outputs()));
    int systems = 0;
    for (Id node = 0; node < graph.size(); ++node)
      if (behind[node] && graph.node(node).op == Op::solve && behind[graph.args(node)[0]]) ++systems;
    lacks = lacks || orders + (systems > 1 ? 1 : 0) > 1;
  });
  return lacks;
}

Body with_data_as_arguments(const Function& traced, Inside inside) {
  std::vector<Input> inputs(traced.inputs().begin(), traced.inputs().end());
  const std::size_t arguments = inputs.size();
  for (const Array& a : data_of(traced)) inputs.emplace_back("data", a.shape());
  const auto make_node = [&](const Site& site, Id id) {
    if (inside == Inside::as_it_is || site.op != Op::call) return site.make();
    const auto* solve = dynamic_cast<const SolveInside*>(graph_of(traced)->foreign(graph_of(traced)->node(id).attr.i).get());
    return solve != nullptr ? call(solve->precise(), site.args) : site.make();
  };
  Function lifted(inputs, [&](std::span<const Expr> in) {
    if (in.empty()) return std::vector<Expr>(traced.outputs().begin(), traced.outputs().end());
    return graph_of(in.front())
        ->import(*graph_of(traced), ids_of(traced.outputs()), in.first(arguments), make_node, in.subspan(arguments));
  });
  const std::size_t all = inputs.size();
  return {[lifted = std::move(lifted)](std::span<const Expr> in) { return lifted(in); }, all};
}

}  // namespace onestep::detail
