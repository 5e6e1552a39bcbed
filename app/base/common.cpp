// The clock of the phases, files that are written whole, progress, and signals.
#include "base/common.h"

#include <fmt/format.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace onestep::app {

double& PhaseClock::total_of(const std::string& phase) {
  const auto at = std::ranges::find(totals_, phase, &Times::value_type::first);
  return at != totals_.end() ? at->second : totals_.emplace_back(phase, 0.0).second;
}

void PhaseClock::leave() {
  const auto now = Clock::now();
  if (!phase_.empty()) total_of(phase_) += std::chrono::duration<double>(now - entered_).count();
  entered_ = now;
  phase_.clear();
}

void PhaseClock::enter(const std::string& phase) {
  leave();
  phase_ = phase;
  total_of(phase);  // takes its place in the order
}

void PhaseClock::count(const std::string& phase, double seconds) { total_of(phase) += seconds; }

double PhaseClock::seconds_of(const std::string& phase) const {
  for (const auto& [name, seconds] : times())
    if (name == phase) return seconds;
  return 0;
}

PhaseClock::Times PhaseClock::times() const {
  const auto since = [now = Clock::now()](Clock::time_point then) {
    return std::chrono::duration<double>(now - then).count();
  };
  Times all = totals_;
  double whole = since(begin_);
  for (auto& [name, seconds] : all) {
    if (name == phase_) seconds += since(entered_);
    if (name == earlier_runs) whole += seconds;
  }
  all.emplace_back("all", whole);
  return all;
}

void make_folder(const CommonOptions& options) {
  if (options.out.empty()) return;
  std::error_code problem;
  std::filesystem::create_directories(options.out, problem);
  if (problem) throw Misuse(fmt::format("--out {}: the folder cannot be made: {}", options.out, problem.message()));
  if (access(options.out.c_str(), W_OK | X_OK) != 0)
    throw Misuse(fmt::format("--out {}: the folder cannot be written to: {}", options.out, std::strerror(errno)));
}

namespace {
// Where a symbolic link leads, also one that leads to nothing yet.
std::filesystem::path behind_links(std::filesystem::path path) {
  constexpr int most = 40;
  std::error_code problem;
  for (int i = 0; i < most && std::filesystem::is_symlink(path, problem); ++i) {
    const std::filesystem::path to = std::filesystem::read_symlink(path, problem);
    if (problem) break;
    path = to.is_absolute() ? to : path.parent_path() / to;
  }
  return path;
}

bool is_special(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_other(path, ignored);
}
}  // namespace

void check_output(std::string_view option, const std::string& file) {
  const auto wrong = [&](std::string_view what) { throw Misuse(fmt::format("{} {}: {}", option, file, what)); };
  std::error_code ignored;
  const std::filesystem::path path = behind_links(file);
  if (std::filesystem::is_directory(path, ignored)) wrong("is a folder, not a file");
  if (std::filesystem::exists(path, ignored) && access(path.c_str(), W_OK) != 0)
    wrong(fmt::format("cannot be written to: {}", std::strerror(errno)));
  if (is_special(path)) return;
  const std::string parent = path.parent_path().string(), folder = parent.empty() ? "." : parent;
  if (!std::filesystem::is_directory(folder, ignored)) wrong(fmt::format("there is no folder {}", folder));
  if (access(folder.c_str(), W_OK | X_OK) != 0)
    wrong(fmt::format("the folder {} cannot be written to: {}", folder, std::strerror(errno)));
}

bool is_same_file(const std::filesystem::path& a, const std::filesystem::path& b) {
  // Files that are not there yet are compared by their names.
  std::error_code ignored;
  const auto name = [&](const std::filesystem::path& path) { return std::filesystem::weakly_canonical(path, ignored); };
  return !a.empty() && !b.empty() && (std::filesystem::equivalent(a, b, ignored) || name(a) == name(b)) &&
         !is_special(behind_links(a));
}

std::string to_text(const Json& document) {
  // Names in files may be any bytes; what is not UTF-8 is replaced.
  const auto line = [](const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); };
  std::string text = "{";
  for (const auto& [key, value] : document.items())
    text += fmt::format("{}\n  {}: {}", text.size() > 1 ? "," : "", line(key), line(value));
  return text + "\n}\n";
}

std::string counted(std::int64_t count, std::string_view thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw std::runtime_error("standard output could not be written");
}

void write_file(const CommonOptions& options, const std::string& name, std::string_view text) {
  const std::filesystem::path path = std::filesystem::path(options.out) / name;
  for (const std::string& input : options.inputs)
    if (is_same_file(input, path))
      throw std::runtime_error(fmt::format("{} was read and would be lost: name another folder with --out", path.string()));
  write_file(path, text);
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  if (path == "-") return print(text);
  const std::filesystem::path to = behind_links(path),
                              part = is_special(to) ? to : std::filesystem::path(to.string() + ".part");
  std::error_code problem, ignored;
  const std::filesystem::file_status before = std::filesystem::status(to, ignored);
  std::ofstream file(part, std::ios::binary);
  file << text;
  file.close();
  if (file && part == to) return;
  if (file && std::filesystem::is_regular_file(before)) std::filesystem::permissions(part, before.permissions(), ignored);
  if (file) std::filesystem::rename(part, to, problem);
  if (file && !problem) return;
  if (part != to) std::filesystem::remove(part, ignored);
  throw std::runtime_error(fmt::format("{} could not be written", path.string()));
}

namespace {
volatile std::sig_atomic_t caught_signal = 0;
}

void catch_signals() {
  struct sigaction action {};
  action.sa_handler = [](int signal) { caught_signal = signal; };
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
}

int stop_signal() { return caught_signal; }

Progress::Progress(const CommonOptions& options) : verb_(options.verb), phases_(options.clock) {
  if (!options.quiet && isatty(STDERR_FILENO) != 0) writer_ = std::thread([this] { write(); });
}

Progress::~Progress() { clear(); }

void Progress::write() {
  std::unique_lock lock(mutex_);
  auto next = begin_ + std::chrono::seconds(2);
  while (!ended_.wait_until(lock, next, [&] { return ended_already_; })) {
    next = Clock::now() + std::chrono::milliseconds(200);
    if (text_.empty()) continue;
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    fmt::print(stderr, "\r{} ({:.0f} s)\x1b[K", text_, seconds);
    written_ = true;
  }
}

void Progress::show(const std::function<std::string()>& text) {
  if (!writer_.joinable()) return;
  const std::scoped_lock lock(mutex_);
  if (ended_already_ || Clock::now() < next_) return;
  next_ = Clock::now() + std::chrono::milliseconds(50);
  text_ = text();
}

void Progress::begin(std::string what) {
  if (!writer_.joinable()) return;
  const std::scoped_lock lock(mutex_);
  text_ = std::move(what);
}

void return_free_memory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

void Progress::enter(const std::string& phase) {
  return_free_memory();
  phases_->enter(phase);
  std::string words = phase;
  std::ranges::replace(words, '_', ' ');
  begin(fmt::format("{}: {}", verb_, words));
}

void Progress::clear() {
  if (!writer_.joinable()) return;
  {
    const std::scoped_lock lock(mutex_);
    ended_already_ = true;
  }
  ended_.notify_all();
  writer_.join();
  if (written_) std::fputs("\r\x1b[K", stderr);
}

}  // namespace onestep::app
