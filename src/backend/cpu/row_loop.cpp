// How a row loop is cut and run. The rows are cut into chunks, by shape alone; each chunk is walked in blocks by one thread
// and has its own partial sums, which are added in the order of the chunks, so that results do not depend on the number of
// threads. With a large symmetric product (gram) there is one chunk: each block is shared by all threads, which update tiles
// of the product.
#include "backend/cpu/row_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/blas.h"
#include "backend/cpu/cut.h"
#include "backend/cpu/dense.h"
#include "backend/cpu/pool.h"
#include "backend/cpu/tile_kernels.h"
#include "backend/cpu/vector_math.h"

namespace onestep::cpu {
namespace {

using detail::accumulates;
using detail::Frame;
using detail::RowLoop;
using detail::RowOp;
using detail::RowOperand;
using Kind = RowOp::Kind;

constexpr std::size_t cache_line = 8;        // doubles
constexpr std::size_t small_product = 1024;  // multiply-adds up to which a BLAS call costs more than it does

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }
std::size_t padded(std::size_t n) { return (n + cache_line - 1) / cache_line * cache_line; }

// Where an operand is for the block that begins at row r: offset + r * scale entries into a buffer, or into the worker's
// scratch.
struct Place {
  std::int32_t buffer = -1;  // -1: the worker's scratch
  std::size_t offset = 0;
  std::size_t scale = 0;
  bool number = false;  // one entry for all
};

struct Step {
  TileKernel kernel = nullptr;
  std::size_t arg_count = 0;
  Place args[3], out;
  std::size_t entries = 0;   // of what it adds up
  std::size_t partials = 0;  // where the partial sums of parts 1, 2, … begin in the shared scratch
  std::size_t weights = 0;   // shared scratch: the weights of a block of a shared gram
  bool shared = false;       // a large gram: all threads update tiles of it, block after block
};

struct RowPlan final : detail::BackendPlan {
  std::size_t rows = 0;
  Cut chunks{};
  std::size_t block_rows = 0;
  bool tiled = false;
  std::size_t scaled = 0;          // worker's scratch: a scaled copy of a block
  std::size_t shared_scaled = 0;   // shared scratch: the same for a shared gram
  std::vector<std::size_t> tiles;  // worker's scratch
  std::vector<Step> steps;
  std::vector<std::size_t> sums;  // the steps that add up
};

std::size_t sum_entries(const RowOp& op) {
  switch (op.kind) {
    case Kind::sum_down:
    case Kind::max_down: return size(op.args[0].columns);
    case Kind::transposed_product: return size(op.args[0].columns * op.args[1].columns);
    case Kind::gram: return size(op.args[0].columns * op.args[0].columns);
    default: return 1;
  }
}

// Rough cost of one row, in multiply-adds.
std::size_t row_work(const RowOp& op) {
  switch (op.kind) {
    case Kind::product: return size(op.args[0].columns * op.out.columns);
    case Kind::transposed_product: return size(op.args[0].columns * op.args[1].columns);
    case Kind::gram: return size(op.args[0].columns * (op.args[0].columns + 1) / 2);
    case Kind::elementwise: return 4 * size(op.out.columns);
    default: return size(op.args[0].columns);
  }
}

// By shape alone: how many rows at a time, and how many chunks.
void cut_rows(const RowLoop& loop, RowPlan& plan) {
  constexpr std::size_t chunk_work = std::size_t{1} << 18, most_chunks = 64, most_partials = std::size_t{1} << 20;
  constexpr std::size_t block_entries = std::size_t{1} << 16;
  std::size_t work = 0, partial_entries = 0, widest = 1, gram_columns = 0;
  bool gram_of_buffer = false;
  for (const RowOp& op : loop.ops) {
    work += row_work(op);
    if (accumulates(op.kind)) partial_entries += sum_entries(op);
    widest = std::max({widest, size(op.args[0].columns),
                       op.out.kind == RowOperand::Kind::rows && accumulates(op.kind) ? 1 : size(op.out.columns)});
    if (op.kind == Kind::gram && op.args[0].kind != RowOperand::Kind::columns) {
      gram_columns = std::max(gram_columns, size(op.args[0].columns));
      gram_of_buffer = gram_of_buffer || op.args[0].kind == RowOperand::Kind::rows;
    }
  }
  if (gram_columns > 0) {
    const RowCut cut = row_cut(plan.rows, gram_columns);
    plan.tiled = cut.tiled && gram_of_buffer;
    plan.block_rows = cut.block_rows;
    plan.chunks = cut.tiled ? whole(plan.rows) : Cut{plan.rows, cut.chunk_rows, cut.chunks};
    return;
  }
  plan.block_rows = std::clamp<std::size_t>(block_entries / 4 / widest / cache_line * cache_line, cache_line, 256);
  const std::size_t pieces =
      std::min({most_chunks, plan.rows * work / chunk_work, 1 + most_partials / std::max<std::size_t>(partial_entries, 1)});
  plan.chunks = cut_into(plan.rows, pieces, plan.block_rows);
}

// In a tiled loop a block is cut once more, so that all threads share its other operations.
constexpr std::size_t pieces_of_block = 8;
Cut cut_block(std::size_t rows) { return cut_into(rows, pieces_of_block, cache_line); }

std::size_t partial_count(const RowPlan& plan) { return plan.tiled ? pieces_of_block : plan.chunks.count; }

class Run {
 public:
  Run(const RowLoop& loop, const RowPlan& plan, const Frame& frame) : loop_(loop), plan_(plan), frame_(frame) {}

