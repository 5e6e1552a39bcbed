// How a row loop is cut and run. The rows are cut into chunks, by shape alone; each chunk is walked in blocks by one thread
// and has its own partial sums, which are added in the order of the chunks, so that results do not depend on the number of
// threads. With a large symmetric product (gram) there is one chunk: each block is shared by all threads, which update tiles
// of the product.
#include "backend/cpu/row_loop.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "backend/cpu/blas.h"
#include "backend/cpu/dense.h"
#include "backend/cpu/tile_kernels.h"
#include "parallel/pool.h"

namespace onestep::cpu {
namespace {

using blas::Trans;
using detail::accumulates;
using detail::Frame;
using detail::RowLoop;
using detail::RowOp;
using detail::RowOperand;
using Kind = RowOp::Kind;
using In = RowOperand::Kind;

constexpr size_t small_product = 1024;  // multiply-adds up to which a BLAS call costs more than it does
constexpr size_t pieces_of_block = 32;  // that threads share, in a tiled loop

// Where an operand is for the block that begins at row r: offset + r * scale entries into a buffer, or into the worker's
// scratch.
struct Place {
  std::int32_t buffer = -1;  // -1: the worker's scratch
  bool number = false;       // one entry for all
  size_t offset = 0;
  size_t scale = 0;
};

struct Step {
  RowOp op;
  Place args[3], out;
  size_t arg_count = 0;
  size_t columns = 0, width = 0;  // of the first argument and of the result
  TileKernel kernel = nullptr;    // elementwise: the operation; accumulating: what joins two partial results
  bool is_max = false;
  size_t entries = 0;   // of what it adds up
  size_t partials = 0;  // shared scratch: the partial sums of parts 1, 2, …
  bool shared = false;  // a large gram: all threads update tiles of it, block after block
  size_t panels = 0;    // gram: scratch for a block, the worker's or, when shared, the shared one
  size_t weights = 0;   // shared scratch: the weights of a block of a shared gram
};

struct RowPlan final : detail::BackendPlan {
  size_t rows = 0;
  Cut chunks{};
  size_t block_rows = 0;
  bool tiled = false;
  size_t parts = 0;  // of each sum: one for each chunk, or for each piece of a block that threads share
  std::vector<Step> steps;
  std::vector<size_t> sums;  // the steps that add up
  const TileKernels& tiles = tile_kernels();
};

size_t entries_of_sum(const RowOp& op) {
  switch (op.kind) {
    case Kind::sum_down:
    case Kind::max_down: return size(op.args[0].columns);
    case Kind::transposed_product: return size(op.args[0].columns * op.args[1].columns);
    case Kind::gram: return size(op.args[0].columns * op.args[0].columns);
    case Kind::sum_all:
    case Kind::dot:
    case Kind::max_all:
    case Kind::elementwise:
    case Kind::fill:
    case Kind::expand_row:
    case Kind::expand_column:
    case Kind::product:
    case Kind::sum_rows:
    case Kind::max_rows: break;
  }
  return 1;
}

// Rough cost of one row, in multiply-adds.
size_t row_work(const RowOp& op) {
  if (accumulates(op.kind)) return std::max(entries_of_sum(op), size(op.args[0].columns));
  return size(op.out.columns) * (op.kind == Kind::product ? size(op.args[0].columns) : 4);
}

// By shape alone: how many rows at a time, and how many chunks.
void cut_rows(const RowLoop& loop, RowPlan& plan) {
  constexpr size_t chunk_work = size_t{1} << 18, most_chunks = 64, most_partials = size_t{1} << 20;
  constexpr size_t block_entries = size_t{1} << 14, most_rows = 256;
  size_t work = 0, partials = 1, widest = 1, gram_columns = 0;
  bool gram_of_buffer = false;
  for (const RowOp& op : loop.ops) {
    work += row_work(op);
    if (accumulates(op.kind)) partials += entries_of_sum(op);
    widest = std::max({widest, size(op.args[0].columns), accumulates(op.kind) ? 1 : size(op.out.columns)});
    if (op.kind == Kind::gram && op.args[0].kind != In::columns) {
      gram_columns = std::max(gram_columns, size(op.args[0].columns));
      gram_of_buffer = gram_of_buffer || op.args[0].kind == In::rows;
    }
  }
  if (gram_columns > 0) {
    const RowCut cut = row_cut(plan.rows, gram_columns);
    plan.tiled = cut.tiled && gram_of_buffer;
    plan.block_rows = cut.block_rows;
    plan.chunks = cut.chunks;
    return;
  }
  plan.block_rows = std::clamp(block_entries / widest / cache_line * cache_line, cache_line, most_rows);
  const size_t pieces = std::min({most_chunks, plan.rows * work / chunk_work, 1 + most_partials / partials});
  plan.chunks = cut_into(plan.rows, pieces, plan.block_rows);
}

class Run {
 public:
  Run(const RowPlan& plan, const Frame& frame)
      : plan_(plan),
        frame_(frame),
        tiles_(plan.tiles),
        stride_(size(detail::column_stride(static_cast<std::int64_t>(plan.rows)))) {}

