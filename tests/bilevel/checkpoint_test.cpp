// A run that is killed goes on where it was and ends with the same bits; what is no checkpoint of it is refused and left
// alone.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <set>
#include <thread>

#include "bilevel/checkpoint.h"
#include "bilevel/problems.h"
#include "support/compare.h"
#include "support/files.h"

extern char** environ;

namespace onestep::test {
namespace {

using testing::HasSubstr;

const std::vector<std::pair<const char*, OuterMethod>> methods{
    {"lbfgs", Lbfgs{}}, {"descent", Descent{}}, {"adam", Adam{.step = 0.1}}};

Outcome tuned(const OuterMethod& method, const BilevelOptions& options, std::uint64_t seed = 11) {
  Random random(seed);
  const Ridge ridge(random, 20, 6, 2);
  return minimise({ridge.inner()}, {Parameter::positive(ones(6)).within(1e-6, 1e6)}, method, options);
}

BilevelOptions with_checkpoint(const std::string& file) {
  return {.tolerance = 1e-7, .max_iterations = 60, .path = true, .checkpoint = file, .checkpoint_share = 1};
}

// Everything but the times, in hexadecimal.
std::string bits_of(const Outcome& o) {
  std::string text = to_string(o.status);
  const auto append = [&](double value) {
    char buffer[40];
    std::snprintf(buffer, sizeof buffer, " %a", value);
    text += buffer;
  };
  for (const double e : entries_of(o.theta[0])) append(e);
  for (const double e : entries_of(o.x[0])) append(e);
  for (const double e : entries_of(o.hypergradient[0])) append(e);
  for (const double e : {o.value, o.critical, o.norm, o.bound}) append(e);
  for (const int e :
       {o.iterations, o.evaluations, o.hypergradients, o.fell_short, o.inner_iterations, o.inner_factorisations})
    append(e);
  for (const OuterIteration& i : o.history) {
    for (const double e : {i.value, i.critical, i.norm, i.length, i.inner_tolerance}) append(e);
    for (const double e : i.theta) append(e);
  }
  return text;
}

// Run by the tests below in a process of its own, which they kill.
TEST(CheckpointVictim, Runs) {
  const char* folder = std::getenv("ONESTEP_VICTIM");
  if (folder == nullptr) GTEST_SKIP() << "run by Checkpoint.AKilledRunEndsWithTheSameBits";
  const std::filesystem::path path(folder);
  for (const auto& [name, method] : methods) {
    BilevelOptions options = with_checkpoint((path / name).string());
    options.callback = [](const OuterIteration&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      return true;
    };
    const std::string bits = bits_of(tuned(method, options));
    std::ofstream(path / (std::string(name) + ".bits")) << bits;
  }
  std::ofstream(path / "done") << "done";
}

TEST(Checkpoint, AKilledRunEndsWithTheSameBits) {
  std::string wanted;
  for (const auto& [name, method] : methods) wanted += bits_of(tuned(method, with_checkpoint("")));
  const int kills = std::getenv("ONESTEP_LONG") != nullptr ? 50 : 5;
  Random random(12);
  int killed = 0;
  while (killed < kills) {
    const TemporaryFolder folder;
    setenv("ONESTEP_VICTIM", folder.path().c_str(), 1);
    while (!std::filesystem::exists(folder.path() / "done")) {
      const char* arguments[] = {"test", "--gtest_filter=CheckpointVictim.Runs", nullptr};
      pid_t pid = 0;
      posix_spawn_file_actions_t actions;
      posix_spawn_file_actions_init(&actions);
      posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
      ASSERT_EQ(posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, const_cast<char**>(arguments), environ), 0);
      posix_spawn_file_actions_destroy(&actions);
      if (killed < kills) {
        // Not before it has begun: what is killed then tells nothing.
        const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (!std::filesystem::exists(folder.path() / "lbfgs") && std::chrono::steady_clock::now() < limit)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        std::this_thread::sleep_for(std::chrono::microseconds(random.integer(0, 300000)));
        kill(pid, SIGKILL);
      }
      int state = 0;
      waitpid(pid, &state, 0);
      if (WIFSIGNALED(state)) ++killed;
      ASSERT_TRUE(WIFSIGNALED(state) || WEXITSTATUS(state) == 0);
    }
    unsetenv("ONESTEP_VICTIM");
    std::string found;
    for (const auto& [name, method] : methods) found += contents_of(folder.path() / (std::string(name) + ".bits"));
    ASSERT_EQ(found, wanted) << "after " << killed << " kills";
  }
}

TEST(Checkpoint, ARunThatWasCancelledGoesOnAndEndsWithTheSameBits) {
  for (const auto& [name, method] : methods) {
    const std::string wanted = bits_of(tuned(method, with_checkpoint("")));
    for (const int after : {0, 1, 7}) {
      const TemporaryFolder folder;
      BilevelOptions options = with_checkpoint((folder.path() / "c").string());
      options.callback = [&](const OuterIteration& i) { return i.number < after; };
      EXPECT_EQ(tuned(method, options).status, Status::cancelled);
      options.callback = {};
      const Outcome o = tuned(method, options);
      EXPECT_TRUE(o.resumed);
      EXPECT_EQ(bits_of(o), wanted) << name << " " << after;
      EXPECT_FALSE(std::filesystem::exists(folder.path() / "c.lock"));
      EXPECT_FALSE(std::filesystem::exists(folder.path() / "c.tmp"));
    }
  }
}

TEST(Checkpoint, ARunStoppedWithinAnInnerSolveEndsWithTheSameBitsAndItsXBelongsToItsTheta) {
  for (const auto& [name, method] : methods) {
    const std::string wanted = bits_of(tuned(method, with_checkpoint("")));
    for (const int after : {3, 8, 14, 23, 37}) {
      const TemporaryFolder folder;
      BilevelOptions options = with_checkpoint((folder.path() / "c").string());
      int asked = 0;
      options.cancelled = [&] { return ++asked > after; };
      const Outcome stopped = tuned(method, options);
      if (stopped.status == Status::cancelled && !stopped.history.empty()) {
        Random random(11);
        const Ridge ridge(random, 20, 6, 2);
        EXPECT_TRUE(near(stopped.x[0][0], solve(newton(ridge.loss()), zeros(6), stopped.theta).x(), 1e-2));
      }
      options.cancelled = {};
      EXPECT_EQ(bits_of(tuned(method, options)), wanted) << name << " " << after;
    }
  }
}

TEST(Checkpoint, WhatIsCancelledBeforeItsFirstHypergradientLeavesNone) {
  const TemporaryFolder folder;
  BilevelOptions options = with_checkpoint((folder.path() / "c").string());
  options.cancelled = [] { return true; };
  EXPECT_EQ(tuned(Lbfgs{}, options).status, Status::cancelled);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "c"));
}

