// Reads and writes the file, whose numbers keep all their bits.
#include "jobs/journal.h"

#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/json_document.h"

namespace onestep::app::jobs {

Journal::Journal(const std::string& file, std::string identity) : identity_(std::move(identity)) {
  if (file.empty()) return;
  file_ = std::make_unique<CheckpointFile>(file);
  const std::optional<std::string> bytes = file_->read();
  if (!bytes) {
    write();
    return;
  }
  const Json kept = Json::parse(*bytes, nullptr, false);
  if (!kept.is_object() || !kept.contains("steps")) file_->refuse("is not of this job");
  if (kept.value("identity", "") != identity_) file_->refuse("is of another problem: the samples or the options differ");
  earlier_ = kept.value("seconds", 0.0);
  for (const auto& [name, found] : kept["steps"].items()) {
    std::vector<double>& numbers = steps_[name];
    for (const Json& number : found) numbers.push_back(std::strtod(number.get<std::string>().c_str(), nullptr));
  }
  resumed_ = !steps_.empty();
}

const std::vector<double>* Journal::find(const std::string& step) const {
  const auto at = steps_.find(step);
  return at == steps_.end() ? nullptr : &at->second;
}

void Journal::keep(const std::string& step, const std::vector<double>& found) {
  steps_[step] = found;
  if (file_) write();
}

double Journal::seconds() const { return earlier_ + std::chrono::duration<double>(Clock::now() - begin_).count(); }

// Numbers as texts, which have all their bits, and infinity.
void Journal::write() {
  Json kept = {{"identity", identity_}, {"seconds", seconds()}, {"steps", Json::object()}};
  for (const auto& [name, found] : steps_) {
    Json& numbers = kept["steps"][name] = Json::array();
    for (const double number : found) numbers.push_back(fmt::format("{}", number));
  }
  file_->write(kept.dump());
}

}  // namespace onestep::app::jobs
