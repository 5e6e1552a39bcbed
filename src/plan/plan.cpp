// The public plan and its workspace, and the loop that runs the instructions.
#include "onestep/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <new>

#include "graph/rules.h"
#include "plan/program.h"

namespace onestep {
namespace detail {

// One aligned block: the arena, then scratch.
struct WorkspaceState {
  explicit WorkspaceState(std::shared_ptr<const Program> its_program);

  std::shared_ptr<const Program> program;
  std::size_t workers;
  std::size_t entries;
  std::size_t worker_stride;
  struct Free {
    void operator()(double* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  std::unique_ptr<double[], Free> memory;
  std::vector<double*> address;            // of each buffer
  std::vector<std::vector<double>> dense;  // copies of strided inputs
  std::vector<const double*> dense_of;     // what they are copies of
  std::vector<std::uint8_t> failed;        // by instruction
  int valid = nothing;                     // the highest level up to which everything is computed from the last inputs
  static constexpr int nothing = -2;       // not even what depends on constants alone, which is level -1
};

namespace {
std::size_t padded(std::size_t entries) { return (entries + 7) / 8 * 8; }
std::size_t workers_of(const Program& p) {
  return std::max<std::size_t>(1, std::min(p.most_workers, cpu_backend().workers()));
}
std::size_t entries_of(const Program& p, std::size_t workers) {
  return padded(p.arena_entries) + padded(p.shared_scratch) + workers * padded(p.worker_scratch);
}
}  // namespace

WorkspaceState::WorkspaceState(std::shared_ptr<const Program> its_program)
    : program(std::move(its_program)),
      workers(workers_of(*program)),
      entries(entries_of(*program, workers)),
      worker_stride(padded(program->worker_scratch)),
      memory(
          static_cast<double*>(::operator new[](std::max<std::size_t>(entries, 1) * sizeof(double), std::align_val_t{64}))),
      address(program->buffers.size()),
      dense(program->inputs.size()),
      dense_of(program->inputs.size()),
      failed(program->code.size()) {
  for (std::size_t b = 0; b < address.size(); ++b) {
    const BufferInfo& info = program->buffers[b];
    const auto index = static_cast<std::size_t>(info.index);
    switch (info.storage) {
      case Storage::arena: address[b] = memory.get() + info.offset; break;
      // Constants and literals are never written: the frame has one kind of pointer for all.
      case Storage::constant: address[b] = const_cast<double*>(program->constants[index].data()); break;
      case Storage::literal: address[b] = const_cast<double*>(&program->literals[index]); break;
      case Storage::input: break;
    }
  }
}

}  // namespace detail

Workspace::Workspace(std::shared_ptr<const detail::Program> program)
    : state_(std::make_unique<detail::WorkspaceState>(std::move(program))) {}
Workspace::Workspace(Workspace&&) noexcept = default;
Workspace& Workspace::operator=(Workspace&&) noexcept = default;
Workspace::~Workspace() = default;

detail::WorkspaceState& Workspace::state() const {
  if (!state_) throw Error("[Workspace] it was moved from; make a new one with plan.workspace()");
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
  state_->valid = detail::WorkspaceState::nothing;
}

Plan::Plan(const Function& function, const PlanOptions& options) {
  if (!options.levels.empty()) {
    if (options.levels.size() != function.inputs().size())
      throw Error(fmt::format("[Plan] {} levels for {} inputs", options.levels.size(), function.inputs().size()));
    for (const int level : options.levels)
      if (level < 0) throw Error(fmt::format("[Plan] level {} is negative; levels begin at 0", level));
  }
  const int loop = options.loop ? *options.loop : options.levels.empty() ? 0 : std::ranges::max(options.levels);
  if (options.branches && (options.levels.empty() || *options.branches < loop + 2))
    throw Error(fmt::format("[Plan] branches begin two levels above the loop or higher, at {}, not at {}", loop + 2,
                            *options.branches));
  program_ = detail::compile(detail::hoist_products(function, options.levels, loop), options.levels, loop,
                             options.branches.value_or(highest), detail::cpu_backend());
}

Workspace Plan::workspace() const { return Workspace(program_); }

std::size_t Plan::workspace_bytes() const {
  return detail::entries_of(*program_, detail::workers_of(*program_)) * sizeof(double);
}

namespace {

// From the first entry of an array to behind its last, in entries.
std::size_t span_of(const Array& a) {
  if (a.size() == 0) return 0;
  const Shape& s = a.shape();
  return static_cast<std::size_t>((s[0] - 1) * a.row_stride() + (s[1] - 1) * a.column_stride() + 1);
}

// Entries of a strided array, row by row.
void copy_dense(const Array& from, double* to) {
  const auto columns = from.shape().rank() == 2 ? from.shape()[1] : 1;
  for (std::int64_t i = 0; i < from.shape()[0]; ++i)
    for (std::int64_t j = 0; j < columns; ++j) *to++ = from.data()[i * from.row_stride() + j * from.column_stride()];
}

}  // namespace

void Plan::run(Workspace& workspace, std::span<const Array> inputs, std::span<const std::span<double>> outputs, int changed,
               int last) const {
  detail::WorkspaceState& state = workspace.state();
  const detail::Program& program = *program_;
  if (state.program != program_) throw Error("[run] the workspace belongs to another plan; make one with plan.workspace()");
  if (changed < 0 || last < 0) throw Error(fmt::format("[run] changed = {}, last = {}: levels begin at 0", changed, last));
  if (inputs.size() != program.inputs.size())
    throw Error(fmt::format("[run] {} inputs are bound, the function has {}", inputs.size(), program.inputs.size()));
  if (outputs.size() != program.results.size())
    throw Error(fmt::format("[run] memory for {} results, the function has {}", outputs.size(), program.results.size()));
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].shape() != program.inputs[i].shape)
      throw Error(fmt::format("[run] input {} has shape {}, the function was traced for {}", program.inputs[i].name,
                              to_string(inputs[i].shape()), to_string(program.inputs[i].shape)));
  const bool branched = program.branches != highest;
  if (!branched) last = std::min(last, program.highest_level());
  const auto wanted = [&](std::size_t i) {
    const int level = program.results[i].level;
    return level <= last && (level < program.branches || level == last) && !(branched && outputs[i].empty());
  };
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (static_cast<std::int64_t>(outputs[i].size()) != program.results[i].shape.size() &&
        (wanted(i) || !outputs[i].empty()))
      throw Error(fmt::format("[run] result {} has shape {}, memory for {} entries was given", i,
                              to_string(program.results[i].shape), outputs[i].size()));

