#include "launcher/agent/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "io/notice_signals.h"
#include "io/process_tree.h"
#include "io/subprocess.h"

namespace dt::launcher {
namespace {

/// Reading never blocks.
Result<io::Pipe> make_output_pipe() {
  auto pipe = io::make_pipe();
  if (pipe) ::fcntl(pipe->read.get(), F_SETFL, O_NONBLOCK);
  return pipe;
}

/// Blocks every signal: no handler of the parent may run in the child before its signals are reset.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t all;
    sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockSignals() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  BlockSignals(const BlockSignals&) = delete;
  BlockSignals& operator=(const BlockSignals&) = delete;

 private:
  sigset_t before_;
};

void default_signals() {
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

void say(const std::string& text) {
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
}

void enter(const ChildSpec& spec) {
  if (!spec.cwd.empty() && ::chdir(spec.cwd.c_str()) == 0) return;
  const int number = errno;
  const char* into = spec.home.empty() || ::chdir(spec.home.c_str()) != 0 ? "/" : spec.home.c_str();
  if (into[0] == '/' && into[1] == '\0' && ::chdir("/") != 0) ::_exit(127);
  if (!spec.cwd.empty())
    say(fmt::format("dtagent: cannot enter {}: {}; starting in {}\n", spec.cwd,
                    std::strerror(number), into));
}

struct ChildEnds {
  int out;
  int err;
  int exec_result;
};

[[noreturn]] void become(const ChildSpec& spec, pid_t parent, ChildEnds ends, char* const* argv,
                         char** envp) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // it died before the line above
  default_signals();
  if (io::is_in_sge_job()) io::ignore_notices();
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0 || ::dup2(null, STDIN_FILENO) < 0 || ::dup2(ends.out, STDOUT_FILENO) < 0 ||
      ::dup2(ends.err, STDERR_FILENO) < 0)
    ::_exit(127);
  ::syscall(SYS_close_range, 3U, ~0U, 4U /* CLOSE_RANGE_CLOEXEC */);
  ::umask(spec.umask);
  if (spec.descriptor_limit) ::setrlimit(RLIMIT_NOFILE, &*spec.descriptor_limit);
  enter(spec);
  environ = envp;  // execvp searches this PATH
  ::execvp(argv[0], argv);
  const int number = errno;
  [[maybe_unused]] const ssize_t n = ::write(ends.exec_result, &number, sizeof number);
  ::_exit(127);
}

}  // namespace

Result<Child> start_child(const ChildSpec& spec) {
  if (spec.argv.empty()) return fail(ErrorKind::kInvalid, "the command is empty");
  auto out = make_output_pipe();
  auto err = make_output_pipe();
  auto exec_result = make_output_pipe();
  for (const auto* pipe : {&out, &err, &exec_result})
    if (!*pipe) return tl::unexpected(pipe->error());
  const auto argv = io::pointers(spec.argv);
  std::vector<std::string> environment;
  for (const auto& [name, value] : spec.environment) environment.push_back(name + "=" + value);
  auto envp = io::pointers(environment);

  const pid_t parent = ::getpid();
  pid_t pid = 0;
  {
    const BlockSignals blocked;
    pid = ::fork();
    if (pid == 0) {
      const ChildEnds ends{out->write.get(), err->write.get(), exec_result->write.get()};
      become(spec, parent, ends, argv.data(), envp.data());
    }
  }
  if (pid < 0) return tl::unexpected(errno_error(errno, "start a process (fork)"));
  ::setpgid(pid, pid);  // also here: a stop right after the start must find the group
  Child child{pid, io::open_pidfd(pid), std::move(out->read), std::move(err->read),
              std::move(exec_result->read)};
  if (!child.pidfd) {
    ::kill(pid, SIGKILL);
    return tl::unexpected(errno_error(errno, "watch a process (pidfd_open)"));
  }
  return child;
}

Result<io::Fd> ask_folder(const std::string& folder) {
  auto answer = make_output_pipe();
  if (!answer) return tl::unexpected(answer.error());
  const pid_t parent = ::getpid();
  const BlockSignals blocked;
  const pid_t pid = ::fork();
  if (pid < 0) return tl::unexpected(errno_error(errno, "look at " + folder + " (fork)"));
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    default_signals();
    const int number = ::chdir(folder.c_str()) == 0 ? 0 : errno;
    [[maybe_unused]] const ssize_t n = ::write(answer->write.get(), &number, sizeof number);
    ::_exit(0);
  }
  return std::move(answer->read);
}

std::string explain_exec_failure(int number, const std::string& command, const std::string& host) {
  const bool is_path = command.starts_with("/");
  if (number == ENOENT && is_path && ::access(command.c_str(), F_OK) == 0)
    return fmt::format("{} cannot run on host {}: the interpreter its first line names is missing",
                       command, host);
  if ((number == ENOENT || number == EACCES) && command.ends_with(".py"))
    return fmt::format("{} is no program on host {} ({}): write python3 {}", command, host,
                       std::strerror(number), command);
  if (number == ENOENT || number == ENOTDIR)
    return fmt::format("{}: not found on host {} ({}): is it on the shared volume, or in PATH?",
                       command, host, std::strerror(number));
  if (number == EACCES)
    return fmt::format("{} cannot run on host {} ({}): is it executable (chmod +x)?", command, host,
                       std::strerror(number));
  return fmt::format("{} cannot run on host {}: {}", command, host, std::strerror(number));
}

}  // namespace dt::launcher
