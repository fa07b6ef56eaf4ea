/// Any bytes as a hosts file and as host_worker: no crash, bounded memory; accepted content
/// survives formatting, and an edit is accepted exactly if it names hosts.

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/files/file_watch.h"
#include "core/files/hosts.h"
#include "test/fuzz/target.h"

namespace {

/// The text stays in host_worker until it counts.
void edit(std::string_view text, bool names_hosts) {
  constexpr std::string_view kBefore = "a\n";
  if (text == kBefore) return;
  dt::FileWatch watch(std::string(kBefore), {});
  const dt::Observation seen{dt::Observation::Kind::kContent, std::string(text)};
  (void)watch.observe(seen, dt::Time{});
  const auto result = watch.observe(seen, dt::Time{} + std::chrono::seconds(3));
  DT_CHECK(std::holds_alternative<dt::FileAccepted>(result) == names_hosts,
           "host_worker is in force when it names hosts");
  DT_CHECK(watch.accepted_text() == (names_hosts ? text : kBefore), "as it is, or as it was");
}

}  // namespace

DT_FUZZ_TARGET(hosts)
(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto lines = dt::parse_hosts(text, "hosts");
  edit(text, lines && !lines->empty());
  if (!lines) return 0;
  std::vector<dt::Host> hosts;
  for (const auto& line : *lines) hosts.push_back(line.host);
  const auto again = dt::parse_hosts(dt::format_host_worker(hosts), "host_worker");
  DT_CHECK(again && again->size() == hosts.size(), "a formatted list parses to as many hosts");
  for (std::size_t i = 0; i < hosts.size(); ++i)
    DT_CHECK((*again)[i].host == hosts[i] && line_of((*again)[i].host) == line_of(hosts[i]),
             "a formatted host parses to itself");
  for (const dt::Host& host : hosts) {
    const auto back = dt::from_wire(dt::to_wire(host));
    DT_CHECK(back && *back == host && line_of(*back) == line_of(host), "a host travels whole");
  }
  const auto workers = dt::place_workers(dt::with_known_ways(*lines, hosts), 100);
  DT_CHECK(!workers || workers->size() == 100, "as many workers are placed as were asked for");
  return 0;
}
