/// Whether each kvstore server is alive, by its own reports, by the commits that it acknowledges
/// and by the data that workers get from it. Pure; core/job/server_group.h acts.
///
///     reports                                           alive
///     no report, workers get data                       alive: only its reports are lost
///     no report and no data for dead_after              lost
///     a loop stuck, or a commit not acknowledged,
///     or not listening after its start, for patience()  lost
///
/// A silence is a duration, added up tick by tick while the server's host is heard: a link that
/// breaks and comes back neither lengthens nor hides it. Hosts that are not heard are judged by
/// core/job/host_watch.h; gives_up_after() is how long a server there may protect its host.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/id.h"
#include "core/base/lookup.h"
#include "core/base/time.h"
#include "core/job/tick_time.h"
#include "core/protocol/control_messages.h"

namespace dt {

class ServerWatch {
 public:
  /// `dead_after`: --server-dead-after.
  explicit ServerWatch(Duration dead_after) : dead_after_(dead_after) {}

  /// What the job knows of a server at a tick.
  struct Sight {
    ServerId id;
    bool is_started = false;  ///< Its start was sent, or its agent knows it.
    bool listens = false;
    bool is_heard = false;   ///< Its host is.
    bool has_acked = false;  ///< The present generation.
  };
  /// A server that is lost, or a warning about one.
  struct Finding {
    ServerId id;
    bool is_lost = false;
    std::string why;  ///< "says nothing for 3.0 s (--server-dead-after)"
  };

  // Signs.
  void reported(ServerId server, std::vector<StuckLoop> stuck, Time now);
  void acked(ServerId server) { servers_[server].unacked = Duration{}; }
  /// A worker got data from it.
  void data_seen(ServerId server, Time now) { servers_[server].data = now; }
  /// Its process's state in the kernel.
  void inspected(ServerId server, const std::string& text) { servers_[server].process = text; }
  /// New servers replace all.
  void replaced() { servers_.clear(); }

  /// Adds the time since the last tick to every silence. Returns what is new, losses first; a
  /// warning comes once for each silence.
  [[nodiscard]] std::vector<Finding> tick(const std::vector<Sight>& servers, Time now);

  /// At the last tick each server had reported lately, had no stuck loop, and had acknowledged the
  /// present generation.
  [[nodiscard]] bool all_well() const { return all_well_; }
  /// Since when rounds may stand still because of a server, at the last tick.
  [[nodiscard]] const std::optional<Time>& silent_since() const { return silent_since_; }
  /// How long it has not reported, if that is longer than between two reports.
  [[nodiscard]] std::optional<Duration> silence(ServerId server) const;
  [[nodiscard]] std::string process(ServerId server) const {
    return value_in(servers_, server).process;
  }

  /// Workers get data from it at present.
  [[nodiscard]] bool gives_data(ServerId server, Time now) const;
  /// How long the host of this server may be silent until the server is lost: `dead_after` if
  /// workers could see its data and do not, else patience().
  [[nodiscard]] Duration gives_up_after(ServerId server) const {
    return value_in(servers_, server).data ? dead_after_ : patience();
  }
  /// The longest wait for a server with some sign of life, or that no worker could report on.
  [[nodiscard]] Duration patience() const { return dead_after_ * 10; }

 private:
  struct Server {
    std::optional<Time> reported;
    std::optional<Time> data;
    Duration silent{};    ///< No report.
    Duration unacked{};   ///< No acknowledgement of the present generation.
    Duration starting{};  ///< Started and not listening.
    std::vector<StuckLoop> stuck;
    std::string process;
    bool warned = false;
  };

  [[nodiscard]] std::optional<Finding> look_at(const Sight& sight, Server& server, Time now);

  Duration dead_after_;
  std::map<ServerId, Server> servers_;
  TickTime time_;
  std::optional<Time> silent_since_;
  bool all_well_ = true;
};

}  // namespace dt
