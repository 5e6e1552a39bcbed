// From a schedule to a program: row loops and single instructions in order, and the buffers they need.
#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "graph/rules.h"
#include "plan/schedule.h"

namespace onestep::detail {
namespace {

constexpr int for_ever = std::numeric_limits<int>::max();
constexpr std::int32_t no_tile = -1;

// A tall matrix with few columns is read through a transposed copy, made when it changes: vector instructions then run down
// its columns.
constexpr std::int64_t few_columns = 24;
constexpr std::int64_t many_rows = 32;

class Compiler {
 public:
  Compiler(const Function& function, const std::vector<int>& levels, int loop, int branches)
      : graph_(*function.graph()), results_(ids_of(function)), schedule_(graph_, results_, levels, loop, branches) {
    program_.branches = branches;
    program_.graph = function.graph();
    program_.inputs.assign(function.inputs().begin(), function.inputs().end());
    program_.levels = levels.empty() ? std::vector<int>(program_.inputs.size(), 0) : levels;
    buffer_of_.assign(static_cast<std::size_t>(graph_.size()), no_buffer);
    tile_of_.assign(static_cast<std::size_t>(graph_.size()), no_tile);
    last_reader_.assign(static_cast<std::size_t>(graph_.size()), -1);
    find_stored();
    find_dots();
    find_lower_only();
    emit();
    for (const Id id : results_) add_result(id);
    insert_copies();
    find_lifetimes();
    find_direct();
  }
  Program take() { return std::move(program_); }

 private:
  static std::vector<Id> ids_of(const Function& function) {
    std::vector<Id> ids;
    for (const Expr& e : function.outputs()) ids.push_back(e.id());
    return ids;
  }
  static std::size_t at(Id id) { return static_cast<std::size_t>(id); }
  bool scheduled(Id id) const { return schedule_[id].role >= Role::row; }

  // Values read outside the loop that makes them need memory of their own; the others live in tiles.
  void find_stored() {
    stored_.assign(static_cast<std::size_t>(graph_.size()), false);
    for (Id id = 0; id < graph_.size(); ++id) {
      if (!scheduled(id)) continue;
      if (schedule_[id].role != Role::row) stored_[at(id)] = true;
      const std::vector<Id> read = schedule_.reads(id);
      for (std::size_t i = 0; i < read.size(); ++i)
        if (!(schedule_.together(id, read[i]) && schedule_.by_rows(id, i))) stored_[at(read[i])] = true;
    }
    for (const Id id : results_) stored_[at(result_root(id))] = true;
  }

  // The sum of a product of two arrays that nobody else reads is one operation, and the product none.
  void find_dots() {
    std::vector<int> readers(static_cast<std::size_t>(graph_.size()), 0);
    for (Id id = 0; id < graph_.size(); ++id)
      if (scheduled(id))
        for (const Id r : schedule_.reads(id)) ++readers[at(r)];
    in_dot_.assign(static_cast<std::size_t>(graph_.size()), false);
    for (Id id = 0; id < graph_.size(); ++id) {
      if (!scheduled(id) || graph_.node(id).op != Op::sum || schedule_[id].role != Role::reduce) continue;
      const Id product = schedule_.reads(id)[0];
      const bool whole_sum = graph_.node(id).shape.rank() == 0;
      in_dot_[at(product)] = whole_sum && scheduled(product) && graph_.node(product).op == Op::mul &&
                             !stored_[at(product)] && readers[at(product)] == 1 && !schedule_.reads_number(product, 0) &&
                             !schedule_.reads_number(product, 1);
    }
  }

  // A symmetric product whose readers look at its lower triangle only is not mirrored.
  void find_lower_only() {
    needs_upper_.assign(static_cast<std::size_t>(graph_.size()), false);
    for (const Id id : results_) needs_upper_[at(result_root(id))] = true;
    for (Id id = graph_.size() - 1; id >= 0; --id) {
      if (!scheduled(id)) continue;
      const Op op = graph_.node(id).op;
      const bool lower_reader =
          op == Op::cholesky || op == Op::ldlt || (schedule_.adds_diagonal(id) && !needs_upper_[at(id)]);
      const std::vector<Id> read = schedule_.reads(id);
      for (std::size_t k = lower_reader ? 1 : 0; k < read.size(); ++k) needs_upper_[at(read[k])] = true;
    }
  }

  Id result_root(Id id) const {
    const Id root = schedule_[id].root;
    return schedule_.repeats_number(root) ? schedule_[graph_.args(root)[0]].root : root;
  }

