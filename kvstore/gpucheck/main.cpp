/// dtgpucheck: tests whether the GPUs of this host work. A child runs the parts; this process
/// reports the result, and a part that has not ended within its deadline: a bad GPU can block the
/// child in an endless wait.
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/base/number.h"
#include "core/base/time.h"
#include "core/base/version.h"
#include "io/fd.h"
#include "kvstore/gpucheck/gpu_check.h"

namespace {

using dt::kv::GpuCheckOptions;
using dt::kv::GpuFindings;
using dt::kv::GpuVerdict;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr const char* kHelp = R"(dtgpucheck: whether the GPUs of this host are fit for work.
What the driver says of them, a matrix product with a known result and a copy on each, and a sum over all of
them (NCCL). Prints a line a GPU; the first thing that is wrong, in one sentence, to stderr.

  dtgpucheck [OPTIONS]

  --gpus LIST        these only, as CUDA counts what CUDA_VISIBLE_DEVICES leaves: 0,1 (all)
  --count N          so many there must be
  --timeout SECONDS  of each part (30)
  --json             one JSON object to stdout instead of lines
  --version
  --help

Exit codes: 0 all is well, 2 wrong usage, 3 a GPU is missing or unwell, 4 a part did not end in its time,
5 the GPUs cannot exchange arrays, 77 no GPU that could be used.
)";

struct CommandLine {
  GpuCheckOptions check;
  bool as_json = false;
};

int usage(const std::string& why) {
  std::fprintf(stderr, "dtgpucheck: %s (see dtgpucheck --help)\n", why.c_str());
  return static_cast<int>(GpuVerdict::kUsage);
}

template <class Number>
bool parse(std::string_view text, Number least, Number most, Number& into) {
  const auto number = dt::parse_number<Number>(text);
  if (!number || *number < least || *number > most) return false;
  into = *number;
  return true;
}

bool parse_list(std::string_view text, std::vector<int>& into) {
  for (;;) {
    const std::size_t comma = text.find(',');
    int number = 0;
    if (!parse(text.substr(0, comma), 0, 1023, number)) return false;
    if (std::find(into.begin(), into.end(), number) != into.end()) return false;
    into.push_back(number);
    if (comma == std::string_view::npos) return true;
    text.remove_prefix(comma + 1);
  }
}

bool write_line(int fd, const json& object) {
  const std::string line = object.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  return ::write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size());
}

json as_json(const GpuFindings& findings) {
  json gpus = json::array();
  for (const auto& gpu : findings.gpus)
    gpus.push_back({{"gpu", gpu.device},
                    {"name", gpu.name},
                    {"teraflops", gpu.teraflops},
                    {"copy_gb_s", gpu.copy_gb_s}});
  json out{{"exit_code", static_cast<int>(findings.verdict)},
           {"why", findings.why},
           {"gpus", std::move(gpus)},
           {"ring_gb_s", nullptr},
           {"ring_skipped", findings.ring_skipped}};
  if (findings.ring_gb_s) out["ring_gb_s"] = *findings.ring_gb_s;
  return out;
}

[[noreturn]] void check_and_tell(const GpuCheckOptions& options, int fd) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 0);  // the driver's order
  const auto begins = [fd](const std::string& part) {
    if (!write_line(fd, {{"begins", part}})) ::_exit(1);
  };
  const GpuFindings findings = dt::kv::check_gpus(options, begins);
  write_line(fd, as_json(findings));
  // No destructors: a library's may hang.
  ::_exit(0);
}

json failed(GpuVerdict verdict, const std::string& why) {
  GpuFindings findings;
  findings.verdict = verdict;
  findings.why = why;
  return as_json(findings);
}

/// The child's result, or why there is none.
json hear(pid_t child, int fd, std::chrono::milliseconds deadline) {
  std::string part = "the start";
  std::string unread;
  // The child's own waits have the same deadline: their more precise error should come first.
  const auto patience = deadline + std::chrono::seconds(2);
  auto until = Clock::now() + patience;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    pollfd wanted{fd, POLLIN, 0};
    const int ready = left.count() > 0 ? ::poll(&wanted, 1, static_cast<int>(left.count())) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0)
      return failed(GpuVerdict::kTimeout,
                    fmt::format("{} did not end within {:.0f} s: a GPU or its driver hangs, which "
                                "often only a restart of the host ends",
                                part, dt::seconds(deadline)));
    char buffer[4096];
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    unread.append(buffer, static_cast<std::size_t>(n));
    for (std::size_t end = unread.find('\n'); end != std::string::npos; end = unread.find('\n')) {
      json line = json::parse(unread.substr(0, end), nullptr, false);
      unread.erase(0, end + 1);
      if (!line.is_object()) continue;
      if (!line.contains("begins")) return line;
      part = line["begins"].get<std::string>();
      until = Clock::now() + patience;
    }
  }
  int status = 0;
  (void)::waitpid(child, &status, 0);
  const std::string how = WIFSIGNALED(status)
                              ? fmt::format("was killed by signal {}", WTERMSIG(status))
                              : fmt::format("ended with {}", WEXITSTATUS(status));
  return failed(GpuVerdict::kUnwell, fmt::format("{}: what tried it {}", part, how));
}

void print(const json& found) {
  for (const json& gpu : found["gpus"])
    std::printf("GPU %d: %s: %.1f TFLOP/s, %.0f GB/s\n", gpu["gpu"].get<int>(),
                gpu["name"].get<std::string>().c_str(), gpu["teraflops"].get<double>(),
                gpu["copy_gb_s"].get<double>());
  if (found["ring_gb_s"].is_number())
    std::printf("%zu GPUs together: %.1f GB/s summed and gathered\n", found["gpus"].size(),
                found["ring_gb_s"].get<double>());
  const std::string why = found["why"].get<std::string>();
  if (!why.empty()) std::fprintf(stderr, "dtgpucheck: %s\n", why.c_str());
}

int check(const CommandLine& line) {
  int ends[2];
  if (::pipe(ends) != 0) return usage("no pipe");
  const dt::io::Fd read_end(ends[0]);
  dt::io::Fd write_end(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return usage("no process");
  if (child == 0) check_and_tell(line.check, write_end.get());
  write_end.reset();
  const json found = hear(child, read_end.get(), line.check.deadline);
  ::kill(child, SIGKILL);  // it may never end, so it is not waited for
  if (line.as_json)
    std::printf("%s\n", found.dump(-1, ' ', false, json::error_handler_t::replace).c_str());
  else
    print(found);
  return found["exit_code"].get<int>();
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const std::string_view value = i + 1 < argc ? argv[i + 1] : "";
    if (word == "--version") return std::fputs(dt::version_text("dtgpucheck").c_str(), stdout) < 0;
    if (word == "--help") return std::fputs(kHelp, stdout) < 0;
    if (word == "--json") {
      line.as_json = true;
      continue;
    }
    ++i;
    int number = 0;
    if (word == "--gpus" && parse_list(value, line.check.devices)) continue;
    if (word == "--count" && parse(value, 0, 1024, number)) {
      line.check.count = number;
      continue;
    }
    if (word == "--timeout" && parse(value, 1, 3600, number)) {
      line.check.deadline = std::chrono::seconds(number);
      continue;
    }
    if (word == "--gpus" || word == "--count" || word == "--timeout")
      return usage(fmt::format("{} needs {}, not '{}'", word,
                               word == "--gpus" ? "different numbers with commas" : "a number",
                               value));
    return usage(fmt::format("unknown word '{}'", word));
  }
  return check(line);
}
