// What a plan consists of: buffers, and instructions in the order they are run. An instruction is either one structural
// operation on whole arrays or a row loop: everything that can be done while walking once over the rows of arrays with the
// same number of rows. Backends execute instructions; of the layers above they know this file and the table of operations.
#pragma once

#include <algorithm>
#include <limits>

#include "graph/graph.h"
#include "onestep/function.h"
#include "onestep/plan.h"

namespace onestep::detail {

using Buffer = std::int32_t;  ///< index into Program::buffers
constexpr Buffer no_buffer = -1;
constexpr int for_ever = std::numeric_limits<int>::max();

enum class Storage : std::uint8_t { arena, input, constant };
struct BufferInfo {
  Storage storage = Storage::arena;
  std::int64_t index = 0;   ///< of the input or the constant
  std::size_t entries = 0;  ///< doubles held, a factor's pivots included
  std::size_t offset = 0;   ///< in the arena, in doubles
  int level = -1;           ///< of the instruction that writes it
  int first = 0, last = 0;  ///< instructions between which an arena buffer is in use
};

/// Entries up to the next cache line.
template <class Int> constexpr Int padded(Int entries) { return (entries + 7) / 8 * 8; }
/// Entries of a factor of an n x n matrix: the matrix and its pivots (as ints, two to a double).
constexpr std::int64_t factor_entries(std::int64_t n) { return n * n + (n + 1) / 2; }
/// From column to column of a matrix kept transposed: no power of two, or all columns would share cache sets.
constexpr std::int64_t column_stride(std::int64_t rows) { return padded(rows) + 8; }

/// What a row operation reads: rows of a buffer, rows of one that is kept transposed (column_stride apart), a tile the loop
/// made, one number for all entries, or a whole buffer.
struct RowOperand {
  enum class Kind : std::uint8_t { none, rows, columns, tile, number, whole } kind = Kind::none;
  std::int32_t index = 0;  ///< buffer, or tile
  std::int64_t columns = 1;
};

/// A step of a row loop, done for a block of rows at a time.
struct RowOp {
  enum class Kind : std::uint8_t {
    elementwise,    // out = op(args)
    fill,           // out = number
    expand_row,     // out = the whole of args[0] (one row) in each row
    expand_column,  // out = args[0] (one entry a row) along each row
    product,        // out = args[0] · args[1], args[1] a whole vector or matrix (transposed: flag)
    sum_rows,
    max_rows,  // along each row
    // The rest add up over the rows; `out` is a buffer, complete after the loop.
    sum_all,
    dot,  // of args[0]; of the product of args[0] and args[1]
    sum_down,
    max_all,
    max_down,            // down: each column by itself
    transposed_product,  // out = args[0]ᵀ · args[1], both by rows
    gram,                // out = args[0]ᵀ diag(args[1]) args[0]; args[1] none: ones
  } kind{};
  Op op{};            // elementwise
  bool flag = false;  // product: transposed; gram: both triangles are wanted
  RowOperand args[3] = {}, out = {};
};
inline bool accumulates(RowOp::Kind kind) { return kind >= RowOp::Kind::sum_all; }

struct RowLoop {
  std::int64_t rows = 0;
  std::vector<RowOp> ops;
  std::vector<std::int64_t> tile_columns;  ///< widths of the tiles
};

/// What the backend decided for an instruction when the plan was made, and the memory it needs.
struct BackendPlan {
  virtual ~BackendPlan() = default;
  std::size_t shared_scratch = 0;  ///< doubles, for all threads together
  std::size_t worker_scratch = 0;  ///< doubles, for each thread that takes part
  std::size_t most_workers = 1;    ///< threads that can take part at once
  bool calls_blas = false;
};

/// A row loop, or, where that is empty, one structural operation. Of elementwise operations only add is one: of a matrix and
/// a diagonal, the second argument. transpose: rows of the result are attr.i apart.
struct Instruction {
  Op op{};
  Attr attr = {};
  Shape shape = {};
  std::vector<Buffer> args = {};
  std::vector<Shape> arg_shapes = {};
  Buffer out = no_buffer;
  int level = 0;
  double flops = 0;
  bool scalar_diagonal = false;  ///< add: the diagonal is one number
  Op factor{};                   ///< solve, logdet: which factorisation the first argument holds
  const Foreign* foreign = nullptr;
  RowLoop loop = {};
  std::shared_ptr<const BackendPlan> backend = {};
  bool is_loop() const { return !loop.ops.empty(); }
};

struct Result {
  Buffer buffer = no_buffer;
  Shape shape;
  bool number = false;  ///< one number for all entries
  int level = -1;
  bool direct = false;  ///< of the highest level and nowhere else a result: can be computed where the caller wants it
};

/// How often inputs change, see PlanOptions.
struct Levels {
  std::vector<int> inputs;
  int loop = 0, branches = for_ever;  ///< branches: the first of the levels that are independent of each other
};

struct Program {
  std::shared_ptr<const class Backend> backend;
  std::shared_ptr<const Graph> graph;  ///< keeps foreign functions and constants alive
  Indexed<Input> inputs;
  Levels levels;
  Indexed<Array> constants;  ///< and numbers
  Indexed<BufferInfo> buffers;
  std::vector<Buffer> input_buffers;  ///< those that hold inputs
  std::vector<Instruction> code;      ///< by level, then by time; level -1 is run once for a workspace
  std::vector<std::size_t> begins;    ///< where each level's code begins, from level -1 on; and the end
  std::vector<Result> results;
  std::size_t arena_entries = 0, shared_scratch = 0, worker_scratch = 0, most_workers = 1;
  int highest_level() const { return code.empty() ? -1 : code.back().level; }
  std::size_t begin_of(int level) const { return begins[std::min(static_cast<std::size_t>(level + 1), begins.size() - 1)]; }
};

/// Where an instruction finds its memory in one run.
struct Frame {
  double* const* address;                   ///< of each buffer
  double *shared_scratch, *worker_scratch;  ///< the second: `workers` pieces of `worker_stride`
  std::size_t worker_stride, workers;
};

/// Sizes at which one way of computing becomes better than another: what a backend knows, and plans are made by.
struct Limits {
  std::int64_t narrow = 64;       ///< products with at most so many columns are done by rows, wider ones by one large GEMM
  std::int64_t few_columns = 24;  ///< a matrix with at most so many columns, and at least so many rows, is read through a
  std::int64_t many_rows = 32;    ///< transposed copy, made when it changes: vector instructions then run down its columns
  std::int64_t long_walk = 1 << 18;  ///< entries of a matrix that does not stay in the cache
};

/// What a backend does. Plans share it, in several threads at once. Results must not depend on the number of threads.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual Limits limits() const { return {}; }
  /// Decides how to run the instruction, from its shapes alone.
  virtual std::shared_ptr<const BackendPlan> prepare(const Instruction& instruction) const = 0;
  /// Runs the instructions in order; failed[k] says whether the k-th, a factorisation, failed.
  virtual void run(std::span<const Instruction> code, const Frame& frame, std::uint8_t* failed) const = 0;
  virtual std::size_t workers() const = 0;  ///< how many threads would take part at most now
  virtual void start_workers() const = 0;   ///< now, so that no run has to
};
/// The function with products that pay in its loop (hoist.cpp).
Function hoist_products(const Function& function, const Levels& levels, const Limits& limits);
/// Levels, order, row loops, buffers (schedule.cpp, compile.cpp, pack.cpp).
std::shared_ptr<const Program> compile(const Function& function, const Levels& levels,
                                       std::shared_ptr<const Backend> backend);
/// Gives arena buffers their places, so that those in use at the same time do not overlap.
void pack_buffers(Program& program);

}  // namespace onestep::detail
