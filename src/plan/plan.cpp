// The public plan and its workspace, and what surrounds the run of the instructions: where inputs and results are, which
// levels are run; and plans as text.
#include "onestep/plan.h"

#include <algorithm>
#include <functional>
#include <new>

#include "graph/fail.h"
#include "graph/rules.h"
#include "plan/bound_plan.h"
#include "plan/program.h"

namespace onestep {

using namespace detail;

// One aligned block: the arena, then scratch.
struct detail::WorkspaceState {
  static constexpr int nothing = -2;  // not even what depends on constants alone, which is level -1
  static constexpr std::align_val_t alignment{64};
  struct Free {
    void operator()(double* p) const { ::operator delete[](p, alignment); }
  };

  explicit WorkspaceState(std::shared_ptr<const Program> its_program);
  std::shared_ptr<const Program> program;
  std::size_t workers, entries;
  std::unique_ptr<double[], Free> memory;
  Indexed<double*> address;                   // of each buffer
  Indexed<std::vector<double>> dense;         // copies of strided inputs
  Indexed<const double*> dense_of;            // what they are copies of
  std::vector<std::span<const double>> read;  // the inputs of this run that are read where they are
  std::vector<std::uint8_t> failed;           // by instruction
  int valid = nothing;                        // the highest level up to which everything is computed from the last inputs
};

namespace {

std::size_t workers_of(const Program& p) { return std::max<std::size_t>(1, std::min(p.most_workers, p.backend->workers())); }
std::size_t entries_of(const Program& p, std::size_t workers) {
  return padded(p.arena_entries) + padded(p.shared_scratch) + workers * padded(p.worker_scratch);
}

// An input is read where it is, or from a copy where that is not contiguous; the copy is made anew where it may have
// changed.
void bind_input(WorkspaceState& state, Buffer b, const Array& input, bool may_have_changed) {
  const auto i = static_cast<std::size_t>(state.program->buffers[b].index);
  state.address[b] = const_cast<double*>(input.data());  // inputs are never written
  const double* const copied = std::exchange(state.dense_of[i], nullptr);
  if (input.is_contiguous()) return;
  state.dense[i].resize(static_cast<std::size_t>(input.size()));
  if (copied != input.data() || may_have_changed) input.copy_to(state.dense[i]);
  state.dense_of[i] = input.data();
  state.address[b] = state.dense[i].data();
}

void bind_inputs(WorkspaceState& state, std::span<const Array> inputs, int first, int last) {
  state.read.clear();
  for (const Buffer b : state.program->input_buffers) {
    const auto i = static_cast<std::size_t>(state.program->buffers[b].index);
    const int level = state.program->levels.inputs[i];
    if (level > last || (level >= state.program->levels.branches && level != last)) continue;
    bind_input(state, b, inputs[i], level >= first);
    if (state.dense_of[i] == nullptr) state.read.emplace_back(inputs[i].data(), static_cast<std::size_t>(inputs[i].size()));
  }
}

// Without branches a run ends with the highest level there is.
int last_level(const Program& program, int last) {
  return program.levels.branches == for_ever ? std::min(last, program.highest_level()) : last;
}

// Whether a run up to `last` computes the result, where that is wanted.
bool is_computed(const Program& program, const Result& result, int last) {
  return result.level <= last && (result.level < program.levels.branches || result.level == last);
}

// Runs the levels from `first` on, with inputs and results where the addresses say.
void run_levels(WorkspaceState& state, int first, int last) {
  const Program& program = *state.program;
  double* const scratch = state.memory.get() + padded(program.arena_entries);
  const Frame frame{state.address.data(), scratch, scratch + padded(program.shared_scratch), padded(program.worker_scratch),
                    state.workers};
  const int trunk = std::min(last, program.levels.branches - 1);
  const auto run = [&](int from, int to) {
    const std::size_t begin = program.begin_of(from), end = program.begin_of(to + 1);
    program.backend->run(std::span(program.code).subspan(begin, end - begin), frame, state.failed.data() + begin);
  };
  state.valid = std::min(state.valid, first - 1);  // a foreign function may throw
  if (first <= trunk) run(first, trunk);
  state.valid = trunk;
  if (last > trunk) run(last, last);
}

double* own_memory(const WorkspaceState& state, const Result& result) {
  return state.memory.get() + state.program->buffers[result.buffer].offset;
}

// Where it was not computed there.
void copy_result(const WorkspaceState& state, const Result& result, std::span<double> to) {
  const double* const from = state.address[result.buffer];
  if (from == to.data()) return;
  if (result.number)
    std::ranges::fill(to, *from);
  else
    std::copy_n(from, to.size(), to.begin());
}

// Whether nothing that is read or written lies where result i is wanted.
bool is_apart(std::span<const std::span<double>> outputs, std::size_t i, std::span<const std::span<const double>> read) {
  const double *const begin = outputs[i].data(), *const end = begin + outputs[i].size();
  const auto apart = [&](std::span<const double> other) {
    return begin == end || other.empty() || !std::less<>()(begin, other.data() + other.size()) ||
           !std::less<>()(other.data(), end);
  };
  if (!std::ranges::all_of(read, apart)) return false;
  for (std::size_t k = 0; k < outputs.size(); ++k)
    if (k != i && !apart(outputs[k])) return false;
  return true;
}

std::string name_of(const Program& program, Buffer b) {
  const BufferInfo& info = program.buffers[b];
  if (info.storage == Storage::input) return program.inputs[info.index].name;
  if (info.storage == Storage::arena) return fmt::format("b{}", b);
  const Array& constant = program.constants[info.index];
  return constant.shape().rank() == 0 ? fmt::format("{}", constant.item()) : fmt::format("constant{}", info.index);
}
std::string name_of(const Program& program, const RowOperand& o) {
  if (o.kind == RowOperand::Kind::tile) return fmt::format("t{}", o.index);
  const bool by_rows = o.kind == RowOperand::Kind::rows || o.kind == RowOperand::Kind::columns;
  return name_of(program, o.index) + (by_rows ? "[rows]" : "");
}

// In the order of RowOp::Kind; an elementwise one has its operation's name.
constexpr const char* kind_names[] = {
    "",       "fill",   "expand row",  "expand column", "product",       "sum along rows",        "max along rows",
    "+= sum", "+= dot", "+= sum down", "max= max",      "max= max down", "+= transposed product", "+= gram"};

}  // namespace

WorkspaceState::WorkspaceState(std::shared_ptr<const Program> its_program)
    : program(std::move(its_program)),
      workers((program->backend->start_workers(), workers_of(*program))),
      entries(entries_of(*program, workers)),
      memory(static_cast<double*>(::operator new[](std::max<std::size_t>(entries, 1) * sizeof(double), alignment))),
      address(program->buffers.size()),
      dense(program->inputs.size()),
      dense_of(program->inputs.size()),
      failed(program->code.size()) {
  read.reserve(program->inputs.size());
  for (std::size_t b = 0; b < address.size(); ++b) {
    const BufferInfo& info = program->buffers[b];
    if (info.storage == Storage::arena) address[b] = memory.get() + info.offset;
    // Constants are never written: the frame has one kind of pointer for all.
    if (info.storage == Storage::constant) address[b] = const_cast<double*>(program->constants[info.index].data());
  }
}

Workspace::Workspace(std::shared_ptr<const Program> program)
    : state_(std::make_unique<WorkspaceState>(std::move(program))) {}
Workspace::Workspace(Workspace&&) noexcept = default;
Workspace& Workspace::operator=(Workspace&&) noexcept = default;
Workspace::~Workspace() = default;

WorkspaceState& Workspace::state() const {
  if (!state_) fail("Workspace", "it was moved from; make a new one with plan.workspace()");
  return *state_;
}
bool Workspace::failed() const {
  const auto& code = state().program->code;
  for (std::size_t k = 0; k < code.size() && code[k].level <= state_->valid; ++k)
    if (state_->failed[k] != 0) return true;
  return false;
}
std::size_t Workspace::bytes() const { return state().entries * sizeof(double); }
void Workspace::poison() {
  std::fill_n(state().memory.get(), state().entries, std::numeric_limits<double>::quiet_NaN());
  state_->valid = WorkspaceState::nothing;
}

Plan::Plan(const Function& function, const PlanOptions& options, std::shared_ptr<const Backend> backend) {
  const std::size_t count = function.inputs().size();
  const bool leveled = !options.levels.empty();
  if (leveled && options.levels.size() != count) fail("Plan", "{} levels for {} inputs", options.levels.size(), count);
  for (const int level : options.levels)
    if (level < 0) fail("Plan", "level {} is negative; levels begin at 0", level);
  const int loop = options.loop.value_or(leveled ? std::ranges::max(options.levels) : 0);
  const Levels levels{leveled ? options.levels : std::vector<int>(count, 0), loop, options.branches.value_or(for_ever)};
  if (options.branches && (!leveled || levels.branches < loop + 2))
    fail("Plan", "branches begin two levels above the loop or higher, at {}, not at {}", loop + 2, levels.branches);
  const Function planned = leveled ? hoist_products(function, levels, backend->limits()) : function;
  program_ = compile(planned, levels, std::move(backend));
}

const Program& Plan::program() const {
  if (!program_) fail_moved_from("Plan");
  return *program_;
}
Workspace Plan::workspace() const {
  program();
  return Workspace(program_);
}
std::size_t Plan::workspace_bytes() const { return entries_of(program(), workers_of(program())) * sizeof(double); }

void Plan::run(Workspace& workspace, std::span<const Array> inputs, std::span<const std::span<double>> outputs, int changed,
               int last) const {
  const Program& program = this->program();
  WorkspaceState& state = workspace.state();
  const std::vector<Result>& results = program.results;
  const int branches = program.levels.branches;
  if (state.program != program_) fail("run", "the workspace belongs to another plan; make one with plan.workspace()");
  if (changed < 0 || last < 0) fail("run", "changed = {}, last = {}: levels begin at 0", changed, last);
  check_inputs("run", program.inputs, inputs);
  if (outputs.size() != results.size())
    fail("run", "memory for {} results, the function has {}", outputs.size(), results.size());
  last = last_level(program, last);
  const auto wanted = [&](std::size_t i) {
    return is_computed(program, results[i], last) && !(branches != for_ever && outputs[i].empty());
  };
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (std::ssize(outputs[i]) != results[i].shape.size() && (!outputs[i].empty() || wanted(i)))
      fail("run", "result {} has shape {}, memory for {} entries was given", i, results[i].shape, outputs[i].size());

  const int first = std::min({changed, last, state.valid + 1});
  bind_inputs(state, inputs, first, last);
  // Results are computed where they are wanted, unless something else lies there.
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!results[i].direct || (results[i].level >= branches && results[i].level != last)) continue;
    state.address[results[i].buffer] =
        wanted(i) && is_apart(outputs, i, state.read) ? outputs[i].data() : own_memory(state, results[i]);
  }
  run_levels(state, first, last);
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (wanted(i)) copy_result(state, results[i], outputs[i]);
}