TEST(Checkpoint, WritesKeepToTheirShareAndTheirTimeIsTold) {
  EXPECT_EQ(tuned(Lbfgs{}, with_checkpoint("")).checkpoint_seconds, 0);
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "c";
  BilevelOptions options = with_checkpoint(file.string());
  // So small a share that one write uses it up: the first, which is made to know what one costs.
  options.checkpoint_share = 1e-9;
  // By what is in it: two writes may have the same time.
  const auto contents = [&] {
    std::ifstream in(file, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  std::set<std::string> seen;
  options.callback = [&](const OuterIteration&) {
    if (std::filesystem::exists(file)) seen.insert(contents());
    return true;
  };
  const Outcome o = tuned(Lbfgs{}, options);
  EXPECT_GT(o.iterations, 3);
  EXPECT_EQ(seen.size(), 1U);
  EXPECT_FALSE(seen.contains(contents())) << "the end is written too";
  EXPECT_GT(o.checkpoint_seconds, 0);
  EXPECT_LT(o.checkpoint_seconds, o.seconds);
}

TEST(Checkpoint, MoreIterationsMayBeAllowedOnResuming) {
  const TemporaryFolder folder;
  BilevelOptions options = with_checkpoint((folder.path() / "c").string());
  options.max_iterations = 3;
  EXPECT_EQ(tuned(Lbfgs{}, options).status, Status::iteration_limit);
  options.max_iterations = 60;
  EXPECT_EQ(bits_of(tuned(Lbfgs{}, options)), bits_of(tuned(Lbfgs{}, with_checkpoint(""))));
}

TEST(Checkpoint, WhatIsDamagedOrForeignIsRefusedAndLeftAlone) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "c").string();
  (void)tuned(Lbfgs{}, with_checkpoint(file));
  const std::string good = contents_of(file);
  const auto refused = [&](const std::string& bytes) {
    folder.write("c", bytes);
    const std::string message = error_of([&] { (void)tuned(Lbfgs{}, with_checkpoint(file)); });
    EXPECT_EQ(contents_of(file), bytes);
    EXPECT_TRUE(message.empty() || message.find("left as it is") != std::string::npos) << message;
    return message;
  };
  EXPECT_THAT(refused(""), HasSubstr("is no checkpoint of onestep"));
  EXPECT_THAT(refused("#!/bin/sh\necho precious\n"), HasSubstr("is no checkpoint of onestep"));
  Random random(13);
  for (int i = 0; i < 50; ++i) {
    const auto at = static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(good.size()) - 1));
    EXPECT_FALSE(refused(good.substr(0, at)).empty()) << "cut at " << at;
    std::string flipped = good;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x10);
    EXPECT_FALSE(refused(flipped).empty()) << "flipped at " << at;
  }
  EXPECT_THAT(refused(good + "x"), HasSubstr("damaged"));
  std::string newer = good;
  newer[std::string("onestep checkpoint\n").size()] = 7;
  EXPECT_THAT(refused(newer), HasSubstr("has version 7"));
}

