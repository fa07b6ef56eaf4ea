/// Base hosts that cannot be reached or prepared at the job's start. They are retried within
/// --start-timeout; then the job ends and names all of them. What waiting does not mend is repeated
/// once (a host that boots refuses a moment): then the job ends as soon as the others have said
/// theirs. Pure.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/lookup.h"
#include "core/base/time.h"
#include "core/files/hosts.h"

namespace dt {

class StartFailures {
 public:
  /// What the others get to say theirs, after the first host that is hopeless.
  static constexpr Duration kLastWords = std::chrono::seconds(10);

  explicit StartFailures(Duration start_timeout) : start_timeout_(start_timeout) {}

  /// `what`: "reach", "prepare". A host that was fine for --start-timeout begins with a new count.
  void failed(const Host& host, std::string what, std::string why, Time now,
              bool is_final = false) {
    Failure& f = hosts_[host];
    f.finals = is_final ? f.finals + 1 : 0;
    if (f.finals == 2 && !hopeless_since_) hopeless_since_ = now;
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
    if (f && f->over) f->finals = 0;
  }
  /// It has failed twice in a way that waiting does not mend.
  [[nodiscard]] bool is_hopeless(const Host& host) const {
    return value_in(hosts_, host).finals >= 2;
  }
  /// Why it fails is known.
  [[nodiscard]] bool has_spoken(const Host& host) const {
    const Failure* f = find_in(hosts_, host);
    return f && !f->over && f->finals != 1;
  }
  /// When the first host became hopeless, if one is.
  [[nodiscard]] std::optional<Time> hopeless_since() const { return hopeless_since_; }
  /// What is left of --start-timeout for this host.
  [[nodiscard]] Duration left(const Host& host, Time now) const {
    return start_timeout_ - (now - value_in(hosts_, host).since);
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
  /// "a: no route to host", or a line for each reason with the hosts that failed for it, the reason
  /// of most hosts first.
  [[nodiscard]] std::string text() const {
    std::map<std::string, std::vector<const Entry*>> reasons;
    std::size_t count = 0;
    for (const Entry& entry : hosts_) {
      const auto& [host, f] = entry;
      if (f.over) continue;
      ++count;
      reasons[without_host(host, f.why)].push_back(&entry);
    }
    std::vector<std::pair<std::string, std::vector<const Entry*>>> ordered(reasons.begin(),
                                                                           reasons.end());
    std::ranges::stable_sort(ordered, [](const auto& one, const auto& other) {
      return one.second.size() > other.second.size();
    });
    std::string out = fmt::format("{} hosts of the initial launch failed:", count);
    for (const auto& [reason, entries] : ordered) {
      const auto& [host, f] = *entries.front();
      if (count == 1) return at_host(host, f.why);
      out += entries.size() == 1
                 ? fmt::format("\n  {}", at_host(host, f.why))
                 : fmt::format("\n  {} hosts ({}): {}", entries.size(), names_of(entries), reason);
    }
    return out;
  }

 private:
  struct Failure {
    std::string what;
    std::string why;
    Time since{};              ///< The first of its kind.
    std::optional<Time> over;  ///< It was made good.
    std::uint32_t prepares = 0;
    std::uint32_t finals = 0;  ///< The last ones in a row that waiting does not mend.
  };

  using Entry = std::map<Host, Failure>::value_type;

  static std::string names_of(const std::vector<const Entry*>& entries) {
    std::string names;
    for (const Entry* entry : entries)
      names += fmt::format("{}{}", names.empty() ? "" : ", ", entry->first);
    return names;
  }

  /// A reason in words that fit other hosts too: without the host's name, and "it" for that name
  /// and for literal addresses within.
  static std::string without_host(const Host& host, std::string why) {
    const std::string written = to_string(host) + ": ";
    if (why.starts_with(written)) why.erase(0, written.size());
    std::string out;
    for (std::size_t at = 0; at < why.size();) {
      const std::size_t end = std::min(why.find_first_of(" ,;()", at), why.size());
      std::string_view word = std::string_view(why).substr(at, end - at);
      std::string_view tail;
      if (word.ends_with(':')) {
        tail = ":";
        word.remove_suffix(1);
      }
      const bool is_name = word == host.name || is_address(word);
      out += fmt::format("{}{}", is_name ? "it" : word, tail);
      if (end < why.size()) out += why[end];
      at = end + 1;
    }
    return out;
  }

  static bool is_address(std::string_view word) {
    const bool is_v4 = std::ranges::count(word, '.') == 3;
    const bool is_v6 = std::ranges::count(word, ':') >= 2;
    return (is_v4 || is_v6) &&
           word.find_first_not_of(is_v4 ? "0123456789." : "0123456789abcdef:") == word.npos;
  }

  Duration start_timeout_;
  std::optional<Time> hopeless_since_;
  std::map<Host, Failure> hosts_;
};

}  // namespace dt
