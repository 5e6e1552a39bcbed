#include "jobs/journal.h"

#include <utility>

namespace onestep::app::jobs {

Journal::Journal(const std::string& file, std::string identity) : identity_(std::move(identity)) {
  if (file.empty()) return;
  file_ = std::make_unique<detail::CheckpointFile>(file);
  const std::optional<std::string> bytes = file_->read();
  if (!bytes) {
    write();
    return;
  }
  detail::Reader reader(*bytes);
  std::string theirs, name;
  reader(theirs);
  if (theirs != identity_) file_->refuse("is of another problem: the samples or the options differ");
  reader(earlier_);
  while (!reader.at_end()) {
    std::vector<double> found;
    reader(name), reader(found);
    steps_.emplace(name, std::move(found));
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

void Journal::write() {
  detail::Writer writer;
  writer(identity_);
  writer(seconds());
  for (auto& [name, found] : steps_) writer(name), writer(found);
  file_->write(writer.take());
}

}  // namespace onestep::app::jobs
