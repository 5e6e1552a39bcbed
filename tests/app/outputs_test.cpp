// Files that the command writes: what is lost where an output is a link, a pipe, or what was read.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <vector>

#include "app/run_command.h"
#include "support/random.h"

namespace onestep::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string two_classes(int count) {
  Random random(5);
  std::string text = "a,b,y\n";
  for (int i = 0; i < count; ++i) {
    const double a = random.uniform(-1, 1), b = random.uniform(-1, 1);
    text += fmt::format("{:.6f},{:.6f},{}\n", a, b, a + b + random.uniform(-1, 1) > 0 ? "yes" : "no");
  }
  return text;
}

class Outputs : public ::testing::Test {
 protected:
  void SetUp() override {
    data_ = folder_.write("data.csv", two_classes(40));
    model_ = path("model.json");
    ASSERT_EQ(run_command({"fit", data_, "--save", model_}).status, 0);
  }
  std::string path(const std::string& name) { return (folder_.path() / name).string(); }
  TemporaryFolder folder_;
  std::string data_, model_;
};

TEST_F(Outputs, ALinkStaysALinkAndItsFileIsWritten) {
  const fs::path to = folder_.write("table.csv", "old\n"), link = path("link.csv"), dangling = path("dangling.csv");
  fs::permissions(to, fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("table.csv", link);
  fs::create_symlink("new.csv", dangling);
  for (const fs::path& each : {link, dangling}) {
    ASSERT_EQ(run_command({"predict", model_, data_, "--csv", each.string()}).status, 0);
    EXPECT_TRUE(fs::is_symlink(each));
  }
  EXPECT_THAT(contents_of(to), HasSubstr("yes"));
  EXPECT_EQ(contents_of(to), contents_of(path("new.csv")));
  EXPECT_EQ(fs::status(to).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_FALSE(fs::exists(to.string() + ".part"));
}

TEST_F(Outputs, APipeIsWrittenToNotReplaced) {
  const std::string pipe = path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::future<std::string> read = std::async(std::launch::async, [&] { return contents_of(pipe); });
  const Ended ended = run_command({"predict", model_, data_, "--csv", pipe});
  if (ended.status != 0) std::ofstream(pipe).put('\n');  // or the reader waits for ever
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(read.get(), HasSubstr("yes"));
  EXPECT_TRUE(fs::is_fifo(pipe));
}

TEST_F(Outputs, NothingThatWasReadIsWrittenOver) {
  const std::string before = contents_of(data_), model = contents_of(model_), link = path("link"), hard = path("hard");
  fs::create_symlink(data_, link);
  fs::create_hard_link(data_, hard);
  const std::vector<std::vector<std::string>> lines{{"fit", data_, "--save", data_},
                                                    {"fit", data_, "--save", link},
                                                    {"fit", data_, "--save", hard},
                                                    {"fit", link, "--save", data_},
                                                    {"predict", model_, data_, "--csv", data_},
                                                    {"predict", model_, data_, "--csv", model_},
                                                    {"influence", data_, "--csv", data_},
                                                    {"influence", data_, "--valid", hard, "--csv", link},
                                                    {"clean", data_, "--csv", data_},
                                                    {"clean", data_, "--cleaned", data_},
                                                    {"clean", data_, "--cleaned", path("x"), "--csv", path("./x")},
                                                    {"tune", data_, "--checkpoint", data_}};
  for (const std::vector<std::string>& line : lines) {
    const Ended ended = run_command(line);
    EXPECT_EQ(ended.status, 2) << line[0] << ' ' << line[1] << ' ' << line.back();
    EXPECT_THAT(ended.err, HasSubstr("which would be lost; name another")) << line[0];
  }
  EXPECT_EQ(contents_of(data_), before);
  EXPECT_EQ(contents_of(model_), model);
  // A folder's files have names of their own.
  const std::string in_folder = folder_.write("predictions.csv", before);
  EXPECT_EQ(run_command({"predict", model_, in_folder, "--out", folder_.path().string()}).status, 1);
  EXPECT_EQ(contents_of(in_folder), before);
}

TEST_F(Outputs, NoTwoOfARunAreTheSameFile) {
  const std::string out = folder_.path().string(), search = folder_.write("c.search", contents_of(data_));
  const std::vector<std::vector<std::string>> lines{
      {"fit", data_, "--out", out, "--save", path("fit.json")},
      {"fit", data_, "--out", out, "--save", path("index.html")},
      {"tune", data_, "--out", out, "--save", path("tune.json")},
      {"tune", data_, "--out", out, "--checkpoint", path("tune.json")},
      {"tune", data_, "--checkpoint", path("d"), "--save", path("d.search")},
      {"tune", search, "--checkpoint", path("c")},
      {"clean", data_, "--out", out, "--csv", path("clean.json")},
      {"clean", data_, "--out", out, "--cleaned", path("samples.csv")},
      {"influence", data_, "--out", out, "--csv", path("influence.json")},
      {"influence", data_, "--out", out, "--csv", path("effects.svg")},
      {"predict", model_, data_, "--out", out, "--csv", path("predictions.csv")}};
  for (const std::vector<std::string>& line : lines) {
    const Ended ended = run_command(line);
    EXPECT_EQ(ended.status, 2) << line[0] << ' ' << line.back();
    EXPECT_THAT(ended.err, HasSubstr("name another")) << line[0] << ' ' << line.back();
    EXPECT_THAT(ended.err, HasSubstr(line[line.size() - 2])) << line[0];
  }
  EXPECT_EQ(contents_of(search), contents_of(data_));
}

TEST_F(Outputs, ADashIsStandardOutput) {
  const std::vector<std::vector<std::string>> lines{{"clean", data_, "--csv"},
                                                    {"clean", data_, "--cleaned"},
                                                    {"influence", data_, "--csv"},
                                                    {"fit", data_, "--save"},
                                                    {"tune", data_, "--save"}};
  for (std::vector<std::string> line : lines) {
    const std::string file = path("file");
    std::vector<std::string> to_file = line;
    to_file.push_back(file), line.emplace_back("-");
    ASSERT_EQ(run_command(to_file).status, 0) << line[0];
    const Ended ended = run_command(line);
    EXPECT_EQ(ended.status, 0) << ended.err;
    const auto without_command = [](std::string text) {
      if (const auto at = text.find("\"command\""); at != text.npos) text.erase(at, text.find('\n', at) - at);
      return text;
    };
    EXPECT_EQ(without_command(ended.out), without_command(contents_of(file))) << line[0] << ' ' << line[2];
    EXPECT_FALSE(fs::exists("-"));
    line.emplace_back("--json");
    EXPECT_EQ(run_command(line).status, 2) << line[0];
  }
  EXPECT_EQ(run_command({"clean", data_, "--csv", "-", "--cleaned", "-"}).status, 2);
  EXPECT_EQ(run_command({"tune", data_, "--checkpoint", "-"}).status, 2);
}

}  // namespace
}  // namespace onestep::test
