/// A parsed request of the control socket (io/job/control_protocol.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/result.h"

namespace dt::supervisor {

/// From kStop on they change the job. request.cpp has their texts in this order.
enum class Op {
  kStatus,
  kChanges,
  kEvents,
  kConsole,
  kFleet,
  kStop,
  kAdd,
  kRemove,
  kLeave,
  kGrow,
  kShrink,
  kReplace
};

/// Fields that are missing or of a wrong type keep these defaults.
struct ControlAsk {
  Op op = Op::kStatus;
  bool force = false;  ///< "stop"
  std::string why =
      "on request";        ///< "stop", "leave": the requester and the reason, as one short line.
  bool owner = false;      ///< "console"
  std::uint64_t from = 0;  ///< "events", "changes", "fleet"
  std::optional<std::string> host;    ///< "add", "remove", "leave", "shrink", "replace"
  std::optional<std::string> to;      ///< "replace": who gets the places of `host`.
  std::optional<double> deadline_s;   ///< "leave", "fleet"
  bool cancel = false;                ///< "leave"
  std::uint64_t slots = 1;            ///< "add", "grow", "shrink"
  bool unless_there = false;          ///< "add": a host that host_worker has is not added again.
  bool machine_is_gone = false;       ///< "remove": nothing can run on the host any more.
  std::uint64_t asked = 0;            ///< "grow": workers that are asked for already.
  std::optional<std::string> report;  ///< "fleet": JSON, see fleet_desk.h.
};

/// kInvalid when it is no object with a known "op", or changes the job and is of another version.
/// Takes no more memory than a few times the text, however deep it is nested.
[[nodiscard]] Result<ControlAsk> control_ask_from_json(std::string_view text);

[[nodiscard]] std::string error_reply(std::string_view why);

}  // namespace dt::supervisor