  void all() const {
    if (plan_.tiled)
      tiled();
    else if (plan_.chunks.count == 1)
      chunk(0, 0);
    else
      parallel_for(plan_.chunks.count, frame_.workers, [this](size_t c, size_t worker) { chunk(c, worker); });
    for (const size_t k : plan_.sums) combine(plan_.steps[k]);
  }

 private:
  double* worker_scratch(size_t worker) const { return frame_.worker_scratch + worker * frame_.worker_stride; }

  double* at(const Place& p, size_t begin, double* mine) const {
    return (p.buffer < 0 ? mine : frame_.address[p.buffer]) + p.offset + begin * p.scale;
  }

  // The first part adds up where the result is wanted.
  double* sums(const Step& step, size_t part) const {
    return part == 0 ? at(step.out, 0, nullptr) : frame_.shared_scratch + step.partials + (part - 1) * step.entries;
  }

  static void join(const Step& step, const double* from, double* to, size_t n) {
    const Operand operands[] = {{to, false}, {from, false}};
    step.kernel(operands, to, n);
  }

  void chunk(size_t c, size_t worker) const {
    start(c);
    for (size_t r = plan_.chunks.begin(c); r < plan_.chunks.end(c); r += plan_.block_rows)
      block(r, std::min(plan_.block_rows, plan_.chunks.end(c) - r), 0, c, worker_scratch(worker));
  }

  void tiled() const {
    for (size_t part = 0; part < plan_.parts; ++part) start(part);
    for (size_t r = 0; r < plan_.rows; r += plan_.block_rows) {
      const Cut cut = cut_into(std::min(plan_.block_rows, plan_.rows - r), pieces_of_block);
      parallel_for(cut.count, frame_.workers, [&](size_t piece, size_t worker) {
        block(r + cut.begin(piece), cut.length(piece), cut.begin(piece), piece, worker_scratch(worker));
      });
      for (const Step& step : plan_.steps)
        if (step.shared)
          gram(cut.total, step.columns, at(step.args[0], r, nullptr),
               step.arg_count < 2 ? nullptr : frame_.shared_scratch + step.weights, sums(step, 0),
               frame_.shared_scratch + step.panels);
    }
  }

  void start(size_t part) const {
    for (const size_t k : plan_.sums)
      if (const Step& step = plan_.steps[k]; !step.shared || part == 0)
        std::fill_n(sums(step, part), step.entries, step.is_max ? -std::numeric_limits<double>::infinity() : 0.0);
  }

