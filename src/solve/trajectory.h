// The states a solve went through, for estimators that go over the steps.
#pragma once

#include <vector>

#include "linear/vector.h"

namespace onestep::detail {

/// The states a solve went through, as far as they are wanted: the last few, or the first ones within a budget.
class Trajectory {
 public:
  /// The last `count` states; none by default.
  void keep_last(std::size_t count);
  /// The first states that fit in so many doubles (none for 0), and the controls of all steps.
  void keep_first(std::size_t entries);
  void clear(std::size_t n);
  /// To be called before each step, with the point it starts from and its controls.
  void record(ConstVector x, ConstVector controls);

  int steps() const { return steps_; }
  int kept() const { return kept_; }
  bool keeps(int step) const;
  Vector state(int step);
  ConstVector controls(int step) const;
  /// Gives the memory of the states back.
  void release();

 private:
  Vector place(std::size_t index);
  std::size_t last_ = 0, first_entries_ = 0, n_ = 0, control_count_ = 0;
  bool keeps_controls_ = false;
  int steps_ = 0, kept_ = 0;
  std::vector<std::vector<double>> chunks_;
  std::vector<double> controls_;    // each time they changed
  std::vector<int> controls_from_;  // the first step with them
};

}  // namespace onestep::detail
