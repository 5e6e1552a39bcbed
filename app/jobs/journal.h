// The file of --checkpoint for jobs of several phases: what each phase found, kept as soon as it is found.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "onestep/checkpoint.h"

namespace onestep::app::jobs {

/// Results of finished steps by name. Every step is deterministic, so a run that is killed takes the finished ones from the
/// file, repeats the one that was cut short, and ends with the same bits.
class Journal {
 public:
  /// Without a file nothing is kept. With one, the file is there when this returns. `identity` tells this work from others.
  /// Throws FileError for a file of other work, one in use, one that is damaged or cannot be written.
  Journal(const std::string& file, std::string identity);

  /// What the step found in an earlier run; null where it was not finished.
  const std::vector<double>* find(const std::string& step) const;
  /// Keeps it, on disk when this returns.
  void keep(const std::string& step, const std::vector<double>& found);

  /// Whether the file had anything to go on from.
  bool resumed() const { return resumed_; }
  /// Of earlier runs, up to their last finished step.
  double earlier_seconds() const { return earlier_; }
  /// Since the work began, earlier runs included up to their last finished step.
  double seconds() const;

 private:
  void write();

  using Clock = std::chrono::steady_clock;
  std::unique_ptr<CheckpointFile> file_;
  std::string identity_;
  std::map<std::string, std::vector<double>> steps_;
  double earlier_ = 0;
  bool resumed_ = false;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace onestep::app::jobs
