/// The hosts that the job's next decisions have to look at. Whoever changes something of a host, of
/// a worker or of a server there adds the host; what a host may do again at a known time is added
/// for that time. Everything else is as the last decisions left it. Pure.
///
/// Decisions are made in passes. A host added during a pass belongs to that pass, for the steps
/// that are still to come, and to the next one.
#pragma once

#include <map>
#include <set>
#include <utility>

#include "core/base/time.h"
#include "core/files/hosts.h"

namespace dt {

class Agenda {
 public:
  void add(const Host& host) {
    next_.insert(host);
    if (in_pass_) pass_.insert(host);
  }
  /// Adds it to the first pass at or after `when`.
  void add_at(const Host& host, Time when) { alarms_.emplace(when, host); }

  void begin_pass(Time now) {
    while (!alarms_.empty() && alarms_.begin()->first <= now) {
      add(alarms_.begin()->second);
      alarms_.erase(alarms_.begin());
    }
    pass_ = std::exchange(next_, {});
    in_pass_ = true;
  }
  void end_pass() {
    pass_.clear();
    in_pass_ = false;
  }
  /// The pass's hosts, in order.
  [[nodiscard]] const std::set<Host>& hosts() const { return pass_; }
  /// No host waits for a pass.
  [[nodiscard]] bool is_empty() const { return next_.empty(); }

 private:
  std::set<Host> pass_;
  std::set<Host> next_;
  std::multimap<Time, Host> alarms_;
  bool in_pass_ = false;
};

}  // namespace dt
