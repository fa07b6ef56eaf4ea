/// Any bytes as a hosts file: no crash, bounded memory, and what is accepted survives formatting.

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/hosts.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto lines = dt::parse_hosts(text, "hosts");
  if (!lines) return 0;
  std::vector<dt::Host> hosts;
  for (const auto& line : *lines) hosts.push_back(line.host);
  const auto again = dt::parse_hosts(dt::format_host_worker(hosts), "host_worker");
  DT_CHECK(again && again->size() == hosts.size(), "a formatted list parses to as many hosts");
  for (std::size_t i = 0; i < hosts.size(); ++i)
    DT_CHECK((*again)[i].host == hosts[i], "a formatted host parses to itself");
  const auto workers = dt::place_workers(dt::adopt(*lines, hosts), 100);
  DT_CHECK(!workers || workers->size() == 100, "as many workers are placed as were asked for");
  return 0;
}
