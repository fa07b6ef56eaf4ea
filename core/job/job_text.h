/// Words that several parts of the job machine use.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "core/base/id.h"
#include "core/base/time.h"
#include "core/files/hosts.h"

namespace dt {

/// "host: why", unless the reason names the host already.
[[nodiscard]] inline std::string at_host(const Host& host, const std::string& why) {
  const std::string name = to_string(host);
  return why.starts_with(name + ":") ? why : fmt::format("{}: {}", name, why);
}

/// "0, 3, 4"
[[nodiscard]] inline std::string join_ids(const std::vector<WorkerId>& ids) {
  return fmt::format("{}", fmt::join(ids, ", "));
}

/// "a, b x2"
[[nodiscard]] inline std::string join_hosts(const std::vector<HostSlots>& hosts) {
  std::vector<std::string> out;
  for (const HostSlots& s : hosts)
    out.push_back(s.slots == 1 ? to_string(s.host) : fmt::format("{} x{}", s.host, s.slots));
  return fmt::format("{}", fmt::join(out, ", "));
}

}  // namespace dt