  void all() const {
    if (plan_.tiled) {
      tiled();
    } else if (plan_.chunks.count == 1) {
      chunk(0, 0);
    } else {
      parallel_for(plan_.chunks.count, frame_.workers, [this](std::size_t c, std::size_t worker) { chunk(c, worker); });
    }
    for (const std::size_t k : plan_.sums) combine(loop_.ops[k], plan_.steps[k]);
  }

 private:
  double* address(const RowOperand& o) const { return frame_.address[static_cast<std::size_t>(o.index)]; }
  double* scratch(std::size_t worker) const { return frame_.worker_scratch + worker * frame_.worker_stride; }

  // The first chunk adds up where the result is wanted.
  double* sums(const RowOp& op, const Step& step, std::size_t part) const {
    return part == 0 ? address(op.out) : frame_.shared_scratch + step.partials + (part - 1) * step.entries;
  }

  double* at(const Place& p, std::size_t begin, double* mine) const {
    return (p.buffer < 0 ? mine : frame_.address[p.buffer]) + p.offset + begin * p.scale;
  }

  void chunk(std::size_t c, std::size_t worker) const {
    start(c);
    const std::size_t begin = plan_.chunks.begin(c), end = begin + plan_.chunks.length(c);
    for (std::size_t r = begin; r < end; r += plan_.block_rows)
      block(r, std::min(plan_.block_rows, end - r), 0, c, scratch(worker));
  }

  void tiled() const {
    for (std::size_t part = 0; part < pieces_of_block; ++part) start(part);
    for (std::size_t r = 0; r < plan_.rows; r += plan_.block_rows) {
      const std::size_t count = std::min(plan_.block_rows, plan_.rows - r);
      const Cut cut = cut_block(count);
      parallel_for(cut.count, frame_.workers, [&](std::size_t piece, std::size_t worker) {
        block(r + cut.begin(piece), cut.length(piece), cut.begin(piece), piece, scratch(worker));
      });
      for (std::size_t k = 0; k < loop_.ops.size(); ++k)
        if (plan_.steps[k].shared) update_tiles(loop_.ops[k], plan_.steps[k], r, count);
    }
  }

  // Zero, or minus infinity for a maximum.
  void start(std::size_t part) const {
    for (const std::size_t k : plan_.sums) {
      const RowOp& op = loop_.ops[k];
      if (plan_.steps[k].shared && part > 0) continue;
      const bool is_max = op.kind == Kind::max_all || op.kind == Kind::max_down;
      std::fill_n(sums(op, plan_.steps[k], part), plan_.steps[k].entries,
                  is_max ? -std::numeric_limits<double>::infinity() : 0.0);
    }
  }

