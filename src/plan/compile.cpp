// From a schedule to a program: row loops and single instructions in order, and the buffers they need.
#include <algorithm>
#include <map>
#include <ranges>
#include <tuple>

#include "graph/fail.h"
#include "graph/rules.h"
#include "plan/schedule.h"

namespace onestep::detail {
namespace {

constexpr std::int32_t no_tile = -1;

class Compiler {
 public:
  Compiler(const Function& function, const Levels& levels, const Limits& limits)
      : graph_(*graph_of(function)),
        limits_(limits),
        results_(ids_of(function.outputs())),
        slots_(schedule(graph_, results_, levels, limits)),
        places_(slots_.size()) {
    program_.graph = graph_of(function);
    program_.inputs.assign(function.inputs().begin(), function.inputs().end());
    program_.levels = levels;
    for (Id id = 0; id < graph_.size(); ++id)
      if (slots_[id].is_scheduled()) scheduled_.push_back(id);
    find_stored();
    find_dots();
    find_lower_only();
    emit();
    for (const Id id : results_) add_result(id);
    insert_copies();
    find_lifetimes();
  }
  Program take() { return std::move(program_); }

 private:
  // Where a node's value is, and what is known about its readers.
  struct Place {
    Buffer buffer = no_buffer;
    std::int32_t tile = no_tile;
    Id last_reader = -1;  // within the loop being made
    int readers = 0;
    bool stored = false;  // in memory of its own, not in a tile
    bool in_dot = false;  // multiplied and summed in one operation
    bool needs_upper = false;
  };

  // Values read outside the loop that makes them need memory of their own; the others live in tiles.
  void find_stored() {
    for (const Id id : scheduled_) {
      if (slots_[id].role != Role::row) places_[id].stored = true;
      for (const Read& r : slots_[id].reads) {
        ++places_[r.root].readers;
        if (!(together(slots_[id], slots_[r.root]) && r.by_rows)) places_[r.root].stored = true;
      }
    }
    for (const Id id : results_) places_[root_of_result(id)].stored = true;
  }

  // The sum of a product of two arrays that nobody else reads is one operation, and the product none.
  void find_dots() {
    for (const Id id : scheduled_) {
      if (graph_.node(id).op != Op::sum || graph_.node(id).shape.rank() != 0) continue;
      const Id product = slots_[id].reads[0].root;
      Place& p = places_[product];
      p.in_dot = slots_[product].is_scheduled() && graph_.node(product).op == Op::mul && !p.stored && p.readers == 1 &&
                 std::ranges::none_of(slots_[product].reads, &Read::number);
    }
  }

  // A symmetric product whose readers look at its lower triangle only is not mirrored.
  void find_lower_only() {
    for (const Id id : results_) places_[root_of_result(id)].needs_upper = true;
    for (const Id id : std::views::reverse(scheduled_)) {
      const Op op = graph_.node(id).op;
      const bool lower = op == Op::cholesky || op == Op::ldlt || (adds_diagonal(graph_, id) && !places_[id].needs_upper);
      const std::vector<Read>& reads = slots_[id].reads;
      for (std::size_t k = lower ? 1 : 0; k < reads.size(); ++k) places_[reads[k].root].needs_upper = true;
    }
  }

  Id root_of_result(Id id) const { return result_root(graph_, slots_, id); }
  std::int64_t columns_of(Id id) const { return graph_.node(id).shape.rank() == 2 ? graph_.node(id).shape[1] : 1; }

  Buffer add_buffer(std::int64_t entries, Storage storage = Storage::arena, std::int64_t index = 0) {
    program_.buffers.push_back({storage, index, static_cast<std::size_t>(entries)});
    return static_cast<Buffer>(program_.buffers.size() - 1);
  }
  Buffer buffer(Id root) {
    Buffer& b = places_[root].buffer;
    if (b != no_buffer) return b;
    const Node& n = graph_.node(root);
    if (n.op == Op::input) {
      program_.input_buffers.push_back(b = add_buffer(n.shape.size(), Storage::input, n.attr.i));
    } else if (n.op == Op::constant || n.op == Op::scalar) {
      b = add_buffer(n.shape.size(), Storage::constant, std::ssize(program_.constants));
      program_.constants.push_back(n.op == Op::scalar ? Array(n.attr.value()) : graph_.constant(n.attr.i).contiguous());
    } else {
      b = add_buffer(is_factor(n.op) ? factor_entries(n.shape[0]) : n.shape.size());
    }
    return b;
  }

