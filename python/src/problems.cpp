// Solving problems on plain memory. A slot is a solver prepared for one layout, with memory of its own for the inputs: it is
// used by one thread at a time, and remembers the last problems it solved.
#include "problems.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <variant>

#include "problems_slot.h"

namespace onestep::python {
namespace {

// Idle slots that a layout keeps, and layouts that are remembered: enough for threads and loops that alternate.
constexpr std::size_t most_slots = 8, most_layouts = 16;

// Of a solution's message what does not refer to its proof: whoever asks for several problems at once has no Solution.
std::string why_not_solved(const Solution& solution) {
  std::string why = explain(solution.status());
  const std::string about = solution.about();
  if (!about.empty()) return why + " [" + about + "]";
  why.pop_back();  // the full stop
  return why;
}

}  // namespace

Problems::Problems(std::string name, Solver solver, Estimator estimator, OnError on_error, Shapes shapes, Scope scope)
    : name_(std::move(name)),
      solver_(std::move(solver)),
      estimator_(std::move(estimator)),
      on_error_(on_error),
      shapes_(std::move(shapes)),
      scope_(std::move(scope)) {
  // What does not fit is said now, not by the first solve.
  const Layout one{std::vector<bool>(inputs(), false), 1};
  give_back(one, made(one));
}

Problems::~Problems() = default;

std::unique_ptr<Problems::Slot> Problems::made(const Layout& layout) const {
  const std::shared_ptr<void> held = scope_();
  return std::make_unique<Slot>(*this, layout);
}

std::unique_ptr<Problems::Slot> Problems::take(const Layout& layout) {
  {
    const std::scoped_lock lock(mutex_);
    std::vector<std::unique_ptr<Slot>>& idle = idle_[layout];
    if (!idle.empty()) {
      std::unique_ptr<Slot> last = std::move(idle.back());
      idle.pop_back();
      return last;
    }
  }
  return made(layout);
}

std::unique_ptr<Problems::Slot> Problems::take_solved(const Layout& layout, Inputs inputs, Inputs state) {
  {
    const std::scoped_lock lock(mutex_);
    std::vector<std::unique_ptr<Slot>>& idle = idle_[layout];
    for (std::size_t i = idle.size(); i-- > 0;) {
      if (!idle[i]->has_solved(inputs, state)) continue;
      std::unique_ptr<Slot> found = std::move(idle[i]);
      idle.erase(idle.begin() + static_cast<std::ptrdiff_t>(i));
      return found;
    }
  }
  return nullptr;
}

void Problems::give_back(const Layout& layout, std::unique_ptr<Slot> slot) {
  std::vector<std::unique_ptr<Slot>> dropped;  // destroyed without the lock
  const std::scoped_lock lock(mutex_);
  if (idle_.size() > most_layouts) {
    const auto other = idle_.begin()->first == layout ? std::next(idle_.begin()) : idle_.begin();
    dropped = std::move(other->second);
    idle_.erase(other);
  }
  std::vector<std::unique_ptr<Slot>>& idle = idle_[layout];
  idle.push_back(std::move(slot));
  if (idle.size() > most_slots) {
    dropped.push_back(std::move(idle.front()));
    idle.erase(idle.begin());
  }
}

// A slot for the time of a computation. One whose computation threw is not used again.
class Problems::Turn {
 public:
  Turn(Problems& problems, const Layout& layout, std::unique_ptr<Slot> slot)
      : problems_(problems), layout_(layout), slot_(std::move(slot)) {}
  Slot& slot() { return *slot_; }
  void done() { problems_.give_back(layout_, std::move(slot_)); }

 private:
  Problems& problems_;
  const Layout& layout_;
  std::unique_ptr<Slot> slot_;
};

NotConvergedError Problems::not_converged(const Slot& slot, const std::vector<std::size_t>& failed,
                                          std::size_t count) const {
  const Solution first = slot.one(failed.front());
  std::string which;
  if (count > 1)
    which = std::to_string(failed.size()) + " of " + std::to_string(count) +
            " problems did not end at a solution; the first of them, number " + std::to_string(failed.front()) + ": ";
  return {"[" + name_ + "] " + which + why_not_solved(first) +
              ". With on_error='nan' or 'keep' the computation goes on, with a status for each problem",
          first.status(), first.statistics().iterations};
}

void Problems::solve(const Layout& layout, Inputs inputs, Outputs state, std::int32_t* statuses) {
  if (layout.count == 0) return;
  Turn turn(*this, layout, take(layout));
  Slot& slot = turn.slot();
  slot.solve(inputs);
  const std::vector<std::size_t> failed = slot.failed();
  if (!failed.empty() && on_error_ == OnError::raise) {
    const NotConvergedError error = not_converged(slot, failed, layout.count);
    turn.done();
    throw error;
  }
  slot.write_state(on_error_ == OnError::nan ? failed : std::vector<std::size_t>());
  slot.copy_state_to(state);
  for (std::size_t i = 0; i < layout.count; ++i) statuses[i] = static_cast<std::int32_t>(slot.status(i));
  turn.done();
}

// From where they began before, so that all is as it was, to the last bit: which of several threads finds its solution still
// there must not show.
void Problems::solve_again(Slot& slot, Inputs inputs, Inputs state) {
  slot.solve(inputs);
  slot.adopt_state(state);
}

void Problems::vjp(const Layout& layout, const Directions& which, Inputs c, Inputs inputs, Inputs state, Outputs out) {
  if (layout.count == 0 || which.count == 0) {
    Derivation::clear(*this, layout, which, out);
    return;
  }
  std::unique_ptr<Slot> found = take_solved(layout, inputs, state);
  const bool is_new = found == nullptr;
  Turn turn(*this, layout, is_new ? take(layout) : std::move(found));
  if (is_new) solve_again(turn.slot(), inputs, state);
  Derivation(*this, turn.slot(), layout, which).vjp(c, out);
  turn.done();
}

void Problems::jvp(const Layout& layout, const Directions& which, Inputs v, Inputs inputs, Inputs state, Outputs out) {
  if (layout.count == 0 || which.count == 0) return;
  std::unique_ptr<Slot> found = take_solved(layout, inputs, state);
  const bool is_new = found == nullptr;
  Turn turn(*this, layout, is_new ? take(layout) : std::move(found));
  if (is_new) solve_again(turn.slot(), inputs, state);
  Derivation(*this, turn.slot(), layout, which).jvp(v, out);
  turn.done();
}

}  // namespace onestep::python
