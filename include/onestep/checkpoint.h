// The state of a long computation in a file: written atomically, with a version and a checksum, and one process's at a time.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "onestep/export.h"

ONESTEP_EXPORT_BEGIN
namespace onestep {

/// A file for the state of a computation that may be killed, as `minimise` keeps its own (BilevelOptions::checkpoint). Held
/// by this process until the object is gone, or the process. A symbolic link is followed, not replaced. Throws FileError
/// while the file is held elsewhere.
///
///     CheckpointFile file("search.checkpoint");
///     std::string done = file.read().value_or("");
///     file.write(done + "one more");
class CheckpointFile {
 public:
  explicit CheckpointFile(const std::string& path);
  ~CheckpointFile();
  CheckpointFile(const CheckpointFile&) = delete;
  CheckpointFile& operator=(const CheckpointFile&) = delete;

  /// What was last written; nothing where there is no file. Throws FileError, and leaves the file alone, when it is no
  /// checkpoint, of another version, or damaged.
  std::optional<std::string> read() const;
  /// Throws FileError when that fails; the file is then as it was.
  void write(std::string_view contents);
  /// Throws FileError: the file, and what is wrong with it.
  [[noreturn]] void refuse(std::string_view why) const;

 private:
  std::string path_, lock_path_;
  int lock_ = -1;
};

}  // namespace onestep
ONESTEP_EXPORT_END