  // All operations on `count` rows from `begin` on, which are those from `in_block` on of a block that threads share.
  void block(std::size_t begin, std::size_t count, std::size_t in_block, std::size_t part, double* mine) const {
    for (std::size_t k = 0; k < loop_.ops.size(); ++k) {
      const RowOp& op = loop_.ops[k];
      const Step& step = plan_.steps[k];
      const std::size_t width = size(op.out.columns);
      if (op.kind == Kind::elementwise) {
        Operand operands[3];
        for (std::size_t i = 0; i < step.arg_count; ++i) operands[i] = {at(step.args[i], begin, mine), step.args[i].number};
        step.kernel(operands, at(step.out, begin, mine), count * width);
        continue;
      }
      const double* const a = at(step.args[0], begin, mine);
      const std::size_t columns = size(op.args[0].columns);
      double* const out = accumulates(op.kind) ? sums(op, step, part) : at(step.out, begin, mine);
      switch (op.kind) {
        case Kind::elementwise: break;  // above
        case Kind::fill: std::fill_n(out, count * width, *a); break;
        case Kind::expand_row:
          for (std::size_t i = 0; i < count; ++i) std::copy_n(a, width, out + i * width);
          break;
        case Kind::expand_column:
          for (std::size_t i = 0; i < count; ++i) std::fill_n(out + i * width, width, a[i]);
          break;
        case Kind::product: product(op, a, columns, count, out); break;
        case Kind::sum_rows:
          for (std::size_t i = 0; i < count; ++i) out[i] = tile_sum(a + i * columns, columns);
          break;
        case Kind::max_rows:
          for (std::size_t i = 0; i < count; ++i) out[i] = tile_max(a + i * columns, columns);
          break;
        case Kind::sum_all: *out += tile_sum(a, count * columns); break;
        case Kind::dot: *out += tile_dot(a, at(step.args[1], begin, mine), count * columns); break;
        case Kind::sum_down:
          for (std::size_t i = 0; i < count; ++i) tile_axpy(1.0, a + i * columns, out, columns);
          break;
        case Kind::max_all: *out = larger(*out, tile_max(a, count * columns)); break;
        case Kind::max_down:
          for (std::size_t i = 0; i < count; ++i)
            for (std::size_t j = 0; j < columns; ++j) out[j] = larger(out[j], a[i * columns + j]);
          break;
        case Kind::transposed_product: transposed_product(op, a, columns, count, at(step.args[1], begin, mine), out); break;
        case Kind::gram: {
          const double* const d = step.arg_count < 2 ? nullptr : at(step.args[1], begin, mine);
          if (step.shared) {
            if (d != nullptr) std::copy_n(d, count, frame_.shared_scratch + step.weights + in_block);
          } else if (op.args[0].kind == RowOperand::Kind::columns) {
            packed_gram(a, stride(), count, columns, d, out, columns);
          } else {
            gram_block(count, columns, a, columns, d, 1.0, out, columns, mine + plan_.scaled);
          }
          break;
        }
      }
    }
  }

  std::size_t stride() const { return size(detail::column_stride(loop_.rows)); }

  static double larger(double a, double b) { return a >= b || std::isnan(a) ? a : b; }

  void product(const RowOp& op, const double* a, std::size_t k, std::size_t count, double* out) const {
    const double* const x = address(op.args[1]);
    const std::size_t columns = size(op.out.columns);
    if (k == 0)
      std::fill_n(out, count * columns, 0.0);
    else if (op.args[0].kind == RowOperand::Kind::columns)
      packed_matvec(a, stride(), count, k, x, out);
    else if (columns != 1)  // column-major: outᵀ = op(W)ᵀ aᵀ
      blas::gemm(op.flag ? blas::Trans::yes : blas::Trans::no, blas::Trans::no, columns, count, k, 1.0, x,
                 op.flag ? k : columns, a, k, 0.0, out, columns);
    else if (count * k <= small_product)
      for (std::size_t i = 0; i < count; ++i) out[i] = tile_dot(a + i * k, x, k);
    else
      blas::gemv(blas::Trans::yes, k, count, 1.0, a, k, x, 0.0, out);
  }

  void transposed_product(const RowOp& op, const double* a, std::size_t k, std::size_t count, const double* r,
                          double* out) const {
    const std::size_t columns = size(op.args[1].columns);
    if (k == 0 || columns == 0) return;
    if (op.args[0].kind == RowOperand::Kind::columns)
      packed_tmatvec(a, stride(), count, k, r, out);
    else if (columns != 1)
      blas::gemm(blas::Trans::no, blas::Trans::yes, columns, k, count, 1.0, r, columns, a, k, 1.0, out, columns);
    else if (count * k <= small_product)
      for (std::size_t i = 0; i < count; ++i) tile_axpy(r[i], a + i * k, out, k);
    else
      blas::gemv(blas::Trans::no, k, count, 1.0, a, k, r, 1.0, out);
  }

  void update_tiles(const RowOp& op, const Step& step, std::size_t begin, std::size_t count) const {
    const std::size_t n = size(op.args[0].columns);
    const double* const d = op.args[1].kind == RowOperand::Kind::none ? nullptr : frame_.shared_scratch + step.weights;
    parallel_gram_block(count, n, address(op.args[0]) + begin * n, n, d, begin == 0 ? 0.0 : 1.0, address(op.out), n,
                        frame_.shared_scratch + plan_.shared_scaled);
  }

