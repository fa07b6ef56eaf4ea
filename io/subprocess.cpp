#include "io/subprocess.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <sstream>

#include "io/at_end.h"
#include "io/fd.h"

namespace dt::io {
namespace {

/// Default signals, none blocked, and the process group.
void set_attributes(posix_spawnattr_t& attributes, ProcessGroup group) {
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  short flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
  if (group == ProcessGroup::kOwn) flags |= POSIX_SPAWN_SETPGROUP;
  if (group == ProcessGroup::kOwnSession) flags |= POSIX_SPAWN_SETSID;
  ::posix_spawnattr_setflags(&attributes, flags);
}

}  // namespace

std::optional<std::string> variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> all;
  for (const std::string& word : words) all.push_back(const_cast<char*>(word.c_str()));
  all.push_back(nullptr);
  return all;
}

std::vector<char*> environment_of(const Without& is_without, const std::vector<std::string>& with) {
  std::vector<char*> all = pointers(with);
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    const auto replaces = [name](std::string_view other) {
      return other.substr(0, other.find('=')) == name;
    };
    if (std::ranges::any_of(with, replaces) || (is_without && is_without(name))) continue;
    all.insert(all.end() - 1, *entry);
  }
  return all;
}

Result<pid_t> spawn(const std::string& program, const std::vector<std::string>& argv,
                    const std::vector<int>& files, ProcessGroup group, const Without& is_without) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  const AtEnd freed([&] {
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&actions);
  });
  set_attributes(attributes, group);
  const int count = static_cast<int>(files.size());
  std::vector<Fd> sources;  // above the child's numbers: no dup2 overwrites the next one's source
  for (int i = 0; i < count; ++i) {
    sources.emplace_back(::fcntl(files[static_cast<std::size_t>(i)], F_DUPFD_CLOEXEC, count));
    if (!sources.back()) return tl::unexpected(errno_error(errno, "start " + program));
    ::posix_spawn_file_actions_adddup2(&actions, sources.back().get(), i);
  }
  ::posix_spawn_file_actions_addclosefrom_np(&actions, count);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, program.c_str(), &actions, &attributes,
                                   pointers(argv).data(), environment_of(is_without).data());
  if (error != 0) return tl::unexpected(errno_error(error, "start " + program));
  return pid;
}

ExitStatus exit_status(int wait_status) {
  ExitStatus out;
  if (WIFSIGNALED(wait_status))
    out.signal = WTERMSIG(wait_status);
  else
    out.code = WEXITSTATUS(wait_status);
  return out;
}

Result<Subprocess> Subprocess::start(const std::vector<std::string>& argv,
                                     const std::vector<int>& files, const Without& is_without) {
  auto pid = spawn(argv.front(), argv, files, ProcessGroup::kOwn, is_without);
  if (!pid) return tl::unexpected(pid.error());
  return Subprocess(*pid);
}

ExitStatus Subprocess::wait() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return exit_status(status);
}

Subprocess::~Subprocess() {
  if (pid_ < 0) return;
  ::kill(-pid_, SIGKILL);
  static_cast<void>(wait());
}

std::filesystem::path program_folder() {
  std::error_code ec;
  return std::filesystem::read_symlink("/proc/self/exe", ec).parent_path();
}

bool in_path(const std::string& program) {
  if (program.find('/') != std::string::npos) return ::access(program.c_str(), X_OK) == 0;
  std::istringstream folders(variable("PATH").value_or("/usr/bin:/bin"));
  for (std::string folder; std::getline(folders, folder, ':');)
    if (::access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  return false;
}

}  // namespace dt::io
