#include "launcher/placement/scheduler_program.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>

#include "io/fd.h"
#include "io/subprocess.h"

namespace dt::launcher {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

/// Slurm's own programs try to reach their controller for about 10 s.
constexpr auto kLimit = 15s;
/// A line for each of 65536 nodes.
constexpr std::size_t kMostOutput = std::size_t{256} << 20;

/// squeue would show fewer jobs by these, and the time in another form.
constexpr const char* kSqueueVariables[] = {
    "SQUEUE_ACCOUNT", "SQUEUE_FORMAT", "SQUEUE_FORMAT2", "SQUEUE_LICENSES",  "SQUEUE_NAMES",
    "SQUEUE_QOS",     "SQUEUE_STATES", "SQUEUE_USERS",   "SQUEUE_PARTITION", "SLURM_TIME_FORMAT"};

/// The last line that says something.
std::string last_line(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  const std::size_t begin = text.rfind('\n');
  return std::string(begin == std::string_view::npos ? text : text.substr(begin + 1));
}

std::string for_terminal(std::string text) {
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  return text;
}

/// Reads both pipes until they end or time is up; false: time was up, or it was too much.
bool read_all(std::array<io::Fd, 2>& pipes, std::array<std::string, 2>& texts,
              Clock::time_point until) {
  std::array<char, 16384> buffer{};
  for (;;) {
    std::array<pollfd, 2> wait{};
    bool is_open = false;
    for (std::size_t i = 0; i < pipes.size(); ++i) {
      wait[i] = {pipes[i] ? pipes[i].get() : -1, POLLIN, 0};
      is_open = is_open || pipes[i];
    }
    if (!is_open) return true;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    if (left <= 0ms) return false;
    if (::poll(wait.data(), wait.size(), static_cast<int>(left.count())) < 0 && errno != EINTR)
      return false;
    for (std::size_t i = 0; i < pipes.size(); ++i) {
      if (wait[i].revents == 0) continue;
      const ssize_t n = ::read(pipes[i].get(), buffer.data(), buffer.size());
      if (n <= 0) {
        if (n == 0 || errno != EINTR) pipes[i].reset();
        continue;
      }
      texts[i].append(buffer.data(), static_cast<std::size_t>(n));
      if (texts[i].size() > kMostOutput) return false;
    }
  }
}

/// A file that is `input`, to be read from its beginning.
io::Fd file_of(std::string_view input) {
  if (input.empty()) return io::Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  io::Fd file(::memfd_create("input", MFD_CLOEXEC));
  const bool is_whole =
      file &&
      ::write(file.get(), input.data(), input.size()) == static_cast<ssize_t>(input.size()) &&
      ::lseek(file.get(), 0, SEEK_SET) == 0;
  return is_whole ? std::move(file) : io::Fd();
}

}  // namespace

Answer ask_scheduler(const std::string& program, const std::vector<std::string>& arguments,
                     std::string_view input) {
  if (!io::in_path(program))
    return {false, fmt::format("{} is not in PATH (Debian's package slurm-client)", program)};
  std::vector<std::string> words = {"env"};
  for (const char* name : kSqueueVariables) words.insert(words.end(), {"-u", name});
  words.push_back(program);
  words.insert(words.end(), arguments.begin(), arguments.end());
  const io::Fd in = file_of(input);
  auto out = io::make_pipe();
  auto err = io::make_pipe();
  if (!in || !out || !err) return {false, "no file descriptor is left"};
  auto child = io::Subprocess::start(words, {in.get(), out->write.get(), err->write.get()});
  if (!child) return {false, child.error().message};
  out->write.reset();
  err->write.reset();
  std::array<io::Fd, 2> pipes = {std::move(out->read), std::move(err->read)};
  std::array<std::string, 2> texts;
  if (!read_all(pipes, texts, Clock::now() + kLimit))
    return {false, fmt::format("{} gave no answer within {} s", program, kLimit.count())};
  const ExitStatus status = child->wait();
  if (status.clean()) return {true, std::move(texts[0])};
  const std::string words_of_it = for_terminal(last_line(texts[1]));
  return {false, words_of_it.empty() ? fmt::format("{} ended with {}", program, to_string(status))
                                     : words_of_it};
}

}  // namespace dt::launcher
