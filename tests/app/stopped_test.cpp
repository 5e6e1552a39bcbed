// Jobs that a signal stops: the document and the exit status say the same, whatever had been done by then.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "app/run_command.h"
#include "support/random.h"

namespace onestep::test {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class Stopped : public ::testing::Test {
 protected:
  // Two classes that overlap.
  std::string samples(int count) {
    Random random(4);
    std::string text = "a,b,c,d,e,y\n";
    for (int i = 0; i < count; ++i) {
      const bool second = random.flip();
      for (int j = 0; j < 5; ++j) text += fmt::format("{:.4f},", random.uniform(-1, 1) + (second ? 0.4 : 0));
      text += second ? "yes\n" : "no\n";
    }
    return folder_.write("many.csv", text);
  }

  // The line is done once as it is, and then, with what takes much longer, stopped when it has used a little more of the
  // processor's time.
  static Ended stopped(std::vector<std::string> line, const std::vector<std::string>& longer) {
    const double before = seconds_of_children();
    line.emplace_back("--json");
    EXPECT_EQ(run_command(line).status, 0);
    const double usual = seconds_of_children() - before;
    line.insert(line.end(), longer.begin(), longer.end());
    if (const auto save = std::ranges::find(line, "--save"); save != line.end()) std::ofstream(*(save + 1)) << "as it was";
    const RunningCommand running(line);
    for (int i = 0; i < 60000 && seconds_used(running.pid()) < 1.1 * usual + 0.05; ++i) usleep(2000);
    kill(running.pid(), SIGINT);
    return running.wait();
  }

  TemporaryFolder folder_;

 private:
  static double seconds_of_children() {
    rusage used{};
    getrusage(RUSAGE_CHILDREN, &used);
    return static_cast<double>(used.ru_utime.tv_sec) + 1e-6 * static_cast<double>(used.ru_utime.tv_usec);
  }

  // User time, the 14th field; the second, a name in brackets, has no blanks here.
  static double seconds_used(pid_t pid) {
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    std::string field;
    for (int i = 0; i < 14; ++i)
      if (!(file >> field)) return 1e9;
    return std::stod(field) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
};

TEST_F(Stopped, AFitThatIsStoppedInItsFoldsIsCancelledAndSavesNoModel) {
  const std::string model = (folder_.path() / "model.json").string();
  const Ended ended = stopped({"fit", samples(20000), "--save", model}, {"--folds", "20000"});
  EXPECT_EQ(ended.status, 128 + SIGINT) << ended.err;
  const nlohmann::json found = ended.json();
  EXPECT_EQ(found["status"], "cancelled");
  EXPECT_EQ(found["usable"], false);
  EXPECT_THAT(found["message"].get<std::string>(), HasSubstr("Stopped by a signal"));
  EXPECT_EQ(found["cross_validation"]["failure"], "stopped");
  EXPECT_EQ(contents_of(model), "as it was");
}

TEST_F(Stopped, AnInfluenceThatIsStoppedInItsVerificationIsCancelledAndSaysHowFarItCame) {
  const Ended ended = stopped({"influence", samples(1000)}, {"--verify", "1000"});
  EXPECT_EQ(ended.status, 128 + SIGINT) << ended.err;
  const nlohmann::json found = ended.json();
  EXPECT_EQ(found["status"], "cancelled");
  EXPECT_EQ(found["usable"], false);
  ASSERT_TRUE(found.contains("verify")) << "it was not so far";
  EXPECT_LT(found["verify"]["count"], 1000);
  EXPECT_THAT(found["notes"], Contains(HasSubstr("of the 1000 samples had been left out and trained again")));
}

}  // namespace
}  // namespace onestep::test
