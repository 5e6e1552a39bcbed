// Programs as text: what is run, in order, and where.
#include <fmt/format.h>

#include "graph/rules.h"
#include "onestep/plan.h"
#include "plan/program.h"

namespace onestep {
namespace {

using namespace detail;

std::string buffer_name(const Program& program, Buffer b) {
  const BufferInfo& info = program.buffers[static_cast<std::size_t>(b)];
  switch (info.storage) {
    case Storage::input: return program.inputs[static_cast<std::size_t>(info.index)].name;
    case Storage::literal: return fmt::format("{}", program.literals[static_cast<std::size_t>(info.index)]);
    case Storage::constant: return fmt::format("constant{}", info.index);
    case Storage::arena: break;
  }
  return fmt::format("b{}", b);
}

std::string operand_name(const Program& program, const RowOperand& o) {
  switch (o.kind) {
    case RowOperand::Kind::none: return "";
    case RowOperand::Kind::tile: return fmt::format("t{}", o.index);
    case RowOperand::Kind::rows:
    case RowOperand::Kind::columns: return buffer_name(program, o.index) + "[rows]";
    case RowOperand::Kind::number:
    case RowOperand::Kind::whole: break;
  }
  return buffer_name(program, o.index);
}

const char* kind_name(const RowOp& op) {
  switch (op.kind) {
    case RowOp::Kind::elementwise: return name(op.op);
    case RowOp::Kind::fill: return "fill";
    case RowOp::Kind::expand_row: return "expand row";
    case RowOp::Kind::expand_column: return "expand column";
    case RowOp::Kind::product: return "product";
    case RowOp::Kind::sum_rows: return "sum along rows";
    case RowOp::Kind::max_rows: return "max along rows";
    case RowOp::Kind::sum_all: return "+= sum";
    case RowOp::Kind::dot: return "+= dot";
    case RowOp::Kind::sum_down: return "+= sum down";
    case RowOp::Kind::max_all: return "max= max";
    case RowOp::Kind::max_down: return "max= max down";
    case RowOp::Kind::transposed_product: return "+= transposed product";
    case RowOp::Kind::gram: return op.flag ? "+= gram" : "+= gram (lower)";
  }
  return "";
}

}  // namespace

std::string Plan::text() const {
  std::string out;
  for (const Instruction& i : program_->code) {
    if (!i.is_loop()) {
      std::string args;
      for (const Buffer b : i.args) args += (args.empty() ? "" : ", ") + buffer_name(*program_, b);
      out += fmt::format("level {}  {} = {}{}({})  {}\n", i.level, buffer_name(*program_, i.out), name(i.op),
                         i.op == Op::add ? " diagonal" : "", args, to_string(i.shape));
      continue;
    }
    out += fmt::format("level {}  for each of {} rows, by blocks\n", i.level, i.loop.rows);
    for (const RowOp& op : i.loop.ops) {
      std::string args;
      for (const RowOperand& a : op.args)
        if (a.kind != RowOperand::Kind::none) args += (args.empty() ? "" : ", ") + operand_name(*program_, a);
      out += fmt::format("           {} {} {}({})\n", operand_name(*program_, op.out), accumulates(op.kind) ? "" : "=",
                         kind_name(op), args);
    }
  }
  return out + fmt::format("{} bytes of workspace\n", workspace_bytes());
}

}  // namespace onestep
