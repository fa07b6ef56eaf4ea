/// The protocol between dtfleet and a provider's program, version 1: one JSON object a line, of at
/// most 4 MiB. packaging/doc/provider.md is its description for those who write one. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/base/time.h"
#include "core/fleet/fleet_machine.h"

namespace dt::provider_lines {

constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kLongestLine = std::size_t{4} << 20;

/// Requests, each with its number, as lines.
[[nodiscard]] std::string hello(std::uint64_t n, std::string_view job);
[[nodiscard]] std::string list(std::uint64_t n);
[[nodiscard]] std::string mark(std::uint64_t n, const Machine& machine, Mark mark);
[[nodiscard]] std::string let_go(std::uint64_t n, std::string_view id, std::string_view why);
/// Where a list says `from` asked for, `to` are.
[[nodiscard]] std::string grow(std::uint64_t n, std::uint64_t from, std::uint64_t to);
[[nodiscard]] std::string confirm(std::uint64_t n, std::string_view id);

/// How a provider's own error is to be taken.
enum class Trouble {
  kAway,    ///< It cannot be asked now.
  kBusy,    ///< It was asked too often.
  kDenied,  ///< A right is missing.
  kWrong,   ///< The request was.
};
struct Refusal {
  Trouble kind = Trouble::kAway;
  std::string text;
};

/// A line of a program's.
struct Line {
  bool is_changed = false;  ///< {"event":"changed"}: a list is worth while; nothing else counts.
  std::uint64_t n = 0;      ///< The number of the request that this line answers.
  std::optional<Refusal> refusal;
};
/// kProtocol: it is none, with what is wrong.
[[nodiscard]] Result<Line> parse_line(std::string_view text);

/// The answer to hello.
struct Hello {
  std::string name;        ///< In sentences.
  bool has_marks = false;  ///< It keeps marks.
  bool can_grow = false;
  bool can_let_go = false;
  bool can_confirm = false;
  bool gives_back_at_end = false;  ///< At the job's end all machines that are not of the launch.
  Duration every = std::chrono::seconds(30);  ///< Between two lists, where nothing has changed.
};
/// kProtocol: as parse_line(), or it is of another version, with both numbers.
[[nodiscard]] Result<Hello> parse_hello(std::string_view text);

/// The answer to list.
struct Listing {
  std::vector<Machine> machines = {};
  std::optional<std::uint64_t> wished = std::nullopt;  ///< How many were asked for.
  std::string said = {};                               ///< For people.
};
/// kProtocol: an id twice, a host that is none, more than 100,000 machines: nothing of it counts.
[[nodiscard]] Result<Listing> parse_listing(std::string_view text);

/// "said" of an answer to grow, or "later" of one to let_go; empty: none.
[[nodiscard]] std::string sentence_of(std::string_view text);

}  // namespace dt::provider_lines
