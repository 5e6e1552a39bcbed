// States are kept in chunks that never move, the first or the last ones.
#include "solve/trajectory.h"

#include <algorithm>

namespace onestep::detail {

void Trajectory::keep_last(std::size_t count) { last_ = count; }
void Trajectory::keep_first(std::size_t entries) {
  first_entries_ = entries;
  keeps_controls_ = true;
}

void Trajectory::clear(std::size_t n) {
  n_ = n;
  steps_ = kept_ = 0;
  controls_.clear();
  controls_from_.clear();
}

void Trajectory::release() {
  kept_ = 0;
  chunks_.clear();
}

void Trajectory::record(ConstVector x, ConstVector controls) {
  control_count_ = controls.size();
  if (last_ > 0) {
    std::ranges::copy(x, place(static_cast<std::size_t>(steps_) % last_).begin());
    kept_ = std::min(kept_ + 1, static_cast<int>(last_));
  } else if (keeps_controls_) {
    if (kept_ == steps_ && (static_cast<std::size_t>(kept_) + 1) * n_ <= first_entries_)
      std::ranges::copy(x, place(static_cast<std::size_t>(kept_++)).begin());
    // They are the same for all steps, or for all near the solution: only changes are kept.
    if (controls_from_.empty() || !std::ranges::equal(controls, ConstVector(controls_).last(control_count_))) {
      controls_.insert(controls_.end(), controls.begin(), controls.end());
      controls_from_.push_back(steps_);
    }
  }
  ++steps_;
}

// In chunks, which never move: a vector that grows would need twice the memory for a moment.
Vector Trajectory::place(std::size_t index) {
  const std::size_t in_chunk = std::max<std::size_t>(1, 4096 / std::max<std::size_t>(n_, 1));
  while (chunks_.size() <= index / in_chunk) chunks_.emplace_back(in_chunk * n_);
  return Vector(chunks_[index / in_chunk]).subspan(index % in_chunk * n_, n_);
}

bool Trajectory::keeps(int step) const { return last_ > 0 ? step >= steps_ - kept_ : step < kept_; }
Vector Trajectory::state(int step) {
  return place(last_ > 0 ? static_cast<std::size_t>(step) % last_ : static_cast<std::size_t>(step));
}
ConstVector Trajectory::controls(int step) const {
  const auto behind = std::ranges::upper_bound(controls_from_, step);
  const auto index = static_cast<std::size_t>(behind - controls_from_.begin()) - 1;
  return ConstVector(controls_).subspan(index * control_count_, control_count_);
}

}  // namespace onestep::detail
