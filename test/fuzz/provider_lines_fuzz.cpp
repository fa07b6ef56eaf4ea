/// Any bytes as what a provider's program or a discovery script prints. No crash, bounded memory;
/// an error is one line, and a machine that is taken has an id and a host that host_worker can
/// name.

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "core/files/hosts.h"
#include "core/fleet/discovered_hosts.h"
#include "core/fleet/provider_lines.h"
#include "test/fuzz/target.h"

using namespace dt;

namespace {

template <class T>
void check_error(const Result<T>& result) {
  if (!result)
    DT_CHECK(result.error().message.find('\n') == std::string::npos, "an error is one line");
}

void check(const std::vector<Machine>& machines) {
  std::set<std::string> ids;
  for (const Machine& machine : machines) {
    DT_CHECK(!machine.id.empty() && ids.insert(machine.id).second, "an id is there once");
    if (machine.host.empty()) {
      DT_CHECK(machine.state == MachineState::kPending, "only a pending one has no host");
      continue;
    }
    const auto lines = parse_hosts(machine.host, "host_worker");
    DT_CHECK(!lines || lines->size() == 1, "its host is one host, or is refused later");
  }
}

}  // namespace

DT_FUZZ_TARGET(provider_lines)
(const std::uint8_t* bytes, std::size_t size) {
  const std::string_view in(reinterpret_cast<const char*>(bytes), size);
  const auto line = provider_lines::parse_line(in);
  check_error(line);
  const auto hello = provider_lines::parse_hello(in);
  check_error(hello);
  if (hello) DT_CHECK(hello->every >= std::chrono::seconds(1), "no busy loop");
  const auto listing = provider_lines::parse_listing(in);
  check_error(listing);
  if (listing) check(listing->machines);
  DT_CHECK(provider_lines::sentence_of(in).find('\n') == std::string::npos, "it is one line");
  const auto hosts = parse_discovered(in, 0);
  check_error(hosts);
  if (hosts) check(*hosts);
  return 0;
}
