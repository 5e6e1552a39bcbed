// Comparing traced lambdas, and making their data arguments.
#include "solve/model.h"

#include <algorithm>

#include "graph/graph.h"

namespace onestep::detail {

std::span<const Array> data_of(const Function& traced) { return traced.graph()->constants(); }

bool same_graph(const Function& a, const Function& b) {
  return std::ranges::equal(a.outputs(), b.outputs(), {}, &Expr::id, &Expr::id) && a.graph()->has_same_nodes(*b.graph());
}

bool same_data(const Function& a, const Function& b) {
  return std::ranges::equal(data_of(a), data_of(b), [](const Array& one, const Array& other) {
    return one.data() == other.data() && one.row_stride() == other.row_stride() &&
           one.column_stride() == other.column_stride();
  });
}

bool has_views(const Function& traced) {
  return !std::ranges::all_of(data_of(traced), [](const Array& a) { return a.owns_entries(); });
}

Body with_data_as_arguments(const Function& traced) {
  std::vector<Input> inputs(traced.inputs().begin(), traced.inputs().end());
  const std::size_t arguments = inputs.size();
  for (const Array& a : data_of(traced)) inputs.emplace_back("data", a.shape());
  const auto as_it_is = [](const Site& site, Id) { return site.make(); };
  Function lifted(inputs, [&](std::span<const Expr> in) {
    if (in.empty()) return std::vector<Expr>(traced.outputs().begin(), traced.outputs().end());
    return in.front().graph()->import(*traced.graph(), ids_of(traced.outputs()), in.first(arguments), as_it_is,
                                      in.subspan(arguments));
  });
  const std::size_t all = inputs.size();
  return {[lifted = std::move(lifted)](std::span<const Expr> in) { return lifted(in); }, all};
}

}  // namespace onestep::detail