  void add_result(Id id) {
    const Id root = root_of_result(id);
    const Shape shape = graph_.node(root).shape;
    // An input that is a result is copied before any result is written: outputs may lie where inputs do.
    const Buffer from = graph_.node(root).op == Op::input ? copy(root, Op::reshape, shape, shape, 0) : buffer(root);
    program_.results.push_back({from, graph_.node(id).shape, repeats_number(graph_, slots_[id].root), slots_[root].level});
  }

  // A copy of what is in the memory of `root`, as it is or transposed with `stride` from row to row.
  Buffer copy(Id root, Op op, const Shape& from, const Shape& to, std::int64_t stride) {
    const Buffer original = buffer(root), copied = add_buffer(stride == 0 ? to.size() : to[0] * stride);
    copies_.emplace_back(slots_[root].role == Role::leaf,
                         Instruction{op, {stride}, to, {original}, {from}, copied, slots_[root].level});
    return copied;
  }
  // Copies of inputs and constants come first in their level, those of what the level computes last.
  void insert_copies() {
    for (const auto& [of_leaf, copy] : copies_)
      program_.code.insert(std::ranges::lower_bound(program_.code, copy.level + (of_leaf ? 0 : 1), {}, &Instruction::level),
                           copy);
  }

  // Groups by level, time and number of rows; whole instructions stand alone.
  void emit() {
    std::map<std::tuple<int, int, std::int64_t>, std::vector<Id>> groups;
    for (const Id id : scheduled_) {
      const Slot& s = slots_[id];
      groups[{s.level, s.time, s.role == Role::whole ? -1 : s.rows}].push_back(id);
    }
    for (const auto& [key, members] : groups)
      if (std::get<2>(key) < 0)
        for (const Id id : members) emit_whole(id);
      else
        emit_loop(members);
  }

  double flops_of(Id id) const { return flops(site_of(std::const_pointer_cast<Graph>(program_.graph)->expr(id))); }

  void emit_whole(Id id) {
    const Node& n = graph_.node(id);
    Instruction out{.op = n.op, .attr = n.attr, .shape = n.shape, .level = slots_[id].level, .flops = flops_of(id)};
    if (n.op == Op::transpose) out.attr.i = n.shape[1];
    for (const Id a : graph_.args(id)) out.arg_shapes.push_back(graph_.node(a).shape);
    for (const Read& r : slots_[id].reads) out.args.push_back(buffer(r.root));
    if (n.op == Op::add) {  // of a diagonal, read as its vector
      out.arg_shapes[1] = Shape{n.shape[0]};
      out.scalar_diagonal = slots_[id].reads[1].number;
    }
    if (n.op == Op::solve || n.op == Op::logdet) out.factor = graph_.node(slots_[id].reads[0].root).op;
    if (n.op == Op::call) out.foreign = graph_.foreign(n.attr.i).get();
    out.out = buffer(id);
    program_.code.push_back(std::move(out));
  }

  void emit_loop(const std::vector<Id>& members) {
    Instruction out{.level = slots_[members.front()].level};
    out.loop.rows = slots_[members.front()].rows;
    // Where each tile is read last, so that its place can be taken again.
    for (const Id id : members)
      for (const Read& r : loop_reads(id)) places_[r.root].last_reader = id;
    std::multimap<std::int64_t, std::int32_t> free_tiles;  // by width
    for (const Id id : members) {
      if (places_[id].in_dot) continue;
      RowOp op = row_op(id);
      if (!places_[id].stored) {
        const std::int64_t columns = columns_of(id);
        auto found = free_tiles.find(columns);
        if (found == free_tiles.end()) {
          found = free_tiles.emplace(columns, static_cast<std::int32_t>(out.loop.tile_columns.size()));
          out.loop.tile_columns.push_back(columns);
        }
        places_[id].tile = found->second;
        free_tiles.erase(found);
      }
      op.out = operand(id, columns_of(id));
      for (const Read& r : loop_reads(id))
        if (Place& p = places_[r.root]; p.tile != no_tile && p.last_reader == id) {
          free_tiles.emplace(columns_of(r.root), p.tile);
          p.last_reader = -1;  // freed once, though it may be read twice
        }
      out.loop.ops.push_back(op);
      out.flops += flops_of(id);
    }
    program_.code.push_back(std::move(out));
  }

