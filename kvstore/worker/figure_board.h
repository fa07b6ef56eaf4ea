/// The worker's figures for people (Figures): what its program reports, and the samples of its
/// pushes.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "core/base/time.h"
#include "core/protocol/control_messages.h"
#include "kvstore/store.h"
#include "kvstore/worker/links/request.h"

namespace dt::kv {

class FigureBoard {
 public:
  // ---- the caller's thread
  /// A call pushes `key` before its other keys. The samples of a step count once, however many
  /// calls push its keys: with the key that was pushed first of all.
  void pushed(const std::string& key, std::uint64_t samples);

  // ---- the loop
  /// False, once for each name: it is a new one, and there are 32 already.
  [[nodiscard]] bool report(const std::string& name, const Figure& value);
  /// The store's own, beside those that the program reports.
  void own(const std::string& name, double value);
  /// What Figures::waits_key and waits_in say. Null: nothing.
  void waits(const Request* request);
  /// All figures, if one has changed since the last call. `waited`: Figures::waited_ns.
  [[nodiscard]] std::optional<Figures> take(Duration waited = {});

 private:
  std::string counted_key_;  ///< The caller's.
  std::atomic<std::uint64_t> samples_ = 0;
  std::atomic<std::uint64_t> steps_ = 0;

  // The loop's.
  std::map<std::string, Figure> values_;
  std::map<std::string, double> own_;
  std::set<std::string> refused_;
  std::uint64_t steps_in_epoch_ = 0;
  std::uint64_t dropped_ = 0;
  std::uint64_t samples_taken_ = 0;
  Duration waited_taken_{};
  KeyId waits_key_;
  std::string waits_in_;
  bool has_changed_ = false;
};

}  // namespace dt::kv