TEST(Checkpoint, OneOfAnotherProblemIsRefused) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "c").string();
  (void)tuned(Lbfgs{}, with_checkpoint(file));
  EXPECT_THAT(error_of([&] { (void)tuned(Adam{}, with_checkpoint(file)); }), HasSubstr("another problem"));
  EXPECT_THAT(error_of([&] { (void)tuned(Lbfgs{}, with_checkpoint(file), 99); }), HasSubstr("other data"));
  BilevelOptions named = with_checkpoint(file);
  named.identity = "a9a";
  EXPECT_THAT(error_of([&] { (void)tuned(Lbfgs{}, named); }), HasSubstr("another problem"));
}

// Where the value of g does not tell: the estimator, the inner tolerance, and a fixed parameter that only weighs.
TEST(Checkpoint, OneOfAnotherEstimatorToleranceOrFixedParameterIsRefused) {
  const auto run = [](const std::string& file, const Estimator& estimator, double weight, double tolerance) {
    const Inner inner(
        newton([](Expr x, Expr a, Expr w) { return 0.5 * w * sum(square(x - a)); }, {.tolerance = tolerance}), zeros(2),
        [](Expr x) { return 0.5 * sum(square(x - 3.0)) + 1.0; }, estimator);
    return minimise({inner}, {Parameter::real(Array{1.0, 1.0}), Parameter::fixed(Array(weight))}, Lbfgs{},
                    {.checkpoint = file});
  };
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "c").string();
  for (const Estimator& estimator :
       std::vector<Estimator>{OneStep{}, KStep{2}, Implicit{}, Unrolled{}, Auto{.tolerance = 1e-6}}) {
    (void)run(file, estimator, 1, 1e-10);
    EXPECT_TRUE(run(file, estimator, 1, 1e-10).resumed);
    EXPECT_THAT(error_of([&] { (void)run(file, estimator, 2, 1e-10); }), HasSubstr("another problem"));
    EXPECT_THAT(error_of([&] { (void)run(file, estimator, 1, 1e-9); }), HasSubstr("another problem"));
    for (const Estimator& other : std::vector<Estimator>{
             KStep{3}, Implicit{.how = Implicit::dense}, Implicit{.tolerance = 1e-8}, Implicit{.on_step = true},
             Implicit{.preconditioner = [](std::span<double>, bool) {}}, Unrolled{.mode = Unrolled::reverse}, Auto{1e-3}})
      EXPECT_THAT(error_of([&] { (void)run(file, other, 1, 1e-10); }), HasSubstr("another problem"))
          << estimator.kind().index() << " " << other.kind().index();
    std::filesystem::remove(file);
  }
}