  void add_result(Id id) {
    const Id root = result_root(id);
    Buffer from = buffer(root);
    // An input that is a result is copied before any result is written: outputs may lie where inputs do.
    if (graph_.node(root).op == Op::input) from = copy(root, Op::reshape, graph_.node(root).shape, graph_.node(root).shape);
    program_.results.push_back(
        {from, graph_.node(id).shape, schedule_.repeats_number(schedule_[id].root), schedule_[root].level});
  }

  Buffer buffer(Id root) {
    Buffer& b = buffer_of_[at(root)];
    if (b != no_buffer) return b;
    const Node& n = graph_.node(root);
    BufferInfo info;
    info.entries = static_cast<std::size_t>(n.shape.size());
    if (n.op == Op::input) {
      program_.input_buffers.push_back(static_cast<Buffer>(program_.buffers.size()));
      info.storage = Storage::input;
      info.index = n.attr.i;
    } else if (n.op == Op::constant) {
      info.storage = Storage::constant;
      info.index = static_cast<std::int64_t>(program_.constants.size());
      program_.constants.push_back(graph_.constant(n.attr.i).contiguous());
    } else if (n.op == Op::scalar) {
      info.storage = Storage::literal;
      info.index = static_cast<std::int64_t>(program_.literals.size());
      program_.literals.push_back(n.attr.value);
    } else if (is_factor(n.op)) {
      info.entries = factor_entries(n.shape[0]);
    }
    program_.buffers.push_back(info);
    return b = static_cast<Buffer>(program_.buffers.size() - 1);
  }

  // Groups by level, time and number of rows; whole instructions stand alone.
  void emit() {
    std::map<std::tuple<int, int, std::int64_t>, std::vector<Id>> groups;
    for (Id id = 0; id < graph_.size(); ++id) {
      if (!scheduled(id)) continue;
      const Slot& s = schedule_[id];
      groups[{s.level, s.time, s.role == Role::whole ? -1 : s.rows}].push_back(id);
    }
    for (const auto& [key, members] : groups) {
      if (std::get<2>(key) < 0)
        for (const Id id : members) emit_whole(id);
      else
        emit_loop(members);
    }
  }

  double flops(Id id) const {
    const auto mutable_graph = std::const_pointer_cast<Graph>(program_.graph);
    return info(graph_.node(id).op).flops(site_of(mutable_graph->expr(id)), graph_.node(id).shape);
  }

  void emit_whole(Id id) {
    const Node& n = graph_.node(id);
    Instruction out;
    out.op = n.op;
    out.attr = n.attr;
    if (n.op == Op::transpose) out.attr.i = n.shape[1];
    out.shape = n.shape;
    out.level = schedule_[id].level;
    out.flops = flops(id);
    const std::vector<Id> read = schedule_.reads(id);
    for (std::size_t i = 0; i < read.size(); ++i) {
      out.args.push_back(buffer(read[i]));
      const bool vector_of_diagonal = i == 1 && schedule_.adds_diagonal(id);
      const Id a = graph_.args(id)[i];
      out.arg_shapes.push_back(graph_.node(vector_of_diagonal ? graph_.args(a)[0] : a).shape);
      if (vector_of_diagonal) out.scalar_diagonal = schedule_.reads_number(id, i);
    }
    if (n.op == Op::solve || n.op == Op::logdet) out.factor = graph_.node(read[0]).op;
    if (n.op == Op::call) out.foreign = graph_.foreign(n.attr.i).get();
    out.out = buffer(id);
    program_.code.push_back(std::move(out));
  }

  void emit_loop(const std::vector<Id>& members) {
    Instruction out;
    out.level = schedule_[members.front()].level;
    out.loop.rows = schedule_[members.front()].rows;
    // Where each tile is read last, so that its place can be taken again.
    for (const Id id : members)
      for (const Id r : loop_reads(id)) last_reader_[at(r)] = id;
    std::multimap<std::int64_t, std::int32_t> free_tiles;  // by width
    for (const Id id : members) {
      if (in_dot_[at(id)]) continue;
      RowOp op = row_op(id);
      if (!stored_[at(id)]) {
        const std::int64_t columns = columns_of(id);
        auto found = free_tiles.find(columns);
        if (found == free_tiles.end()) {
          out.loop.tile_columns.push_back(columns);
          found = free_tiles.emplace(columns, static_cast<std::int32_t>(out.loop.tile_columns.size() - 1));
        }
        tile_of_[at(id)] = found->second;
        free_tiles.erase(found);
      }
      op.out = operand(id, columns_of(id));
      for (const Id r : loop_reads(id))
        if (tile_of_[at(r)] != no_tile && last_reader_[at(r)] == id) {
          free_tiles.emplace(columns_of(r), tile_of_[at(r)]);
          last_reader_[at(r)] = -1;  // freed once, though it may be read twice
        }
      out.loop.ops.push_back(op);
      out.flops += flops(id);
    }
    program_.code.push_back(std::move(out));
  }

