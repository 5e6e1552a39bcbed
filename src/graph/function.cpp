// Traced functions: tracing, use inside another function, flop counts, printing as text and for Graphviz.
#include "onestep/function.h"

#include "graph/fail.h"
#include "graph/rules.h"

namespace onestep {

Function::Function(std::vector<Input> inputs, const Body& body) : inputs_(std::move(inputs)) {
  const auto graph = std::make_shared<Graph>();
  std::vector<Expr> arguments;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].name.empty()) inputs_[i].name = fmt::format("arg{}", i);
    arguments.push_back(graph->expr(graph->add_input(inputs_[i].name, inputs_[i].shape)));
  }
  for (const Expr& result : body(arguments)) {
    // What depends on no argument lives elsewhere.
    if (graph_of(result) && graph_of(result) != graph && graph_of(result)->has_inputs())
      fail("traced", "a result belongs to another traced function; return expressions of this function's arguments");
    outputs_.push_back(graph->adopt(result));
    if (is_factor(node(outputs_.back()).op)) fail("traced", "a factor cannot be a result; return a solve or logdet with it");
  }
  graph_ = graph;
}

std::vector<Expr> Function::operator()(std::span<const Expr> arguments) const {
  if (arguments.size() != inputs_.size())
    fail("call", "the function takes {} arguments, {} were given", inputs_.size(), arguments.size());
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (arguments[i].shape() != inputs_[i].shape)
      fail("call", "argument {} has shape {}, the function was traced for {}", inputs_[i].name, arguments[i].shape(),
           inputs_[i].shape);
  const std::vector<Expr> args = unify("call", arguments);
  const std::shared_ptr<Graph> home = args.empty() ? std::make_shared<Graph>() : graph_of(args.front());
  return home->import(*graph(), ids_of(outputs_), args);
}

void check_inputs(const char* operation, std::span<const Input> inputs, std::span<const Array> given) {
  if (given.size() != inputs.size())
    fail(operation, "{} inputs are bound, the function has {}", given.size(), inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (given[i].shape() != inputs[i].shape)
      fail(operation, "input {} has shape {}, the function was traced for {}", inputs[i].name, given[i].shape(),
           inputs[i].shape);
}

double Function::flops() const {
  graph();
  return onestep::flops(outputs_);
}
double flops(const Expr& e) { return flops({&e, 1}); }
double flops(std::span<const Expr> results) {
  const std::vector<Expr> all = unify("flops", results);
  double total = 0;
  if (!all.empty())
    for (const Id id : graph_of(all.front())->needed(ids_of(all))) total += flops(site_of(graph_of(all.front())->expr(id)));
  return total;
}

namespace {

// How a node is called where it is used: inputs and numbers by themselves, the rest by number.
std::string label(const Graph& graph, Id id) {
  const Node& n = graph.node(id);
  if (n.op == Op::input) return graph.input_name(n.attr.i);
  return n.op == Op::scalar ? fmt::format("{}", n.attr.value()) : fmt::format("%{}", id);
}

std::string operation(const Expr& e) {
  const std::string attributes = info(node(e).op).attributes(site_of(e));
  return attributes.empty() ? name(node(e).op) : fmt::format("{}[{}]", name(node(e).op), attributes);
}

std::string text_of(std::span<const Expr> results) {
  std::string out;
  if (results.empty()) return "return\n";
  Graph& graph = *graph_of(results.front());
  const auto list = [&](std::span<const Id> ids) {
    std::string all;
    for (const Id id : ids) all += (all.empty() ? "" : ", ") + label(graph, id);
    return all;
  };
  for (const Id id : graph.needed(ids_of(results))) {
    const Node& n = graph.node(id);
    if (n.op == Op::input)
      out += fmt::format("input {} {}\n", label(graph, id), n.shape);
    else if (n.op != Op::scalar)
      out += fmt::format("%{} = {}({})  {}\n", id, operation(graph.expr(id)), list(graph.args(id)), n.shape);
  }
  return out + "return " + list(ids_of(results)) + '\n';
}

// A name inside the quotes of a label.
std::string quoted(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
  return out;
}

// Inputs, and what costs more than a pass over vectors.
const char* colour(const Expr& e) {
  if (is(e, Op::input)) return ", style=\"rounded,filled\", fillcolor=lightblue";
  const bool dear = is(e, Op::matmul, Op::gram, Op::solve) || is_factor(node(e).op);
  return dear ? ", style=\"rounded,filled\", fillcolor=moccasin" : "";
}

}  // namespace

std::string to_string(const Expr& e) { return text_of(graph_of(e) ? std::vector{e} : unify("to_string", {&e, 1})); }
std::string Function::text() const {
  graph();  // or it was moved from
  return text_of(outputs_);
}
std::string Function::dot() const {
  std::string out = "digraph onestep {\n  rankdir=TB;\n  node [shape=box, style=rounded, fontname=\"sans-serif\"];\n";
  const Graph& graph = *this->graph();
  for (const Id id : graph.needed(ids_of(outputs_))) {
    const Expr e = graph_of(outputs_.front())->expr(id);
    out += fmt::format("  n{} [label=\"{}\\n{}\"{}];\n", id,
                       quoted(is(e, Op::input, Op::scalar) ? label(graph, id) : operation(e)), e.shape(), colour(e));
    for (const Id a : graph.args(id)) out += fmt::format("  n{} -> n{};\n", a, id);
  }
  for (std::size_t i = 0; i < outputs_.size(); ++i)
    out +=
        fmt::format("  result{0} [shape=plaintext, label=\"result {0}\"];\n  n{1} -> result{0};\n", i, id_of(outputs_[i]));
  return out + "}\n";
}

}  // namespace onestep