  // A dot reads what its product would have read.
  const std::vector<Read>& loop_reads(Id id) const {
    const std::vector<Read>& reads = slots_[id].reads;
    return reads.size() == 1 && places_[reads[0].root].in_dot ? slots_[reads[0].root].reads : reads;
  }

  RowOperand operand(Id root, std::int64_t columns) {
    const std::int32_t tile = places_[root].tile;
    return tile != no_tile ? RowOperand{RowOperand::Kind::tile, tile, columns}
                           : RowOperand{RowOperand::Kind::rows, buffer(root), columns};
  }

  // The matrix of a product with vectors: through its transposed copy if that pays and can be made before the loop.
  RowOperand matrix_operand(Id reader, Id root, std::int64_t columns) {
    const std::int64_t rows = slots_[reader].rows;
    const bool is_there = slots_[root].role == Role::leaf || slots_[root].level < slots_[reader].level;
    if (columns < 1 || columns > limits_.few_columns || rows < limits_.many_rows || !is_there) return operand(root, columns);
    Buffer& copied = transposed_.try_emplace({root, rows, columns}, no_buffer).first->second;
    if (copied == no_buffer) copied = copy(root, Op::transpose, {rows, columns}, {columns, rows}, column_stride(rows));
    return {RowOperand::Kind::columns, copied, columns};
  }

  RowOp row_op(Id id) {
    using Kind = RowOp::Kind;
    const Node& n = graph_.node(id);
    const std::vector<Read>& reads = slots_[id].reads;
    const auto columns = [&](std::size_t i) { return columns_of(graph_.args(id)[i]); };
    const auto rows = [&](std::size_t i) { return operand(reads[i].root, columns(i)); };
    const auto matrix = [&](std::size_t i) { return matrix_operand(id, reads[i].root, columns(i)); };
    const auto whole = [&](std::size_t i) { return RowOperand{RowOperand::Kind::whole, buffer(reads[i].root), columns(i)}; };
    const auto number = [&](std::size_t i) { return RowOperand{RowOperand::Kind::number, buffer(reads[i].root), 1}; };
    switch (n.op) {
      case Op::broadcast:
        if (repeats_number(graph_, id)) return {.kind = Kind::fill, .args = {number(0)}};
        if (reads[0].by_rows) return {.kind = Kind::expand_column, .args = {rows(0)}};
        return {.kind = Kind::expand_row, .args = {whole(0)}};
      case Op::matmul: {
        const RowOperand a = n.shape.rank() == 1 ? matrix(0) : rows(0);
        if (n.attr.i != 0) return {.kind = Kind::transposed_product, .args = {a, rows(1)}};
        return {.kind = Kind::product, .flag = n.attr.j != 0, .args = {a, whole(1)}};
      }
      case Op::gram: {
        const auto weight = literal(std::const_pointer_cast<Graph>(program_.graph)->expr(graph_.args(id)[1]));
        RowOp op{.kind = Kind::gram, .flag = places_[id].needs_upper, .args = {matrix(0)}};
        if (weight != 1.0) op.args[1] = rows(1);
        return op;
      }
      case Op::sum:
      case Op::max: {
        if (places_[reads[0].root].in_dot) {
          const std::vector<Read>& factors = slots_[reads[0].root].reads;
          return {.kind = Kind::dot, .args = {operand(factors[0].root, columns(0)), operand(factors[1].root, columns(0))}};
        }
        const bool is_sum = n.op == Op::sum, down = n.attr.i == 0 && n.shape.rank() == 1;
        const Kind kind = n.attr.i == 1 ? (is_sum ? Kind::sum_rows : Kind::max_rows)
                          : down        ? (is_sum ? Kind::sum_down : Kind::max_down)
                                        : (is_sum ? Kind::sum_all : Kind::max_all);
        return {.kind = kind, .args = {rows(0)}};
      }
#include "graph/elementwise_cases.inc"
        {
          RowOp op{.kind = Kind::elementwise, .op = n.op};
          for (std::size_t i = 0; i < reads.size(); ++i) op.args[i] = reads[i].number ? number(i) : rows(i);
          return op;
        }
      case Op::input:
      case Op::constant:
      case Op::scalar:
      case Op::eye:
      case Op::outer:
      case Op::transpose:
      case Op::reshape:
      case Op::diag:
      case Op::diagonal:
      case Op::concat:
      case Op::slice:
      case Op::pad:
      case Op::norm:
      case Op::cumsum:
      case Op::gather:
      case Op::scatter:
      case Op::det:
      case Op::cholesky:
      case Op::lu:
      case Op::ldlt:
      case Op::solve:
      case Op::logdet:
      case Op::call: break;
    }
    fail("Plan", "{} is not done by rows", name(n.op));
  }

