/// The hosts grammar: text of `hosts` and `host_worker` <-> lists of hosts. Pure text work; it does
/// not resolve names and knows nothing of processes.
///
///     line  = [ host [ "slots=" N ] [ "gpus=" LIST ] [ "via=" KIND ] ] [ "#" comment ]
///     host  = [ user "@" ] ( name | IPv4 | "[" IPv6 "]" ) [ ":" port ]
///     name may hold ranges: node[01-16], gpu[1,3,5-7]; padding is kept.
///     LIST is 0,2-5: GPUs as nvidia-smi numbers them; all lines of one host have the same one.
///     KIND is a name of core/files/kind.h; all lines of one name have the same one.
///
/// CRLF line ends, blank lines and blanks around words are harmless.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/base/result.h"
#include "core/base/wire.h"
#include "core/files/kind.h"

namespace dt {

/// A machine as the user names it. Two hosts are the same when user, name and port are: how it is
/// reached, and which GPUs it gives, may change.
struct Host {
  std::string user;        ///< Empty: not given.
  std::string name;        ///< Name or literal address, IPv6 without brackets.
  std::uint16_t port = 0;  ///< ssh port; 0: not given.
  std::optional<StarterKind> via = std::nullopt;  ///< None: as the job reaches its hosts.
  std::string gpus = {};  ///< Those for the job, as gpus= has them; empty: all.

  friend std::strong_ordering operator<=>(const Host& a, const Host& b) {
    return std::tie(a.user, a.name, a.port) <=> std::tie(b.user, b.name, b.port);
  }
  friend bool operator==(const Host& a, const Host& b) { return a <=> b == 0; }
};

/// "user@name:port" with brackets around IPv6, the host alone; parses back to the same Host.
[[nodiscard]] std::string to_string(const Host& host);
/// The host as a line of a hosts file: also how it is reached and its GPUs, where they are given.
[[nodiscard]] std::string line_of(const Host& host);

/// A host as it travels and lies in journals, which began without `via` and `gpus`: "KIND " and
/// "gpus=LIST " may stand before the user's name, which has no blank.
struct HostOnWire {
  std::string user;
  std::string name;
  std::uint16_t port = 0;
};
[[nodiscard]] HostOnWire to_wire(const Host& host);
/// Nothing if its kind is unknown.
[[nodiscard]] std::optional<Host> from_wire(HostOnWire host);

/// The numbers of a list of GPUs, "0,2-5", in its order; nothing if it is none, or has one twice.
[[nodiscard]] std::optional<std::vector<std::uint32_t>> gpu_numbers(std::string_view list);

/// A line's host and its number of slots.
struct HostLine {
  Host host;
  std::optional<std::uint32_t> slots;  ///< Given with slots=N, N >= 1.
  std::uint32_t line = 0;              ///< Line number in the text, from 1.

  friend bool operator==(const HostLine&, const HostLine&) = default;
};

/// A host and how many workers it has or should have.
struct HostSlots {
  Host host;
  std::uint32_t slots = 1;

  friend auto operator<=>(const HostSlots&, const HostSlots&) = default;
};

/// Every host of `text` in order, ranges expanded. The error names `file`, line and column, shows
/// the word and what was expected: "hosts:3:9: ...". At most 65536 hosts.
[[nodiscard]] Result<std::vector<HostLine>> parse_hosts(std::string_view text,
                                                        std::string_view file);

/// Sums the slots of equal hosts (a line without slots= counts 1), in order of first appearance.
[[nodiscard]] std::vector<HostSlots> sum_slots(const std::vector<HostLine>& lines);

/// A line that gives no user, port, via or gpus takes them from the `known` host of the same name,
/// if exactly one host has that name. So `host_worker` may give just the address of a host whose
/// port `hosts` has.
[[nodiscard]] std::vector<HostLine> with_known_ways(std::vector<HostLine> lines,
                                                    const std::vector<Host>& known);
/// Whether they are the same also in how they are reached and in their GPUs.
[[nodiscard]] bool are_same_lines(const std::vector<HostSlots>& a, const std::vector<HostSlots>& b);

/// The hosts of `count` workers, worker 0 first, host by host. Each host gets as many as if they
/// were dealt in turn, at most `slots`; when no line gives slots, without limit. More workers than
/// slots is kInvalid and names both numbers.
[[nodiscard]] Result<std::vector<Host>> place_workers(const std::vector<HostLine>& lines,
                                                      std::uint32_t count);

/// "host: why", unless the reason names the host already.
[[nodiscard]] std::string at_host(const Host& host, const std::string& why);

/// "a, b x2"
[[nodiscard]] std::string join_hosts(const std::vector<HostSlots>& hosts);

/// The text of `host_worker`: one line per worker, newline-terminated.
[[nodiscard]] std::string format_host_worker(const std::vector<Host>& workers);

}  // namespace dt

template <>
struct fmt::formatter<dt::Host> : fmt::formatter<std::string_view> {
  auto format(const dt::Host& host, format_context& ctx) const {
    return fmt::formatter<std::string_view>::format(dt::to_string(host), ctx);
  }
};
