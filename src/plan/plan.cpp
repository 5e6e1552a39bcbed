// The public plan and its workspace, and what surrounds the run of the instructions: where inputs and results are, which
// levels are run.
#include "onestep/plan.h"

#include <algorithm>
#include <functional>
#include <new>

#include "graph/fail.h"
#include "plan/program.h"

namespace onestep {
namespace detail {

// One aligned block: the arena, then scratch.
struct WorkspaceState {
  explicit WorkspaceState(std::shared_ptr<const Program> its_program);

  static constexpr int nothing = -2;  // not even what depends on constants alone, which is level -1
  static constexpr std::align_val_t alignment{64};
  struct Free {
    void operator()(double* p) const { ::operator delete[](p, alignment); }
  };

  std::shared_ptr<const Program> program;
  std::size_t workers, entries;
  std::unique_ptr<double[], Free> memory;
  Indexed<double*> address;            // of each buffer
  Indexed<std::vector<double>> dense;  // copies of strided inputs
  Indexed<const double*> dense_of;     // what they are copies of
  std::vector<std::uint8_t> failed;    // by instruction
  int valid = nothing;                 // the highest level up to which everything is computed from the last inputs
};

namespace {

std::size_t workers_of(const Program& p) { return std::max<std::size_t>(1, std::min(p.most_workers, p.backend->workers())); }
std::size_t entries_of(const Program& p, std::size_t workers) {
  return padded(p.arena_entries) + padded(p.shared_scratch) + workers * padded(p.worker_scratch);
}

// Whether two arrays of m and n entries share memory.
bool overlap(const double* a, std::size_t m, const double* b, std::size_t n) {
  return m > 0 && n > 0 && std::less<>()(a, b + n) && std::less<>()(b, a + m);
}
bool overlap(std::span<const double> a, const Array& b) {
  const std::int64_t to_last = (b.shape()[0] - 1) * b.row_stride() + (b.shape()[1] - 1) * b.column_stride();
  return overlap(a.data(), a.size(), b.data(), b.size() == 0 ? 0 : static_cast<std::size_t>(to_last + 1));
}

void bind_inputs(WorkspaceState& state, std::span<const Array> inputs, int first, int last) {
  for (const Buffer b : state.program->input_buffers) {
    const auto i = static_cast<std::size_t>(state.program->buffers[b].index);
    const int level = state.program->levels.inputs[i];
    if (level > last) continue;
    state.address[b] = const_cast<double*>(inputs[i].data());  // inputs are never written
    const double* const copied = std::exchange(state.dense_of[i], nullptr);
    if (inputs[i].is_contiguous()) continue;
    state.dense[i].resize(static_cast<std::size_t>(inputs[i].size()));
    if (copied != inputs[i].data() || level >= first) inputs[i].copy_to(state.dense[i]);
    state.dense_of[i] = inputs[i].data();
    state.address[b] = state.dense[i].data();
  }
}

// Results are computed where they are wanted, unless something that is read lies there.
bool can_be_written(std::span<const std::span<double>> outputs, std::size_t i, std::span<const Array> inputs) {
  for (const Array& input : inputs)
    if (overlap(outputs[i], input)) return false;
  for (std::size_t k = 0; k < outputs.size(); ++k)
    if (k != i && overlap(outputs[i].data(), outputs[i].size(), outputs[k].data(), outputs[k].size())) return false;
  return true;
}

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
  for (std::size_t b = 0; b < address.size(); ++b) {
    const BufferInfo& info = program->buffers[b];
    switch (info.storage) {
      case Storage::arena: address[b] = memory.get() + info.offset; break;
      // Constants and literals are never written: the frame has one kind of pointer for all.
      case Storage::constant: address[b] = const_cast<double*>(program->constants[info.index].data()); break;
      case Storage::literal: address[b] = const_cast<double*>(&program->literals[info.index]); break;
      case Storage::input: break;
    }
  }
}

}  // namespace detail

using detail::for_ever;
using detail::WorkspaceState;

Workspace::Workspace(std::shared_ptr<const detail::Program> program)
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

Plan::Plan(const Function& function, const PlanOptions& options) {
  const std::size_t count = function.inputs().size();
  const bool leveled = !options.levels.empty();
  if (leveled && options.levels.size() != count) fail("Plan", "{} levels for {} inputs", options.levels.size(), count);
  for (const int level : options.levels)
    if (level < 0) fail("Plan", "level {} is negative; levels begin at 0", level);
  detail::Levels levels{leveled ? options.levels : std::vector<int>(count, 0)};
  levels.loop = options.loop.value_or(leveled ? std::ranges::max(options.levels) : 0);
  levels.branches = options.branches.value_or(for_ever);
  if (options.branches && (!leveled || levels.branches < levels.loop + 2))
    fail("Plan", "branches begin two levels above the loop or higher, at {}, not at {}", levels.loop + 2, levels.branches);
  program_ = detail::compile(leveled ? detail::hoist_products(function, levels) : function, levels, detail::cpu_backend());
}

Workspace Plan::workspace() const { return Workspace(program_); }
std::size_t Plan::workspace_bytes() const {
  return detail::entries_of(*program_, detail::workers_of(*program_)) * sizeof(double);
}

void Plan::run(Workspace& workspace, std::span<const Array> inputs, std::span<const std::span<double>> outputs, int changed,
               int last) const {
  WorkspaceState& state = workspace.state();
  const detail::Program& program = *program_;
  const std::vector<detail::Result>& results = program.results;
  if (state.program != program_) fail("run", "the workspace belongs to another plan; make one with plan.workspace()");
  if (changed < 0 || last < 0) fail("run", "changed = {}, last = {}: levels begin at 0", changed, last);
  check_inputs("run", program.inputs, inputs);
  if (outputs.size() != results.size())
    fail("run", "memory for {} results, the function has {}", outputs.size(), results.size());
  const int branches = program.levels.branches;
  if (branches == for_ever) last = std::min(last, program.highest_level());
  const auto wanted = [&](std::size_t i) {
    const int level = results[i].level;
    return level <= last && (level < branches || level == last) && !(branches != for_ever && outputs[i].empty());
  };
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (std::ssize(outputs[i]) != results[i].shape.size() && (wanted(i) || !outputs[i].empty()))
      fail("run", "result {} has shape {}, memory for {} entries was given", i, results[i].shape, outputs[i].size());

  const int first = std::min({changed, last, state.valid + 1}), trunk = std::min(last, branches - 1);
  detail::bind_inputs(state, inputs, first, last);
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (const detail::Buffer b = results[i].buffer; results[i].direct && wanted(i))
      state.address[b] =
          detail::can_be_written(outputs, i, inputs) ? outputs[i].data() : state.memory.get() + program.buffers[b].offset;

  double* const scratch = state.memory.get() + detail::padded(program.arena_entries);
  const detail::Frame frame{state.address.data(), scratch, scratch + detail::padded(program.shared_scratch),
                            detail::padded(program.worker_scratch), state.workers};
  const auto run_levels = [&](int from, int to) {
    const auto at_level = [&](int level) {
      return std::ranges::lower_bound(program.code, level, {}, &detail::Instruction::level);
    };
    const auto begin = at_level(from);
    program.backend->run({begin, at_level(to + 1)}, frame, state.failed.data() + (begin - program.code.begin()));
  };
  state.valid = std::min(state.valid, first - 1);  // a foreign function may throw
  if (first <= trunk) run_levels(first, trunk);
  state.valid = trunk;
  if (last > trunk) run_levels(last, last);

  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const double* from = state.address[results[i].buffer];
    if (!wanted(i) || from == outputs[i].data()) continue;
    if (results[i].number)
      std::ranges::fill(outputs[i], *from);
    else
      std::copy_n(from, outputs[i].size(), outputs[i].begin());
  }
}

double Plan::flops() const { return flops(-1); }
double Plan::flops(int changed, int last) const {
  double total = 0;
  for (const detail::Instruction& i : program_->code)
    if (i.level >= changed && i.level <= last) total += i.flops;
  return total;
}

std::vector<Array> evaluate(const Function& function, std::span<const Array> inputs) {
  check_inputs("evaluate", function.inputs(), inputs);
  const Plan plan(function);
  Workspace workspace = plan.workspace();
  std::vector<std::vector<double>> values;
  for (const Expr& e : function.outputs()) values.emplace_back(static_cast<std::size_t>(e.shape().size()));
  plan.run(workspace, inputs, std::vector<std::span<double>>(values.begin(), values.end()));
  std::vector<Array> result;
  for (std::size_t i = 0; i < values.size(); ++i) result.emplace_back(function.outputs()[i].shape(), std::move(values[i]));
  return result;
}

}  // namespace onestep
