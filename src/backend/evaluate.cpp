// A function evaluated once, by a plan of its own in the default context.
#include "graph/graph.h"
#include "onestep/plan.h"

namespace onestep {

std::vector<Array> evaluate(const Function& function, std::span<const Array> inputs) {
  check_inputs("evaluate", function.inputs(), inputs);
  const Plan plan(function);
  Workspace workspace = plan.workspace();
  std::vector<std::vector<double>> values;
  for (const Expr& e : function.outputs()) values.emplace_back(static_cast<std::size_t>(e.shape().size()));
  plan.run(workspace, inputs, std::vector<std::span<double>>(values.begin(), values.end()));
  std::vector<Array> result;
  for (std::size_t i = 0; i < values.size(); ++i) result.emplace_back(function.outputs()[i].shape(), std::move(values[i]));
  return result;
}

Array evaluate(const Expr& expression) {
  return evaluate(Function({}, [&](std::span<const Expr>) { return std::vector{expression}; }), std::span<const Array>())
      .front();
}

}  // namespace onestep
