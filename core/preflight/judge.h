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
  std::vector<Remark> remarks;                        ///< By rows, then by hosts.

  [[nodiscard]] bool has_failed(std::size_t host) const;
  [[nodiscard]] bool has_failed() const;
  [[nodiscard]] bool has_unreachable() const;
};

[[nodiscard]] Verdict judge(const Findings& findings);

/// The hosts whose every way in `speeds` is slow: less than a third of what most hosts have at
/// best. Those of two partners or more only.
[[nodiscard]] std::vector<std::size_t> slow_hosts(const std::vector<Speed>& speeds,
                                                  std::size_t count);

}  // namespace dt::preflight
