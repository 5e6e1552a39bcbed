// The state of an outer loop, and the checkpoint it is saved to and resumed from.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bilevel/checkpoint.h"
#include "bilevel/objective.h"
#include "bilevel/outer.h"

namespace onestep::detail {

struct SavedIteration : OuterIteration {
  template <class Archive> void fields(Archive& a) {
    a(number), a(value), a(critical), a(norm), a(length), a(inner_tolerance), a(inner_iterations), a(seconds), a(theta);
  }
};

// All that the next iteration depends on, and what is reported. The method's memory is beside it.
struct OuterState {
  int iteration = 0;
  std::vector<double> u, gradient;            // gradient: with respect to u
  std::vector<std::vector<double>> by_theta;  // and to the parameters
  double value = 0, first_value = 0, noise = 0, tolerance = 0;
  States x;
  InnerWork work;
  double seconds = 0;
  std::vector<SavedIteration> history;

  template <class Archive> void fields(Archive& a) {
    a(iteration), a(u), a(gradient), a(by_theta), a(value), a(first_value), a(noise), a(tolerance), a(x), a(work),
        a(seconds), a(history);
  }
};

class SavedRun {
 public:
  SavedRun(const std::string& path, std::string fingerprint) : file_(path), fingerprint_(std::move(fingerprint)) {}

  /// False where nothing was saved. Throws FileError for a checkpoint of another problem.
  bool load(OuterState& state, Outer& outer);
  [[noreturn]] void refuse(std::string_view why) const { file_.refuse(why); }

  /// The method as it is after an iteration: what it learns within one that is stopped is learned again.
  void remember(Outer& outer);
  /// The state, and the method as it was remembered last.
  void save(OuterState& state);
  /// Whether all that was written in this run, this write and the last one, which is made whatever it costs, take no longer
  /// than this.
  bool is_due(double seconds) const { return writing_ + 2 * longest_write_ <= seconds; }
  /// Spent on writing.
  double seconds() const { return writing_; }

 private:
  CheckpointFile file_;
  std::string fingerprint_, outer_;
  double longest_write_ = 0, writing_ = 0;
};

/// What a checkpoint has to agree in with the parameters it is resumed for.
std::string text_of(const std::vector<Parameter>& parameters, std::span<const double> start);

}  // namespace onestep::detail
