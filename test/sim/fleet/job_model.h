/// A dtlaunch job as its fleet sees it: lines in host_worker, workers that come and go at
/// boundaries, agents' links.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "core/fleet/fleet_plan.h"

namespace dt::sim {

class JobModel {
 public:
  struct Line {
    std::uint32_t slots = 0;  ///< 0: the line was removed, and workers may still be there.
    std::uint32_t empty = 0;
    std::uint32_t starting = 0;
    std::uint32_t members = 0;
    bool is_base = false;
    bool is_leaving = false;
    bool is_given_up = false;
    std::optional<double> leave_by;
    int unreachable = 0;  ///< Ticks.
    [[nodiscard]] std::uint32_t running() const { return starting + members; }
    friend bool operator==(const Line&, const Line&) = default;
  };

  explicit JobModel(std::uint32_t max_workers) : max_workers_(max_workers) {}

  /// As dtctl add: places that were left are filled, a line that is there stays. A new line is in
  /// force `late` ticks from now: its supervisor may be killed before it has read the file.
  void add(const std::string& host, std::uint32_t slots, int late = 0, bool is_base = false);
  /// As dtctl remove; false: a host of the launch.
  bool remove(const std::string& host);
  void leave(const std::string& host, std::optional<double> deadline);
  /// A worker of the host ends and is started again.
  void crash(const std::string& host);
  void end() { has_ended_ = true; }

  /// One tick. `has_machine`: the host exists; `is_boundary`: workers join and leave now.
  void pass(int now, bool is_boundary, const std::function<bool(const std::string&)>& has_machine);
  /// `needs_machine`, `is_linked`: JobHost's.
  [[nodiscard]] JobWish wish(const std::function<bool(const std::string&)>& needs_machine,
                             const std::function<bool(const std::string&)>& is_linked) const;
  [[nodiscard]] const std::map<std::string, Line>& lines() const { return lines_; }
  [[nodiscard]] Line at(const std::string& host) const;
  [[nodiscard]] bool has_ended() const { return has_ended_; }
  [[nodiscard]] std::uint32_t wanted() const;
  [[nodiscard]] std::uint32_t max_workers() const { return max_workers_; }
  /// For so many more workers, those that have left counted as well.
  [[nodiscard]] bool has_room(std::uint32_t slots) const;

 private:
  void take(const std::string& host, std::uint32_t slots);
  void fill();

  std::uint32_t max_workers_;
  std::map<std::string, Line> lines_;  ///< In force.
  struct Coming {
    std::uint32_t slots = 0;
    int ticks = 0;
  };
  std::map<std::string, Coming> coming_;
  bool has_ended_ = false;
};

}  // namespace dt::sim