  // All operations on `count` rows from `begin` on, which are those from `in_block` on of a block that threads share.
  void block(size_t begin, size_t count, size_t in_block, size_t part, double* mine) const {
    for (const Step& step : plan_.steps) {
      const size_t columns = step.columns, width = step.width;
      if (step.op.kind == Kind::elementwise) {
        Operand operands[3];
        for (size_t i = 0; i < step.arg_count; ++i) operands[i] = {at(step.args[i], begin, mine), step.args[i].number};
        step.kernel(operands, at(step.out, begin, mine), count * width);
        continue;
      }
      const double* const a = at(step.args[0], begin, mine);
      const double* const b = step.arg_count < 2 ? nullptr : at(step.args[1], begin, mine);
      double* const out = accumulates(step.op.kind) ? sums(step, part) : at(step.out, begin, mine);
      switch (step.op.kind) {
        case Kind::elementwise: break;  // above
        case Kind::fill: std::fill_n(out, count * width, *a); break;
        case Kind::expand_row:
          for (size_t i = 0; i < count; ++i) std::copy_n(a, width, out + i * width);
          break;
        case Kind::expand_column:
          for (size_t i = 0; i < count; ++i) std::fill_n(out + i * width, width, a[i]);
          break;
        case Kind::product: product(step, a, count, b, out); break;
        case Kind::sum_rows:
        case Kind::max_rows:
          for (size_t i = 0; i < count; ++i) out[i] = (step.is_max ? tiles_.max : tiles_.sum)(a + i * columns, columns);
          break;
        case Kind::sum_all: *out += tiles_.sum(a, count * columns); break;
        case Kind::dot: *out += tiles_.dot(a, b, count * columns); break;
        case Kind::max_all: {
          const double largest = tiles_.max(a, count * columns);
          join(step, &largest, out, 1);
          break;
        }
        case Kind::sum_down:
        case Kind::max_down:
          for (size_t i = 0; i < count; ++i) join(step, a + i * columns, out, columns);
          break;
        case Kind::transposed_product: transposed_product(step, a, count, b, out); break;
        case Kind::gram:
          if (!step.shared && step.op.args[0].kind == In::columns)
            tiles_.gram(a, stride_, count, columns, b, out);
          else if (!step.shared)
            gram(count, columns, a, b, out, mine + step.panels);
          else if (b != nullptr)
            std::copy_n(b, count, frame_.shared_scratch + step.weights + in_block);
          break;
      }
    }
  }

  void product(const Step& step, const double* a, size_t count, const double* x, double* out) const {
    const size_t k = step.columns, width = step.width;
    if (k == 0)
      std::fill_n(out, count * width, 0.0);
    else if (step.op.args[0].kind == In::columns)
      tiles_.matvec(a, stride_, count, k, x, out);
    else if (width != 1)  // column-major: outᵀ = op(x)ᵀ aᵀ
      blas::dgemm_(step.op.flag ? Trans::yes : Trans::no, Trans::no, width, count, k, 1.0, x, step.op.flag ? k : width, a, k,
                   0.0, out, width);
    else if (count * k <= small_product)
      tiles_.row_matvec(a, count, k, x, out);
    else
      blas::dgemv_(Trans::yes, k, count, 1.0, a, k, x, 1, 0.0, out, 1);
  }

  void transposed_product(const Step& step, const double* a, size_t count, const double* r, double* out) const {
    const size_t k = step.columns, width = size(step.op.args[1].columns);
    if (k == 0 || width == 0) return;
    if (step.op.args[0].kind == In::columns)
      tiles_.tmatvec(a, stride_, count, k, r, out);
    else if (width != 1)
      blas::dgemm_(Trans::no, Trans::yes, width, k, count, 1.0, r, width, a, k, 1.0, out, width);
    else if (count * k <= small_product)
      tiles_.row_tmatvec(a, count, k, r, out);
    else
      blas::dgemv_(Trans::no, k, count, 1.0, a, k, r, 1, 1.0, out, 1);
  }