TEST(Checkpoint, MoreMayBeAllowedToTheLinearSolverOnResuming) {
  const TemporaryFolder folder;
  Random random(14);
  const Ridge ridge(random, 20, 6, 2);
  const BilevelOptions options = with_checkpoint((folder.path() / "c").string());
  const auto run = [&](int most) {
    return minimise({ridge.inner(Implicit{.max_iterations = most})}, {Parameter::positive(ones(6))}, Lbfgs{}, options);
  };
  (void)run(500);
  EXPECT_TRUE(run(1000).resumed);
}

TEST(Checkpoint, TheSecondRunOnOneFileIsRefused) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "c").string();
  BilevelOptions options = with_checkpoint(file);
  std::string message;
  options.callback = [&](const OuterIteration&) {
    if (message.empty()) message = error_of([&] { (void)tuned(Lbfgs{}, with_checkpoint(file)); });
    return true;
  };
  EXPECT_EQ(tuned(Lbfgs{}, options).status, Status::converged);
  EXPECT_THAT(message, HasSubstr("in use by another run"));
  EXPECT_TRUE(message.starts_with("[checkpoint] " + file)) << message;
}

TEST(Checkpoint, AFullDiskKeepsTheLastOneAndIsAnError) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "c").string();
  CheckpointFile checkpoint(file);
  checkpoint.write("good");
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{1000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  std::string problem;
  try {
    checkpoint.write(std::string(100000, 'x'));
  } catch (const FileError& e) { problem = e.what(); }
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_THAT(problem, HasSubstr("could not be written (the last one is kept)"));
  EXPECT_EQ(checkpoint.read(), "good");
  EXPECT_FALSE(std::filesystem::exists(file + ".tmp"));
}

TEST(Checkpoint, IsWrittenWhereASymbolicLinkLeads) {
  namespace fs = std::filesystem;
  const TemporaryFolder folder;
  const fs::path link = folder.path() / "link", target = folder.path() / "disk" / "c";
  fs::create_directory(folder.path() / "disk");
  fs::create_symlink("disk/other", link);  // relative to its folder, and by another link, which leads to nothing yet
  fs::create_symlink(target, folder.path() / "disk" / "other");
  for (const char* contents : {"first", "second"}) {
    CheckpointFile checkpoint(link.string());
    EXPECT_THAT(error_of([&] { const CheckpointFile same(target.string()); }), HasSubstr("in use by another run"));
    checkpoint.write(contents);
    EXPECT_EQ(checkpoint.read(), contents);
  }
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(CheckpointFile(target.string()).read(), "second");
}

TEST(Checkpoint, ALinkThatLeadsNowhereIsAnErrorBeforeTheWork) {
  const TemporaryFolder folder;
  const std::string loop = (folder.path() / "loop").string(), lost = (folder.path() / "lost").string();
  std::filesystem::create_symlink("loop", loop);
  std::filesystem::create_symlink("no/such/folder", lost);
  EXPECT_THAT(error_of([&] { (void)tuned(Lbfgs{}, with_checkpoint(loop)); }), HasSubstr(loop + " cannot be followed"));
  EXPECT_THAT(error_of([&] { (void)tuned(Lbfgs{}, with_checkpoint(lost)); }), HasSubstr("no/such/folder cannot be locked"));
  EXPECT_FALSE(std::filesystem::exists(loop + ".lock"));
}

TEST(Checkpoint, WhatIsNoOrdinaryFileIsAnErrorAndNotRead) {
  const TemporaryFolder folder;
  const std::string pipe = (folder.path() / "pipe").string(), inner = (folder.path() / "folder").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);  // its reading never ends, as that of /dev/zero
  std::filesystem::create_directory(inner);
  for (const std::string& file : {inner, pipe})
    EXPECT_THAT(error_of([&] { (void)tuned(Lbfgs{}, with_checkpoint(file)); }), HasSubstr("is no ordinary file")) << file;
}

TEST(Checkpoint, AFolderThatIsNotThereIsAnErrorBeforeTheWork) {
  EXPECT_THROW((void)tuned(Lbfgs{}, with_checkpoint("/nowhere/at/all")), FileError);
}

}  // namespace
}  // namespace onestep::test
