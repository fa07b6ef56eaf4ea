/// Which of a server's looks at its workers are sent to the supervisor: one that shows a change,
/// and every second one. Pure.
///
/// Hundreds of servers see rounds begin and end all the time. A worker counts as owing or waiting
/// in a report only if it did so at two looks and sent no request between them: it may keep others
/// waiting. So a training without such workers is reported at the slow beat.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "core/base/id.h"
#include "core/protocol/control_messages.h"

namespace dt::kv {

class ReportPace {
 public:
  /// The next look (Server::traffic()). Returns what is to be sent now; its `alive` and `busy` are
  /// those since the last report.
  [[nodiscard]] std::optional<Traffic> take(Traffic look);

 private:
  Traffic last_look_;
  std::optional<Traffic> sent_;
  std::set<WorkerId> alive_;                       ///< Since the last report.
  std::set<WorkerId> busy_;                        ///< Since the last report.
  std::uint32_t rounds_ = 0;                       ///< Since the last report.
  std::map<WorkerId, std::uint32_t> late_rounds_;  ///< Likewise.
  bool was_skipped_ = false;                       ///< The last look was not sent.
};

}  // namespace dt::kv
