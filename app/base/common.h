// What all verbs of the command share: options, exit statuses, JSON, files, progress, signals.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace onestep::app {

/// What the command ends with; 128 + signal when it was stopped.
enum Exit : int { done = 0, failed = 1, misused = 2 };

/// Misuse or bad input: main prints the message as one line and ends with `misused`.
class Misuse : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// How long the phases of the work take, one after another.
class PhaseClock {
 public:
  using Times = std::vector<std::pair<std::string, double>>;

  /// A phase begins, and the one before ends. One that begins again goes on.
  void enter(const std::string& phase);
  /// Counts seconds that were measured elsewhere: of phases that take turns, or of an earlier run.
  void count(const std::string& phase, double seconds);
  /// The phase ends without another beginning: what follows is counted otherwise.
  void leave();

  double seconds_of(const std::string& phase) const;
  /// In seconds, in the order in which they began; "all" is the whole time since the command began, and what was counted of
  /// earlier runs.
  Times times() const;

  static constexpr const char* earlier_runs = "earlier_runs";

 private:
  using Clock = std::chrono::steady_clock;
  double& total_of(const std::string& phase);

  Clock::time_point begin_ = Clock::now(), entered_ = begin_;
  std::string phase_;
  Times totals_;
};

/// Options every verb has.
struct CommonOptions {
  bool json = false;           ///< one JSON document on standard output, nothing else there
  bool quiet = false;          ///< no progress
  bool prints_a_file = false;  ///< an output is named -: it takes the place of the report on standard output
  std::string out;             ///< the folder files are written to; none when empty
  std::uint64_t seed = 0;
  int threads = 0;  ///< 0: as the library chooses
  std::string verb;
  std::string command;              ///< the line that was typed
  std::vector<std::string> inputs;  ///< files that are read, and not to be written over
  std::shared_ptr<PhaseClock> clock = std::make_shared<PhaseClock>();
};

using Json = nlohmann::ordered_json;

/// The document with one line for each key of the outermost object.
std::string to_text(const Json& document);

/// "1 iteration", "2 iterations".
std::string counted(std::int64_t count, std::string_view thing);

/// Writes a text to standard output. Throws std::runtime_error when that fails: a result that is lost is not silently so.
void print(std::string_view text);

/// Makes the folder of --out where it is missing; verbs with --out find it made. Throws Misuse when it cannot be made or
/// written to.
void make_folder(const CommonOptions& options);

/// Throws Misuse when the file that an option names cannot be written: before the work, not after it.
void check_output(std::string_view option, const std::string& file);
/// Whether both are one file, by whatever names.
bool is_same_file(const std::filesystem::path& a, const std::filesystem::path& b);

/// Writes a file, the one behind a symbolic link. Throws std::runtime_error when that fails; then the file is as it was
/// before. What is no ordinary file (a terminal, a pipe, a device) is written to, not replaced. - is standard output.
void write_file(const std::filesystem::path& path, std::string_view text);
/// The same into the folder of --out, which is there when the work begins. Throws std::runtime_error when that would write
/// over a file that was read.
void write_file(const CommonOptions& options, const std::string& name, std::string_view text);

/// Gives memory that was freed back to the system, which does not happen by itself between blocks that are still in use:
/// what a phase needs does not come on top of what the one before needed. Takes milliseconds.
void return_free_memory();

/// From here on an interrupt (Ctrl-C) or a request to end only sets a flag, which long work looks at; a second one ends the
/// program at once.
void catch_signals();
/// The signal that came, or 0.
int stop_signal();

/// One line on standard error that is written over again and again, with the seconds so far, for work that takes longer
/// than two seconds. Only on a terminal, and not when it shall be quiet. A thread writes it, so that it goes on while a
/// single step takes long; show and clear may be called from any thread.
class Progress {
 public:
  explicit Progress(const CommonOptions& options);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Calls `text` for what is being done when it is time to show something new.
  void show(const std::function<std::string()>& text);
  /// The same for what begins now and may take long; shown in any case.
  void begin(std::string what);
  /// A phase of the work begins, which is shown and whose time is counted. For the thread that does the work.
  void enter(const std::string& phase);
  /// Takes the line away: the work is done, and something else will be written.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  void write();

  std::string verb_;
  std::shared_ptr<PhaseClock> phases_;
  Clock::time_point begin_ = Clock::now(), next_ = begin_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::string text_;
  bool ended_already_ = false, written_ = false;
  std::thread writer_;
};

}  // namespace onestep::app
