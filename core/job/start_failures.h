/// Base hosts that could not be reached or prepared at the job's start. They are tried again within
/// --start-timeout; then the job ends and names all of them. Pure.
#pragma once

#include <fmt/format.h>

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "core/hosts.h"
#include "core/id.h"
#include "core/job_text.h"

namespace dt {

class StartFailures {
 public:
  /// `what`: "reach", "prepare".
  void failed(const Host& host, std::string what, std::string why, Time now) {
    if (!first_) first_ = now;
    failed_[host] = {std::move(what), std::move(why)};
  }
  void succeeded(const Host& host) { failed_.erase(host); }

  /// A try at `then` would come too late.
  [[nodiscard]] bool is_too_late(Time then, Duration start_timeout) const {
    return !failed_.empty() && then - *first_ >= start_timeout;
  }
  /// "a: no route to host", or a line for each host, by what failed.
  [[nodiscard]] std::string text() const {
    if (failed_.size() == 1) return at_host(failed_.begin()->first, failed_.begin()->second.second);
    std::map<std::pair<std::string, std::string>, std::vector<std::string>> reasons;
    for (const auto& [host, what] : failed_) reasons[what].push_back(to_string(host));
    std::string out = fmt::format("{} hosts of the initial launch failed:", failed_.size());
    for (const auto& [what, hosts] : reasons)
      out += fmt::format("\n  {} ({}): {}", fmt::join(hosts, ", "), what.first, what.second);
    return out;
  }

 private:
  std::optional<Time> first_;
  std::map<Host, std::pair<std::string, std::string>> failed_;
};

}  // namespace dt
