/// Base hosts that cannot be reached or prepared at the job's start. They are retried within
/// --start-timeout; then the job ends and names all of them. Pure.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "core/base/lookup.h"
#include "core/base/time.h"
#include "core/files/hosts.h"

namespace dt {

class StartFailures {
 public:
  explicit StartFailures(Duration start_timeout) : start_timeout_(start_timeout) {}

  /// `what`: "reach", "prepare". A host that was fine for --start-timeout begins with a new count.
  void failed(const Host& host, std::string what, std::string why, Time now) {
    Failure& f = hosts_[host];
    const bool goes_on = f.what == what && (!f.over || now - *f.over < start_timeout_);
    if (!goes_on) f.since = now;
    if (what == "prepare") ++f.prepares;
    f.what = std::move(what);
    f.why = std::move(why);
    f.over.reset();
  }
  /// Now its agent is attached, whatever follows, or it is prepared.
  void made_good(const Host& host, std::string_view what, Time now) {
    Failure* f = find_in(hosts_, host);
    if (f && f->what == what && !f->over) f->over = now;
  }

  /// Failed data checks of this host.
  [[nodiscard]] std::uint32_t prepares(const Host& host) const {
    return value_in(hosts_, host).prepares;
  }
  /// At `then` a host has failed for --start-timeout.
  [[nodiscard]] bool is_too_late(Time then) const {
    return std::ranges::any_of(hosts_, [&](const auto& h) {
      return !h.second.over && then - h.second.since >= start_timeout_;
    });
  }
  /// "a: no route to host", or a line for each reason with the hosts that failed for it.
  [[nodiscard]] std::string text() const {
    std::map<std::pair<std::string, std::string>, std::vector<std::string>> reasons;
    std::size_t count = 0;
    std::string only;
    for (const auto& [host, f] : hosts_) {
      if (f.over) continue;
      ++count;
      only = at_host(host, f.why);
      reasons[{f.what, f.why}].push_back(to_string(host));
    }
    if (count == 1) return only;
    std::string out = fmt::format("{} hosts of the initial launch failed:", count);
    for (const auto& [what, hosts] : reasons)
      out += fmt::format("\n  {} ({}): {}", fmt::join(hosts, ", "), what.first, what.second);
    return out;
  }

 private:
  struct Failure {
    std::string what;
    std::string why;
    Time since{};              ///< The first of its kind.
    std::optional<Time> over;  ///< It was made good.
    std::uint32_t prepares = 0;
  };

  Duration start_timeout_;
  std::map<Host, Failure> hosts_;
};

}  // namespace dt
