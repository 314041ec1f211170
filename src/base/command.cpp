// See command.h.
#include "base/command.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/utf8.h"

namespace ingot {
namespace {

constexpr size_t kOutput = 1 << 20;

std::string first_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kOutput, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return utf8::repair(text);
}

int new_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) fail("cannot write '{}': {}", path, std::strerror(errno));
  return file;
}

}  // namespace

bool can_start(const std::string& program) {
  if (program.find('/') != program.npos) return ::access(program.c_str(), X_OK) == 0;
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!program.empty() && !rest.empty()) {
    const size_t end = std::min(rest.find(':'), rest.size());
    if (::access(fmt::format("{}/{}", rest.substr(0, end), program).c_str(), X_OK) == 0) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

std::string CommandResult::text() const {
  const std::string& told = errors.empty() ? output : errors;
  const std::string line = told.substr(0, std::min<size_t>(told.find('\n'), 400));
  return fmt::format("{}{}{}", late ? "no end within its time limit" : fmt::format("exit code {}", code),
                     line.empty() ? "" : ": ", line);
}

Command::Command(const Words& words, std::string output_path, double seconds)
    : output_path_(std::move(output_path)), until_(monotonic_seconds() + seconds) {
  INGOT_CHECK(!words.empty(), "no program");
  const int output = new_file(output_path_), errors = new_file(output_path_ + ".err");
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::setpgid(0, 0);
    for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(s, SIG_DFL);
    const int input = ::open("/dev/null", O_RDONLY);
    ::dup2(input, STDIN_FILENO);
    ::dup2(output, STDOUT_FILENO);
    ::dup2(errors, STDERR_FILENO);
    ::close_range(STDERR_FILENO + 1, ~0U, 0);  // locks of this process are not its
    ::execvp(argv[0], argv.data());
    const char* why = std::strerror(errno);
    if (::write(STDERR_FILENO, why, std::strlen(why)) < 0) ::_exit(126);
    ::_exit(127);
  }
  const int code = errno;
  ::close(output), ::close(errors);
  if (pid_ < 0) fail("cannot start '{}': {}", words[0], std::strerror(code));
  ::setpgid(pid_, pid_);  // also here: it may be killed before it comes to that
}

Command::~Command() {
  if (result_) return;
  ::kill(-pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::optional<CommandResult> Command::poll() {
  if (result_) return result_;
  if (!late_ && monotonic_seconds() > until_) {
    late_ = true;
    ::kill(-pid_, SIGKILL);
  }
  int status = 0;
  const pid_t ended = ::waitpid(pid_, &status, WNOHANG);
  if (ended == 0 || (ended < 0 && errno == EINTR)) return std::nullopt;
  const int code = ended < 0 ? -1 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result_ = {code, late_, first_bytes(output_path_), first_bytes(output_path_ + ".err")};
  return result_;
}

CommandResult Command::wait() {
  while (!poll()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return *result_;
}

}  // namespace ingot
