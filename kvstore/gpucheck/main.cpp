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
#include <optional>
#include <string>
#include <string_view>

#include "core/base/number.h"
#include "core/base/version.h"
#include "io/fd.h"
#include "io/flags.h"
#include "kvstore/gpucheck/gpu_check.h"

namespace {

using dt::kv::GpuCheckOptions;
using dt::kv::GpuFindings;
using dt::kv::GpuVerdict;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr const char* kUsage = R"(dtgpucheck: whether the GPUs of this host are fit for work.
What the driver says of them, a matrix product with a known result and a copy on
each, and a sum over all of them (NCCL). Prints a line a GPU; the first thing
that is wrong, in one sentence, to stderr.

  dtgpucheck [OPTIONS]
)";
constexpr const char* kExitCodes = R"(
Exit codes: 0 all is well, 2 wrong usage, 3 a GPU is missing or unwell, 4 a part
did not end in its time, 5 the GPUs cannot exchange arrays, 77 no GPU that could
be used.
)";

struct CommandLine {
  std::vector<int> gpus;
  std::optional<std::uint32_t> count;
  dt::Duration timeout = GpuCheckOptions().deadline;
  bool as_json = false;

  [[nodiscard]] GpuCheckOptions check() const {
    GpuCheckOptions options;
    options.devices = gpus;
    if (count) options.count = static_cast<int>(*count);
    options.deadline = std::chrono::duration_cast<std::chrono::milliseconds>(timeout);
    return options;
  }
};

dt::Result<void> read_list(std::string_view text, std::vector<int>& into) {
  for (;;) {
    const std::size_t comma = text.find(',');
    const auto number = dt::parse_number<int>(text.substr(0, comma));
    if (!number || *number < 0 || *number > 1023 ||
        std::find(into.begin(), into.end(), *number) != into.end())
      return dt::fail(dt::ErrorKind::kInvalid, "different numbers with commas were expected");
    into.push_back(*number);
    if (comma == std::string_view::npos) return {};
    text.remove_prefix(comma + 1);
  }
}

dt::io::Flags flags_of(CommandLine& line) {
  const auto read_gpus = [&line](const std::string& text) { return read_list(text, line.gpus); };
  // clang-format off
  return {{"Options", {
      {.name = "gpus", .value = "LIST", .to = dt::io::Reader(read_gpus),
       .help = "these only, as CUDA counts what CUDA_VISIBLE_DEVICES leaves: 0,1 (all)",
       .manual = "Only these, as CUDA counts, by place on the bus, those that "
           "`CUDA_VISIBLE_DEVICES` leaves: 0,1."},
      {.name = "count", .value = "N", .to = &line.count, .most = 1024,
       .help = "so many there must be",
       .manual = "There must be so many: a GPU that has fallen off the bus is often just not "
           "there."},
      {.name = "timeout", .value = "TIME", .to = &line.timeout, .most = 3600,
       .help = "of each part ({})",
       .manual = "Of each part ({}). A part that has not ended by then, and 2 s more, is given "
           "up: what hangs is left behind and nobody waits for it."},
      {.name = "json", .to = &line.as_json, .help = "one JSON object to stdout instead of lines",
       .manual = "One object: exit_code, why, gpus (gpu, name, teraflops, copy_gb_s), ring_gb_s, "
           "ring_skipped."},
      {.name = "version", .help = "show the version"},
      {.name = "help", .help = "show this"},
  }}};
  // clang-format on
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
  return as_json({.verdict = verdict, .why = why});
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

int no_check(const char* why) {
  std::fprintf(stderr, "dtgpucheck: %s\n", why);
  return static_cast<int>(GpuVerdict::kUsage);
}

int check(const CommandLine& line) {
  auto pipe = dt::io::make_pipe();
  if (!pipe) return no_check("no pipe");
  const pid_t child = ::fork();
  if (child < 0) return no_check("no process");
  if (child == 0) check_and_tell(line.check(), pipe->write.get());
  pipe->write.reset();
  const json found = hear(child, pipe->read.get(), line.check().deadline);
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
  const dt::io::Flags flags = flags_of(line);
  const dt::io::Program program{.name = "dtgpucheck",
                                .version = dt::version_text("dtgpucheck"),
                                .usage = kUsage,
                                .more = kExitCodes};
  const auto given = dt::io::parse(program, flags, {argv + 1, argv + argc});
  if (!given) return dt::io::refuse(program, given.error());
  if (const auto text = dt::io::answer(program, flags, *given))
    return std::fputs(text->c_str(), stdout) < 0;
  return check(line);
}