BoundPlan::BoundPlan(const Plan& plan) : workspace_(plan.workspace()) {
  const Program& program = plan.program();
  buffers_.resize(program.inputs.size(), no_buffer);
  for (const Buffer b : program.input_buffers) buffers_[static_cast<std::size_t>(program.buffers[b].index)] = b;
}

void BoundPlan::bind(std::size_t input, const Array& array) {
  if (buffers_[input] != no_buffer) bind_input(workspace_.state(), buffers_[input], array, true);
}

void BoundPlan::run(std::size_t begin, std::span<const std::span<double>> outputs, int changed, int last) {
  WorkspaceState& state = workspace_.state();
  // The memory is the caller's, and may be gone after this run, also where a foreign function throws.
  struct Results {
    WorkspaceState& state;
    std::span<const Result> all;
    void compute_in(std::span<const std::span<double>> memory) const {
      for (std::size_t i = 0; i < all.size(); ++i)
        if (all[i].direct && !memory[i].empty()) state.address[all[i].buffer] = memory[i].data();
    }
    ~Results() {
      for (const Result& result : all)
        if (result.direct) state.address[result.buffer] = own_memory(state, result);
    }
  } const results{state, std::span(state.program->results).subspan(begin, outputs.size())};
  results.compute_in(outputs);
  last = last_level(*state.program, last);
  run_levels(state, std::min({changed, last, state.valid + 1}), last);
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (!outputs[i].empty()) copy_result(state, results.all[i], outputs[i]);
}