  // A dot reads what its product would have read.
  std::vector<Id> loop_reads(Id id) const {
    std::vector<Id> read = schedule_.reads(id);
    return read.size() == 1 && in_dot_[at(read[0])] ? schedule_.reads(read[0]) : read;
  }

  std::int64_t columns_of(Id id) const { return graph_.node(id).shape.rank() == 2 ? graph_.node(id).shape[1] : 1; }

  RowOperand operand(Id root, std::int64_t columns) {
    if (tile_of_[at(root)] != no_tile) return {RowOperand::Kind::tile, tile_of_[at(root)], columns};
    return {RowOperand::Kind::rows, buffer(root), columns};
  }

  // The matrix of a product with vectors: through its transposed copy if that pays and can be made before the loop.
  RowOperand matrix_operand(Id reader, Id root, std::int64_t columns) {
    const std::int64_t rows = schedule_[reader].rows;
    const bool is_there = schedule_[root].role == Role::leaf || schedule_[root].level < schedule_[reader].level;
    if (columns < 1 || columns > few_columns || rows < many_rows || !is_there) return operand(root, columns);
    const auto [at_root, is_new] = transposed_.try_emplace({root, rows, columns}, no_buffer);
    if (is_new) at_root->second = copy(root, Op::transpose, {rows, columns}, {columns, rows}, column_stride(rows));
    return {RowOperand::Kind::columns, at_root->second, columns};
  }

  // A copy of what is in the memory of `root`, as it is or transposed with `stride` from row to row.
  Buffer copy(Id root, Op op, const Shape& from, const Shape& to, std::int64_t stride = 0) {
    Instruction i;
    i.op = op;
    i.attr.i = stride;
    i.args = {buffer(root)};
    i.arg_shapes = {from};
    i.shape = to;
    i.level = schedule_[root].level;
    program_.buffers.push_back({.entries = static_cast<std::size_t>(stride == 0 ? to.size() : to[0] * stride)});
    i.out = static_cast<Buffer>(program_.buffers.size() - 1);
    copies_.push_back({schedule_[root].role == Role::leaf, std::move(i)});
    return copies_.back().instruction.out;
  }
  // Copies of inputs and constants come first in their level, those of what the level computes last.
  void insert_copies() {
    for (Copy& c : copies_) {
      const int level = c.instruction.level;
      const auto place = std::ranges::find_if(
          program_.code, [&](const Instruction& i) { return c.first ? i.level >= level : i.level > level; });
      program_.code.insert(place, std::move(c.instruction));
    }
  }

  RowOp row_op(Id id) {
    using Kind = RowOp::Kind;
    const Node& n = graph_.node(id);
    const std::vector<Id> read = schedule_.reads(id);
    const std::span<const Id> args = graph_.args(id);
    const auto rows = [&](std::size_t i) { return operand(read[i], columns_of(args[i])); };
    const auto whole = [&](std::size_t i) {
      return RowOperand{RowOperand::Kind::whole, buffer(read[i]), columns_of(args[i])};
    };
    RowOp op;
    op.op = n.op;
    switch (n.op) {
      case Op::broadcast:
        if (schedule_.repeats_number(id)) {
          op.kind = Kind::fill;
          op.args[0] = {RowOperand::Kind::number, buffer(read[0]), 1};
        } else if (schedule_.by_rows(id, 0)) {
          op.kind = Kind::expand_column;
          op.args[0] = rows(0);
        } else {
          op.kind = Kind::expand_row;
          op.args[0] = whole(0);
        }
        return op;
      case Op::matmul:
        op.kind = n.attr.i != 0 ? Kind::transposed_product : Kind::product;
        op.flag = n.attr.j != 0;
        op.args[0] = n.shape.rank() == 1 ? matrix_operand(id, read[0], columns_of(args[0])) : rows(0);
        op.args[1] = n.attr.i != 0 ? rows(1) : whole(1);
        return op;
      case Op::gram: {
        op.kind = Kind::gram;
        op.flag = needs_upper_[at(id)];
        op.args[0] = matrix_operand(id, read[0], columns_of(args[0]));
        const Id weight = args[1];
        const bool ones = schedule_.repeats_number(weight) && graph_.node(graph_.args(weight)[0]).op == Op::scalar &&
                          graph_.node(graph_.args(weight)[0]).attr.value == 1.0;
        if (!ones) op.args[1] = rows(1);
        return op;
      }
      case Op::sum:
      case Op::max: {
        const bool is_sum = n.op == Op::sum;
        if (in_dot_[at(read[0])]) {
          const std::vector<Id> factors = schedule_.reads(read[0]);
          op.kind = Kind::dot;
          for (std::size_t i = 0; i < 2; ++i) op.args[i] = operand(factors[i], columns_of(args[0]));
          return op;
        }
        const bool matrix = graph_.node(args[0]).shape.rank() == 2;
        op.kind = n.attr.i == 1             ? (is_sum ? Kind::sum_rows : Kind::max_rows)
                  : n.attr.i == 0 && matrix ? (is_sum ? Kind::sum_down : Kind::max_down)
                                            : (is_sum ? Kind::sum_all : Kind::max_all);
        op.args[0] = rows(0);
        return op;
      }
      default:
        op.kind = Kind::elementwise;
        for (std::size_t i = 0; i < read.size(); ++i)
          op.args[i] = schedule_.reads_number(id, i) ? RowOperand{RowOperand::Kind::number, buffer(read[i]), 1} : rows(i);
        return op;
    }
  }