  // From where to where each buffer is in use: what a later level reads and what is a result is kept for ever. Results of
  // the highest level, or of a branch, are computed in every run that wants them.
  void find_lifetimes() {
    for (std::size_t k = 0; k < program_.code.size(); ++k) {
      const Instruction& i = program_.code[k];
      const int now = static_cast<int>(k);
      const auto write = [&](Buffer b) {
        BufferInfo& info = program_.buffers[b];
        info.level = i.level;
        info.first = info.last = now;
      };
      const auto read = [&](Buffer b) {
        BufferInfo& info = program_.buffers[b];
        info.last = info.level < i.level ? for_ever : std::max(info.last, now);
      };
      if (!i.is_loop()) write(i.out);
      for (const RowOp& op : i.loop.ops)
        if (op.out.kind == RowOperand::Kind::rows) write(op.out.index);
      for (const Buffer b : i.args) read(b);
      for (const RowOp& op : i.loop.ops)
        for (const RowOperand& a : op.args)
          if (a.kind != RowOperand::Kind::none && a.kind != RowOperand::Kind::tile) read(a.index);
    }
    for (Result& r : program_.results) {
      BufferInfo& info = program_.buffers[r.buffer];
      info.last = for_ever;
      r.direct = !r.number && (r.level == program_.highest_level() || r.level >= program_.levels.branches) &&
                 info.storage == Storage::arena && std::ranges::count(program_.results, r.buffer, &Result::buffer) == 1;
    }
  }

  const Graph& graph_;
  Limits limits_;
  std::vector<Id> results_;
  Indexed<Slot> slots_;
  Indexed<Place> places_;
  std::vector<Id> scheduled_;  // nodes that are computed
  Program program_;
  std::vector<std::pair<bool, Instruction>> copies_;                         // of leaves, or of what is computed
  std::map<std::tuple<Id, std::int64_t, std::int64_t>, Buffer> transposed_;  // by memory, rows and columns
};

}  // namespace

std::shared_ptr<const Program> compile(const Function& function, const Levels& levels,
                                       std::shared_ptr<const Backend> backend) {
  Program program = Compiler(function, levels, backend->limits()).take();
  for (Instruction& i : program.code) {
    i.backend = backend->prepare(i);
    program.shared_scratch = std::max(program.shared_scratch, i.backend->shared_scratch);
    program.worker_scratch = std::max(program.worker_scratch, i.backend->worker_scratch);
    program.most_workers = std::max(program.most_workers, i.backend->most_workers);
  }
  for (std::size_t k = 0; k < program.code.size(); ++k)
    program.begins.resize(std::max(program.begins.size(), static_cast<std::size_t>(program.code[k].level + 2)), k);
  program.begins.push_back(program.code.size());
  program.backend = std::move(backend);
  pack_buffers(program);
  return std::make_shared<const Program>(std::move(program));
}

}  // namespace onestep::detail