double Plan::flops() const { return flops(-1); }
double Plan::flops(int changed, int last) const {
  double total = 0;
  for (const Instruction& i : program().code)
    if (i.level >= changed && i.level <= last) total += i.flops;
  return total;
}

std::string Plan::text() const {
  const Program& program = this->program();
  std::string out;
  for (const Instruction& i : program.code) {
    std::vector<std::string> args;
    for (const Buffer b : i.args) args.push_back(name_of(program, b));
    if (i.is_loop())
      out += fmt::format("level {}  for each of {} rows, by blocks\n", i.level, i.loop.rows);
    else
      out += fmt::format("level {}  {} = {}{}({})  {}\n", i.level, name_of(program, i.out), name(i.op),
                         i.op == Op::add ? " diagonal" : "", fmt::join(args, ", "), i.shape);
    for (const RowOp& op : i.loop.ops) {
      args.clear();
      for (const RowOperand& a : op.args)
        if (a.kind != RowOperand::Kind::none) args.push_back(name_of(program, a));
      const bool elementwise = op.kind == RowOp::Kind::elementwise, lower = op.kind == RowOp::Kind::gram && !op.flag;
      out += fmt::format("           {} {} {}{}({})\n", name_of(program, op.out), accumulates(op.kind) ? "" : "=",
                         elementwise ? name(op.op) : kind_names[static_cast<std::size_t>(op.kind)], lower ? " (lower)" : "",
                         fmt::join(args, ", "));
    }
  }
  return out + fmt::format("{} bytes of workspace\n", workspace_bytes());
}

}  // namespace onestep