  // From where to where each buffer is in use. What a later level reads is kept for ever.
  void find_lifetimes() {
    std::vector<int> level(program_.buffers.size(), -1);
    const auto write = [&](Buffer b, int when, int l) {
      BufferInfo& info = program_.buffers[static_cast<std::size_t>(b)];
      info.first = info.last = when;
      level[static_cast<std::size_t>(b)] = l;
    };
    const auto read = [&](Buffer b, int when, int l) {
      BufferInfo& info = program_.buffers[static_cast<std::size_t>(b)];
      if (info.storage != Storage::arena) return;
      info.last = level[static_cast<std::size_t>(b)] < l ? for_ever : std::max(info.last, when);
    };
    for (std::size_t k = 0; k < program_.code.size(); ++k) {
      const Instruction& i = program_.code[k];
      const int when = static_cast<int>(k);
      if (!i.is_loop()) write(i.out, when, i.level);
      for (const RowOp& op : i.loop.ops)
        if (op.out.kind == RowOperand::Kind::rows) write(op.out.index, when, i.level);
    }
    for (std::size_t k = 0; k < program_.code.size(); ++k) {
      const Instruction& i = program_.code[k];
      const int when = static_cast<int>(k);
      for (const Buffer b : i.args) read(b, when, i.level);
      for (const RowOp& op : i.loop.ops)
        for (const RowOperand& a : op.args)
          if (a.kind != RowOperand::Kind::none && a.kind != RowOperand::Kind::tile) read(a.index, when, i.level);
    }
    for (const Result& r : program_.results) read(r.buffer, for_ever, for_ever);
  }

  void find_direct() {
    for (Result& r : program_.results)
      r.direct = !r.number && (r.level == program_.highest_level() || r.level >= program_.branches) &&
                 program_.buffers[static_cast<std::size_t>(r.buffer)].storage == Storage::arena &&
                 std::ranges::count(program_.results, r.buffer, &Result::buffer) == 1;
  }

  const Graph& graph_;
  std::vector<Id> results_;
  Schedule schedule_;
  Program program_;
  struct Copy {
    bool first;
    Instruction instruction;
  };
  std::vector<Copy> copies_;
  std::map<std::tuple<Id, std::int64_t, std::int64_t>, Buffer> transposed_;  // by memory, rows and columns
  std::vector<Buffer> buffer_of_;
  std::vector<std::int32_t> tile_of_;
  std::vector<Id> last_reader_;  // within the loop being made
  std::vector<bool> stored_;
  std::vector<bool> in_dot_;
  std::vector<bool> needs_upper_;
};

}  // namespace

std::shared_ptr<const Program> compile(const Function& function, const std::vector<int>& levels, int loop, int branches,
                                       const Backend& backend) {
  Program program = Compiler(function, levels, loop, branches).take();
  for (Instruction& i : program.code) {
    i.backend = backend.prepare(i);
    program.shared_scratch = std::max(program.shared_scratch, i.backend->shared_scratch);
    program.worker_scratch = std::max(program.worker_scratch, i.backend->worker_scratch);
    program.most_workers = std::max(program.most_workers, i.backend->most_workers);
  }
  pack_buffers(program);
  return std::make_shared<const Program>(std::move(program));
}

}  // namespace onestep::detail
