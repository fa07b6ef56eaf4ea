#include "launcher/cli/allocation_probe.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

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
constexpr std::size_t kMostHostfile = std::size_t{16} << 20;

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

/// Runs a program of the scheduler's.
Answer ask(const std::string& program, std::vector<std::string> arguments) {
  if (!io::in_path(program))
    return {false, fmt::format("{} is not in PATH (Debian's package slurm-client)", program)};
  std::vector<std::string> words = {"env"};
  for (const char* name : kSqueueVariables) words.insert(words.end(), {"-u", name});
  words.push_back(program);
  words.insert(words.end(), arguments.begin(), arguments.end());
  const io::Fd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  auto out = io::make_pipe();
  auto err = io::make_pipe();
  if (!nothing || !out || !err) return {false, "no file descriptor is left"};
  auto child = io::Subprocess::start(words, {nothing.get(), out->write.get(), err->write.get()});
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

Answer read_hostfile(const std::string& path) {
  const io::Fd file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file) return {false, std::strerror(errno)};
  std::string text(kMostHostfile + 1, '\0');
  std::size_t have = 0;
  while (have < text.size()) {
    const ssize_t n = ::read(file.get(), text.data() + have, text.size() - have);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return {false, std::strerror(errno)};
    if (n == 0) break;
    have += static_cast<std::size_t>(n);
  }
  if (have > kMostHostfile) return {false, "it is larger than 16 MiB"};
  text.resize(have);
  return {true, std::move(text)};
}

}  // namespace

Result<std::optional<Allocation>> find_allocation(std::optional<StarterKind> kind,
                                                  const VariableOf& variable) {
  std::vector<Result<Allocation>> found;
  const auto slurm = slurm_job(variable);
  if (slurm && kind.value_or(StarterKind::kSlurm) == StarterKind::kSlurm)
    found.push_back(
        slurm_allocation(variable, ask("squeue", {"-h", "-j", *slurm, "-o", kSqueueFormat})));
  const auto hostfile = sge_hostfile(variable);
  if (hostfile && kind.value_or(StarterKind::kSge) == StarterKind::kSge)
    found.push_back(sge_allocation(variable, read_hostfile(*hostfile)));
  return only_one(found);
}

std::vector<NodeFacts> ask_nodes(const Allocation& allocation) {
  if (allocation.kind != StarterKind::kSlurm) return {};
  const Answer nodes = ask("scontrol", {"show", "node", "-o", allocation.nodes});
  return nodes.is_there ? parse_nodes(nodes.text) : std::vector<NodeFacts>();
}

}  // namespace dt::launcher