  void combine(const Step& step) const {
    if (plan_.parts > 1 && !step.shared) add_parts(step, plan_.parts);
    if (step.op.kind == Kind::gram && step.op.flag) mirror_lower(step.columns, sums(step, 0));
  }

  // In the order of the parts.
  void add_parts(const Step& step, size_t parts) const {
    constexpr size_t piece_doubles = size_t{1} << 15;
    const Cut cut = cut_into(step.entries, (parts - 1) * step.entries / piece_doubles);
    parallel_for(cut.count, [&](size_t p) {
      for (size_t part = 1; part < parts; ++part)
        join(step, sums(step, part) + cut.begin(p), sums(step, 0) + cut.begin(p), cut.length(p));
    });
  }

  const RowPlan& plan_;
  const Frame& frame_;
  const TileKernels& tiles_;
  size_t stride_;  // of matrices kept transposed
};

size_t take(size_t& total, size_t entries) { return (total += padded(entries)) - padded(entries); }

}  // namespace

std::shared_ptr<const detail::BackendPlan> prepare_row_loop(const RowLoop& loop) {
  auto plan = std::make_shared<RowPlan>();
  plan->rows = size(loop.rows);
  cut_rows(loop, *plan);
  plan->parts = plan->most_workers = plan->tiled ? pieces_of_block : plan->chunks.count;
  const size_t rows_at_once = plan->tiled ? cut_into(plan->block_rows, pieces_of_block).size : plan->block_rows;
  std::vector<size_t> tiles;
  for (const std::int64_t columns : loop.tile_columns)
    tiles.push_back(take(plan->worker_scratch, rows_at_once * size(columns)));
  const auto place = [&](const RowOperand& o) -> Place {
    if (o.kind == In::tile) return {-1, false, tiles[static_cast<size_t>(o.index)], 0};
    return {o.index, o.kind == In::number, 0, o.kind == In::rows ? size(o.columns) : size_t{o.kind == In::columns}};
  };
  for (const RowOp& op : loop.ops) {
    Step& step = plan->steps.emplace_back();
    step.op = op;
    for (const RowOperand& a : op.args) {
      if (!fits_blas(size(a.columns)))
        throw MisuseError(fmt::format("[Plan] {} columns are more than BLAS can count", a.columns));
      if (a.kind != In::none) step.args[step.arg_count++] = place(a);
    }
    step.columns = size(op.args[0].columns);
    step.width = size(op.out.columns);
    step.out = place(op.out);
    step.is_max = op.kind == Kind::max_rows || op.kind == Kind::max_all || op.kind == Kind::max_down;
    step.kernel = plan->tiles.elementwise(op.kind == Kind::elementwise ? op.op : step.is_max ? Op::maximum : Op::add);
    const bool is_product = op.kind == Kind::product, by_row = op.args[0].kind != In::columns;
    if ((is_product || op.kind == Kind::transposed_product) && by_row &&
        ((is_product ? op.out : op.args[1]).columns != 1 ||
         std::min(plan->block_rows, plan->rows) * step.columns > small_product))
      plan->calls_blas = true;
    if (!accumulates(op.kind)) continue;
    plan->sums.push_back(plan->steps.size() - 1);
    step.out.scale = 0;
    step.entries = entries_of_sum(op);
    step.shared = op.kind == Kind::gram && plan->tiled && op.args[0].kind == In::rows;
    if (step.shared)
      step.weights = take(plan->shared_scratch, plan->block_rows);
    else
      step.partials = take(plan->shared_scratch, (plan->parts - 1) * step.entries);
    if (op.kind == Kind::gram && by_row)
      step.panels = step.shared ? take(plan->shared_scratch, panels_size(plan->block_rows, step.columns))
                                : take(plan->worker_scratch, panels_size(rows_at_once, step.columns));
  }
  return plan;
}

void run_row_loop(const detail::BackendPlan& plan, const Frame& frame) {
  Run(static_cast<const RowPlan&>(plan), frame).all();
}

}  // namespace onestep::cpu
