// Traced functions: tracing, use inside another function, flop counts.
#include "onestep/function.h"

#include <fmt/format.h>

#include "graph/graph.h"
#include "graph/rules.h"

namespace onestep {

Function::Function(std::vector<Input> inputs, const Body& body) : inputs_(std::move(inputs)) {
  const auto graph = std::make_shared<Graph>();
  std::vector<Expr> arguments;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].name.empty()) inputs_[i].name = fmt::format("arg{}", i);
    arguments.push_back(graph->expr(graph->add_input(inputs_[i].name, inputs_[i].shape)));
  }
  for (Expr& result : body(arguments)) {
    // A result that depends on no argument lives elsewhere: bring it home beside an input, or a number where there is none.
    const Expr home = arguments.empty() ? graph->expr(graph->add_scalar(0.0)) : arguments.front();
    outputs_.push_back(unify("trace", std::vector<Expr>{home, result})[1]);
    if (outputs_.back().graph() != graph)
      throw Error("[trace] a result belongs to another traced function; return expressions of this function's arguments");
    if (is_factor(node(outputs_.back()).op))
      throw Error("[trace] a factor cannot be a result; return a solve or logdet with it");
  }
  graph_ = graph;
}

std::vector<Expr> Function::operator()(std::span<const Expr> arguments) const {
  if (arguments.size() != inputs_.size())
    throw Error(fmt::format("[call] the function takes {} arguments, {} were given", inputs_.size(), arguments.size()));
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (arguments[i].shape() != inputs_[i].shape)
      throw Error(fmt::format("[call] argument {} has shape {}, the function was traced for {}", inputs_[i].name,
                              to_string(arguments[i].shape()), to_string(inputs_[i].shape)));
  const std::vector<Expr> args = unify("call", arguments);
  std::vector<Id> ids;
  for (const Expr& e : outputs_) ids.push_back(e.id());
  const std::shared_ptr<Graph> home = args.empty() ? std::make_shared<Graph>() : args.front().graph();
  return home->import(*graph_, ids, args);
}

double Function::flops() const { return onestep::flops(outputs_); }

double flops(const Expr& e) { return flops(std::span<const Expr>(&e, 1)); }

double flops(std::span<const Expr> results) {
  if (results.empty()) return 0;
  const std::vector<Expr> all = unify("flops", results);
  const std::shared_ptr<Graph>& graph = all.front().graph();
  std::vector<Id> ids;
  for (const Expr& e : all) ids.push_back(e.id());
  const std::vector<bool> needed = graph->reachable(ids);
  double total = 0;
  for (Id id = 0; id < graph->size(); ++id)
    if (needed[static_cast<std::size_t>(id)])
      total += info(graph->node(id).op).flops(site_of(graph->expr(id)), graph->node(id).shape);
  return total;
}

}  // namespace onestep
