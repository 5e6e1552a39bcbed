// Graphs as text and for Graphviz.
#include <fmt/format.h>

#include "graph/graph.h"
#include "graph/rules.h"
#include "onestep/function.h"

namespace onestep {
namespace {

// How a node is called where it is used: inputs and numbers by themselves, the rest by number.
std::string label(Graph& graph, Id id) {
  const Node& n = graph.node(id);
  if (n.op == Op::input) return graph.input_name(n.attr.i);
  if (n.op == Op::scalar) return fmt::format("{}", n.attr.value);
  return fmt::format("%{}", id);
}

std::string operation(Graph& graph, Id id) {
  std::string attributes = info(graph.node(id).op).attributes(site_of(graph.expr(id)), graph.node(id).shape);
  return attributes.empty() ? name(graph.node(id).op) : fmt::format("{}[{}]", name(graph.node(id).op), attributes);
}

// A name inside the quotes of a label.
std::string quoted(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
  return out;
}

// Inputs, and what costs more than a pass over vectors.
const char* colour(Op op) {
  if (op == Op::input) return ", style=\"rounded,filled\", fillcolor=lightblue";
  if (op == Op::matmul || op == Op::gram || op == Op::solve || is_factor(op))
    return ", style=\"rounded,filled\", fillcolor=moccasin";
  return "";
}

template <class Visit> void for_each_needed(const Graph& graph, std::span<const Id> results, Visit visit) {
  const std::vector<bool> needed = graph.reachable(results);
  for (Id id = 0; id < graph.size(); ++id)
    if (needed[static_cast<std::size_t>(id)]) visit(id);
}

std::string text_of(Graph& graph, std::span<const Id> results) {
  std::string out;
  for_each_needed(graph, results, [&](Id id) {
    const Node& n = graph.node(id);
    if (n.op == Op::scalar) return;
    std::string args;
    for (const Id a : graph.args(id)) args += (args.empty() ? "" : ", ") + label(graph, a);
    if (n.op == Op::input)
      out += fmt::format("input {} {}\n", label(graph, id), to_string(n.shape));
    else
      out += fmt::format("{} = {}({})  {}\n", label(graph, id), operation(graph, id), args, to_string(n.shape));
  });
  out += "return";
  for (std::size_t i = 0; i < results.size(); ++i) out += (i == 0 ? " " : ", ") + label(graph, results[i]);
  return out + '\n';
}

std::vector<Id> ids_of(std::span<const Expr> results) {
  std::vector<Id> ids;
  for (const Expr& e : results) ids.push_back(e.id());
  return ids;
}

}  // namespace

std::string to_string(const Expr& e) {
  if (!e.graph()) return fmt::format("return {}\n", e.literal());
  const Id id = e.id();
  return text_of(*e.graph(), {&id, 1});
}

std::string Function::text() const {
  return outputs_.empty() ? "return\n" : text_of(*outputs_.front().graph(), ids_of(outputs_));
}

std::string Function::dot() const {
  std::string out = "digraph onestep {\n  rankdir=TB;\n  node [shape=box, style=rounded, fontname=\"sans-serif\"];\n";
  if (!outputs_.empty()) {
    Graph& graph = *outputs_.front().graph();
    for_each_needed(graph, ids_of(outputs_), [&](Id id) {
      const Node& n = graph.node(id);
      const bool leaf = n.op == Op::input || n.op == Op::scalar;
      out += fmt::format("  n{} [label=\"{}\\n{}\"{}];\n", id, quoted(leaf ? label(graph, id) : operation(graph, id)),
                         to_string(n.shape), colour(n.op));
      for (const Id a : graph.args(id)) out += fmt::format("  n{} -> n{};\n", a, id);
    });
    for (std::size_t i = 0; i < outputs_.size(); ++i)
      out +=
          fmt::format("  result{0} [shape=plaintext, label=\"result {0}\"];\n  n{1} -> result{0};\n", i, outputs_[i].id());
  }
  return out + "}\n";
}

}  // namespace onestep
