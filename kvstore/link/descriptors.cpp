#include "kvstore/link/descriptors.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>

#include "core/base/quantity.h"
#include "core/base/result.h"

namespace dt::kv {

namespace {

constexpr std::uint32_t kMostLoops = 8;
constexpr std::uint32_t kMostConnections = 4096;
/// In addition to workers' connections: logs, the agent, checkpoint files, unauthenticated
/// connections, devices.
constexpr std::uint64_t kOthers = 128;

}  // namespace

std::uint64_t raise_descriptor_limit() {
  rlimit limit{};
  DT_CHECK(::getrlimit(RLIMIT_NOFILE, &limit) == 0, "a process has a limit of descriptors");
  const rlimit raised{limit.rlim_max, limit.rlim_max};
  if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) return raised.rlim_cur;
  return limit.rlim_cur;
}

std::uint32_t loops_for(std::uint32_t workers, std::uint32_t cores) {
  const std::uint64_t connections = std::uint64_t{workers} + 1;
  const auto fit = static_cast<std::uint32_t>(kMostConnections / connections);
  return std::max(1U, std::min({kMostLoops, cores, fit}));
}

std::string lacking_descriptors(std::uint64_t limit, std::uint32_t workers, std::uint32_t loops) {
  const std::uint64_t needed = (std::uint64_t{workers} + 1) * loops + kOthers;
  if (limit >= needed) return {};
  return fmt::format(
      "{} file descriptors are needed for {} and {}, and the hard limit is {}: "
      "raise it (ulimit -Hn; limits.conf; LimitNOFILE= of a systemd unit)",
      needed, count_text(workers, "worker"), count_text(loops, "loop"), limit);
}

}  // namespace dt::kv
