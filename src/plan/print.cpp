// Programs as text: what is run, in order, and where.
#include "graph/fail.h"
#include "graph/rules.h"
#include "onestep/plan.h"
#include "plan/program.h"

namespace onestep {
namespace {

using namespace detail;

std::string buffer_name(const Program& program, Buffer b) {
  const BufferInfo& info = program.buffers[b];
  switch (info.storage) {
    case Storage::input: return program.inputs[info.index].name;
    case Storage::literal: return fmt::format("{}", program.literals[info.index]);
    case Storage::constant: return fmt::format("constant{}", info.index);
    default: return fmt::format("b{}", b);
  }
}

std::string operand_name(const Program& program, const RowOperand& o) {
  if (o.kind == RowOperand::Kind::tile) return fmt::format("t{}", o.index);
  const bool by_rows = o.kind == RowOperand::Kind::rows || o.kind == RowOperand::Kind::columns;
  return buffer_name(program, o.index) + (by_rows ? "[rows]" : "");
}

// In the order of RowOp::Kind; an elementwise one has its operation's name.
constexpr const char* kind_names[] = {
    "",       "fill",   "expand row",  "expand column", "product",       "sum along rows",        "max along rows",
    "+= sum", "+= dot", "+= sum down", "max= max",      "max= max down", "+= transposed product", "+= gram"};

}  // namespace

std::string Plan::text() const {
  std::string out;
  for (const Instruction& i : program_->code) {
    std::string args;
    const auto add = [&](const std::string& arg) { args += (args.empty() ? "" : ", ") + arg; };
    if (i.is_loop()) {
      out += fmt::format("level {}  for each of {} rows, by blocks\n", i.level, i.loop.rows);
    } else {
      for (const Buffer b : i.args) add(buffer_name(*program_, b));
      out += fmt::format("level {}  {} = {}{}({})  {}\n", i.level, buffer_name(*program_, i.out), name(i.op),
                         i.op == Op::add ? " diagonal" : "", args, i.shape);
    }
    for (const RowOp& op : i.loop.ops) {
      args.clear();
      for (const RowOperand& a : op.args)
        if (a.kind != RowOperand::Kind::none) add(operand_name(*program_, a));
      const bool elementwise = op.kind == RowOp::Kind::elementwise, lower = op.kind == RowOp::Kind::gram && !op.flag;
      out += fmt::format("           {} {} {}{}({})\n", operand_name(*program_, op.out), accumulates(op.kind) ? "" : "=",
                         elementwise ? name(op.op) : kind_names[static_cast<std::size_t>(op.kind)], lower ? " (lower)" : "",
                         args);
    }
  }
  return out + fmt::format("{} bytes of workspace\n", workspace_bytes());
}

}  // namespace onestep