  // Adds the partial sums, in the order of the chunks.
  void combine(const RowOp& op, const Step& step) const {
    double* const out = address(op.out);
    const std::size_t parts = partial_count(plan_);
    const std::size_t n = size(op.args[0].columns);
    if (op.kind == Kind::gram) {
      if (!step.shared) add_partials(parts - 1, n, frame_.shared_scratch + step.partials, out, n);
      if (op.flag) mirror_lower(n, out, n);
      return;
    }
    for (std::size_t part = 1; part < parts; ++part) {
      const double* const more = sums(op, step, part);
      if (op.kind == Kind::max_all || op.kind == Kind::max_down)
        for (std::size_t i = 0; i < step.entries; ++i) out[i] = larger(out[i], more[i]);
      else
        tile_axpy(1.0, more, out, step.entries);
    }
  }

  const RowLoop& loop_;
  const RowPlan& plan_;
  const Frame& frame_;
};

}  // namespace

std::shared_ptr<const detail::BackendPlan> prepare_row_loop(const RowLoop& loop) {
  auto plan = std::make_shared<RowPlan>();
  plan->rows = size(loop.rows);
  cut_rows(loop, *plan);
  plan->most_workers = plan->tiled ? pieces_of_block : plan->chunks.count;
  const std::size_t block = plan->tiled ? cut_block(plan->block_rows).size : plan->block_rows;
  const auto take = [](std::size_t& total, std::size_t entries) {
    const std::size_t at = total;
    total += padded(entries);
    return at;
  };
  for (const std::int64_t columns : loop.tile_columns)
    plan->tiles.push_back(take(plan->worker_scratch, block * size(columns)));
  const auto place = [&](const RowOperand& o) -> Place {
    switch (o.kind) {
      case RowOperand::Kind::tile: return {-1, plan->tiles[static_cast<std::size_t>(o.index)], 0, false};
      case RowOperand::Kind::rows: return {o.index, 0, size(o.columns), false};
      case RowOperand::Kind::columns: return {o.index, 0, 1, false};
      default: return {o.index, 0, 0, o.kind == RowOperand::Kind::number};
    }
  };
  std::size_t entries = 0, shared_entries = 0;  // of scaled copies
  plan->steps.resize(loop.ops.size());
  for (std::size_t k = 0; k < loop.ops.size(); ++k) {
    const RowOp& op = loop.ops[k];
    Step& step = plan->steps[k];
    for (const RowOperand& a : op.args)
      if (!fits_blas(size(a.columns))) throw Error(fmt::format("[Plan] {} columns are more than BLAS can count", a.columns));
    if (op.kind == Kind::elementwise) step.kernel = tile_kernel(op.op);
    while (step.arg_count < 3 && op.args[step.arg_count].kind != RowOperand::Kind::none) {
      step.args[step.arg_count] = place(op.args[step.arg_count]);
      ++step.arg_count;
    }
    step.out = place(op.out);
    const bool by_row = op.args[0].kind != RowOperand::Kind::columns;
    if ((op.kind == Kind::product || op.kind == Kind::transposed_product) && by_row &&
        ((op.kind == Kind::product ? op.out : op.args[1]).columns != 1 ||
         plan->block_rows * size(op.args[0].columns) > small_product))
      plan->calls_blas = true;
    if (!accumulates(op.kind)) continue;
    plan->sums.push_back(k);
    step.entries = sum_entries(op);
    step.shared = op.kind == Kind::gram && plan->tiled && op.args[0].kind == RowOperand::Kind::rows;
    if (step.shared)
      step.weights = take(plan->shared_scratch, plan->block_rows);
    else
      step.partials = take(plan->shared_scratch, (partial_count(*plan) - 1) * step.entries);
    if (op.kind == Kind::gram && op.args[0].kind != RowOperand::Kind::columns)
      (step.shared ? shared_entries : entries) =
          std::max(step.shared ? shared_entries : entries, plan->block_rows * size(op.args[0].columns));
  }
  plan->scaled = take(plan->worker_scratch, entries);
  plan->shared_scaled = take(plan->shared_scratch, shared_entries);
  return plan;
}

void run_row_loop(const RowLoop& loop, const detail::BackendPlan& plan, const Frame& frame) {
  Run(loop, static_cast<const RowPlan&>(plan), frame).all();
}

}  // namespace onestep::cpu
