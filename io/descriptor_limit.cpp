#include "io/descriptor_limit.h"

#include <optional>

#include "core/base/result.h"

namespace dt::io {
namespace {

std::optional<rlimit> first_limit;

rlimit present_limit() {
  rlimit limit{};
  DT_CHECK(::getrlimit(RLIMIT_NOFILE, &limit) == 0, "a process has a limit of descriptors");
  return limit;
}

}  // namespace

rlimit raise_descriptor_limit() {
  const rlimit before = present_limit();
  if (!first_limit) first_limit = before;
  const rlimit raised{before.rlim_max, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &raised);  // if refused, the old limit stays
  return *first_limit;
}

void restore_descriptor_limit() {
  if (first_limit) ::setrlimit(RLIMIT_NOFILE, &*first_limit);
}

std::string lacking_descriptors(std::uint64_t needed, const std::string& purpose) {
  const rlimit limit = present_limit();
  if (limit.rlim_max >= needed) return {};
  return fmt::format(
      "{} needs up to {} open files, and the hard limit is {}: raise it (ulimit -Hn, "
      "/etc/security/limits.conf, or LimitNOFILE= of a systemd unit)",
      purpose, needed, limit.rlim_max);
}

}  // namespace dt::io
