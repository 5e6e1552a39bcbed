// Runs the command `onestep` as a user does, and keeps what it printed and how it ended.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/files.h"

extern char** environ;

namespace onestep::test {

struct Ended {
  int status = -1;  ///< the exit status, or 128 + the signal that ended it
  std::string out, err;

  nlohmann::json json() const { return nlohmann::json::parse(out); }
};

class RunningCommand {
 public:
  explicit RunningCommand(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), ONESTEP_COMMAND);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    const auto redirect = [&](int to, const std::string& name) {
      posix_spawn_file_actions_addopen(&actions, to, (folder_.path() / name).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    };
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    redirect(STDOUT_FILENO, "out");
    redirect(STDERR_FILENO, "err");
    const int problem = posix_spawn(&pid_, ONESTEP_COMMAND, &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (problem != 0) throw std::runtime_error("cannot start " ONESTEP_COMMAND);
  }

  pid_t pid() const { return pid_; }

  Ended wait() const {
    int state = 0;
    waitpid(pid_, &state, 0);
    return {WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state), contents_of(folder_.path() / "out"),
            contents_of(folder_.path() / "err")};
  }

 private:
  TemporaryFolder folder_;
  pid_t pid_ = 0;
};

inline Ended run_command(const std::vector<std::string>& arguments) { return RunningCommand(arguments).wait(); }

}  // namespace onestep::test
