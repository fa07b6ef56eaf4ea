/// From what a check has found to what is wrong with which host, and what to do. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "core/preflight/findings.h"

namespace dt::preflight {

enum class Row { kReach, kCommand, kVolume, kClock, kMachine, kGpus, kNetwork, kSpeed };
inline constexpr std::array kRows = {Row::kReach,   Row::kCommand, Row::kVolume,  Row::kClock,
                                     Row::kMachine, Row::kGpus,    Row::kNetwork, Row::kSpeed};
[[nodiscard]] const char* to_text(Row row);

enum class Mark {
  kNone,  ///< It was not checked, or there is nothing to check.
  kOk,
  kWarn,
  kFail,
};
[[nodiscard]] const char* to_text(Mark mark);

/// Something that is wrong with a host.
struct Remark {
  std::size_t host = 0;  ///< Its place in Findings::hosts.
  Row row = Row::kReach;
  Mark mark = Mark::kFail;
  std::string what;
  std::string remedy;
};

struct Verdict {
  std::vector<Host> hosts;
  std::vector<std::array<Mark, kRows.size()>> marks;  ///< Of each host.
  std::vector<Speed> speeds;    ///< A host's, by its better pair; 0 B/s without one.
  std::vector<Remark> remarks;  ///< By rows, then by hosts.

  [[nodiscard]] bool has_failed(std::size_t host) const;
  [[nodiscard]] bool has_failed() const;
  [[nodiscard]] bool has_unreachable() const;
  /// These of `hosts`, by their places, in few words.
  [[nodiscard]] std::string in_words(const std::vector<std::size_t>& places) const;
};

[[nodiscard]] Verdict judge(const Findings& findings);

/// "1.2 GB/s".
[[nodiscard]] std::string rate_text(double bytes_per_second);

}  // namespace dt::preflight
