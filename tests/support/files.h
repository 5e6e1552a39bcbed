// Files for tests: those they write themselves, and the real data beside the repository, where it is there.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace onestep::test {

/// A folder of its own for one test, removed with everything in it at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Writes a file and returns its path.
  std::string write(const std::string& name, std::string_view bytes) const;

 private:
  std::filesystem::path path_;
};

std::string contents_of(const std::filesystem::path& file);

/// A file or folder of the repository.
std::filesystem::path repository_file(const std::string& name);

/// A file or folder of the real data: under $ONESTEP_DATA, else under ../shared/data beside the repository. It may not
/// exist.
std::filesystem::path shared_data(const std::string& name);

/// A problem of the Maros-Meszaros collection, as its authors give it.
struct ReferenceProblem {
  std::string name;
  std::int64_t columns = 0, rows = 0;
  double optimum = 0, last_digit = 0;  ///< the second: one unit of the last of the eight digits
};
std::vector<ReferenceProblem> reference_problems();

}  // namespace onestep::test

/// Skips the test where the real data it needs are not there.
#define ONESTEP_NEEDS_DATA(name)                                    \
  if (!std::filesystem::exists(::onestep::test::shared_data(name))) \
  GTEST_SKIP() << ::onestep::test::shared_data(name).string() << " is not there; ONESTEP_DATA says where the data is"