  const int first = std::min({changed, last, state.valid + 1});
  for (const detail::Buffer buffer : program.input_buffers) {
    const auto b = static_cast<std::size_t>(buffer);
    const detail::BufferInfo& info = program.buffers[b];
    const auto i = static_cast<std::size_t>(info.index);
    if (program.levels[i] > last) continue;
    if (inputs[i].is_contiguous()) {
      state.address[b] = const_cast<double*>(inputs[i].data());  // inputs are never written
      state.dense_of[i] = nullptr;
      continue;
    }
    state.dense[i].resize(static_cast<std::size_t>(inputs[i].size()));
    if (state.dense_of[i] != inputs[i].data() || program.levels[i] >= first) copy_dense(inputs[i], state.dense[i].data());
    state.dense_of[i] = inputs[i].data();
    state.address[b] = state.dense[i].data();
  }

  double* const scratch = state.memory.get() + detail::padded(program.arena_entries);
  const detail::Frame frame{state.address.data(), scratch, scratch + detail::padded(program.shared_scratch),
                            state.worker_stride, state.workers};
  // Results are computed where they are wanted, unless something that is read lies there.
  const auto overlaps = [](const double* a, std::size_t m, const double* b, std::size_t n) {
    return m > 0 && n > 0 && std::less<>()(a, b + n) && std::less<>()(b, a + m);
  };
  const auto in_place = [&](std::size_t i) {
    for (const Array& input : inputs)
      if (overlaps(outputs[i].data(), outputs[i].size(), input.data(), span_of(input))) return false;
    for (std::size_t k = 0; k < outputs.size(); ++k)
      if (k != i && overlaps(outputs[i].data(), outputs[i].size(), outputs[k].data(), outputs[k].size())) return false;
    return true;
  };
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (program.results[i].direct && wanted(i)) {
      const auto b = static_cast<std::size_t>(program.results[i].buffer);
      state.address[b] = in_place(i) ? outputs[i].data() : state.memory.get() + program.buffers[b].offset;
    }
  const auto at_level = [&](int level) {
    return std::ranges::lower_bound(program.code, level, {}, &detail::Instruction::level);
  };
  const auto run_levels = [&](int from, int to) {
    const auto begin = at_level(from);
    const std::span<const detail::Instruction> code(begin, at_level(to + 1));
    detail::cpu_backend().run(code, frame, state.failed.data() + (begin - program.code.begin()));
  };
  const int trunk = std::min(last, program.branches - 1);
  state.valid = std::min(state.valid, first - 1);  // a foreign function may throw
  if (first <= trunk) run_levels(first, trunk);
  state.valid = trunk;
  if (last > trunk) run_levels(last, last);

  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!wanted(i)) continue;
    const double* from = state.address[static_cast<std::size_t>(program.results[i].buffer)];
    if (from == outputs[i].data()) continue;
    if (program.results[i].number)
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
  const Plan plan(function);
  Workspace workspace = plan.workspace();
  std::vector<std::vector<double>> values;
  for (const Expr& e : function.outputs()) values.emplace_back(static_cast<std::size_t>(e.shape().size()));
  const std::vector<std::span<double>> outputs(values.begin(), values.end());
  plan.run(workspace, inputs, outputs);
  std::vector<Array> result;
  for (std::size_t i = 0; i < values.size(); ++i) result.emplace_back(function.outputs()[i].shape(), std::move(values[i]));
  return result;
}

}  // namespace onestep
