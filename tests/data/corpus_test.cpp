// The fuzzers' corpus, replayed: a file whose name begins with accepted_ is read, one that begins with refused_ is not, and
// whatever is returned holds together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "fuzz/targets.h"
#include "support/files.h"

namespace onestep::test {
namespace {

void replay(const std::string& reader, bool (&target)(std::string_view)) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(repository_file("tests/fuzz/corpus/" + reader))) {
    const std::string name = entry.path().filename().string();
    ASSERT_TRUE(name.starts_with("accepted_") || name.starts_with("refused_")) << name;
    EXPECT_EQ(target(contents_of(entry.path())), name.starts_with("accepted_")) << name;
    ++files;
  }
  EXPECT_GT(files, 5);
}

TEST(FuzzCorpus, Qps) { replay("qps", fuzz_qps); }
TEST(FuzzCorpus, Libsvm) { replay("libsvm", fuzz_libsvm); }
TEST(FuzzCorpus, Csv) { replay("csv", fuzz_csv); }
TEST(FuzzCorpus, Idx) { replay("idx", fuzz_idx); }

}  // namespace
}  // namespace onestep::test
