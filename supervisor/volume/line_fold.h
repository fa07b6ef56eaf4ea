/// Folds equal lines that many processes write at about the same time: of "step 7" from a thousand
/// workers a terminal gets "[workers 0-999] step 7". Pure: the time is an argument.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/base/time.h"
#include "core/files/hosts.h"
#include "core/protocol/control_messages.h"

namespace dt::supervisor {

/// "[worker 3 10.0.0.7] ", "[prepare-data 10.0.0.7] ": what a process's line begins with.
[[nodiscard]] std::string line_prefix(ProcessId process, const Host& host);

/// A line waits for kWait; equal lines that come meanwhile become one with it, unless their process
/// has written another line before, which waits too: the lines of one process keep their order.
/// Processes of different roles, and stdout and stderr, are never folded together.
class LineFold {
 public:
  static constexpr Duration kWait = std::chrono::milliseconds(500);

  /// A line for the terminal, with prefix and newline.
  struct Line {
    bool is_stderr = false;
    std::string text;
    friend bool operator==(const Line&, const Line&) = default;
  };

  /// `most_bytes`: when the lines that wait take more memory, the oldest are due at once.
  explicit LineFold(std::size_t most_bytes = std::size_t{1} << 20) : most_bytes_(most_bytes) {}

  /// `text`: a line without prefix and newline.
  void add(ProcessId process, const Host& host, bool is_stderr, std::string_view text, Time now);
  /// When due() has a line to return; nothing: no line waits.
  [[nodiscard]] std::optional<Time> due_at() const;
  /// The lines that have waited long enough, in order.
  [[nodiscard]] std::vector<Line> due(Time now);
  /// Every line up to the last one of the process; of a process without any, none.
  [[nodiscard]] std::vector<Line> up_to_last_of(ProcessId process);

 private:
  /// Where lines may be folded: role, stderr, text.
  using Key = std::tuple<Role, bool, std::string>;
  /// Equal lines of different processes. Groups have numbers, in the order of their first lines.
  struct Group {
    const Key* key = nullptr;  ///< In open_.
    Time since{};
    std::vector<std::pair<std::uint32_t, Host>> members;  ///< Ids, and hosts.
  };

  [[nodiscard]] std::uint64_t end() const { return begin_ + groups_.size(); }
  [[nodiscard]] Line take_first();

  std::size_t most_bytes_;
  std::deque<Group> groups_;
  std::uint64_t begin_ = 0;                        ///< The number of the first group.
  std::map<Key, std::deque<std::uint64_t>> open_;  ///< The groups of a text, in ascending order.
  std::map<ProcessId, std::uint64_t> last_of_;     ///< The group of its last line.
  std::size_t bytes_ = 0;
};

}  // namespace dt::supervisor
