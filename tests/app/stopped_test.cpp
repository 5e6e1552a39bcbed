// Jobs that a signal stops: the document and the exit status say the same, whatever had been done by then.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

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
  // Two classes that overlap, so many that to fit once for each sample takes minutes.
  std::string samples() {
    Random random(4);
    std::string text = "a,b,c,d,e,y\n";
    for (int i = 0; i < 4000; ++i) {
      const bool second = random.flip();
      for (int j = 0; j < 5; ++j) text += fmt::format("{:.4f},", random.uniform(-1, 1) + (second ? 0.4 : 0));
      text += second ? "yes\n" : "no\n";
    }
    return folder_.write("many.csv", text);
  }

  // Stops the command when it is so far that it has used this much of the processor's time.
  static Ended stopped(const std::vector<std::string>& line, double seconds) {
    const RunningCommand running(line);
    for (int i = 0; i < 60000 && seconds_used(running.pid()) < seconds; ++i) usleep(10000);
    kill(running.pid(), SIGINT);
    return running.wait();
  }

  TemporaryFolder folder_;

 private:
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
  const Ended ended = stopped({"fit", samples(), "--folds", "4000", "--save", model, "--json"}, 2);
  EXPECT_EQ(ended.status, 128 + SIGINT) << ended.err;
  const nlohmann::json found = ended.json();
  EXPECT_EQ(found["status"], "cancelled");
  EXPECT_EQ(found["usable"], false);
  EXPECT_THAT(found["message"].get<std::string>(), HasSubstr("Stopped by a signal"));
  EXPECT_EQ(found["cross_validation"]["failure"], "stopped");
  EXPECT_FALSE(std::filesystem::exists(model));
}

TEST_F(Stopped, AnInfluenceThatIsStoppedInItsVerificationIsCancelledAndSaysHowFarItCame) {
  const Ended ended = stopped({"influence", samples(), "--verify", "4000", "--json"}, 6);
  EXPECT_EQ(ended.status, 128 + SIGINT) << ended.err;
  const nlohmann::json found = ended.json();
  EXPECT_EQ(found["status"], "cancelled");
  EXPECT_EQ(found["usable"], false);
  ASSERT_TRUE(found.contains("verify")) << "it was not so far";
  EXPECT_LT(found["verify"]["count"], 4000);
  EXPECT_THAT(found["notes"], Contains(HasSubstr("of the 4000 samples had been left out and trained again")));
}

}  // namespace
}  // namespace onestep::test
