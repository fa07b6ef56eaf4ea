/// Output that waits for the shared volume: bounded memory, and the fewer appends per byte the
/// longer it waits. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/time.h"

namespace dt::supervisor {

/// The line in a file for output that is missing there.
[[nodiscard]] std::string missing_mark(std::uint64_t bytes, std::string_view why);

/// The output of one file is taken in the order in which it was added. What is added while the
/// file's last append waits becomes part of that append, up to a bound. Of several files the one
/// whose append has waited longest comes first.
class OutputQueue {
 public:
  struct Append {
    std::string path;
    std::string bytes;
    std::uint64_t limit = 0;  ///< See VolumeClient::queue_append.
    Time since{};             ///< When its first byte was added.
    std::size_t mark = 0;     ///< Bytes at its begin that tell what is missing.
  };

  /// Longest append that others are merged into. A queue for less memory merges less.
  /// A volume of 0.2 MB/s takes it within OutputMotion::kStall.
  static constexpr std::size_t kMostMerged = std::size_t{256} << 10;

  /// `most`: bytes of memory for what waits, with all that is kept beside the output itself.
  explicit OutputQueue(std::size_t most) : most_(most) {}

  /// Over the bound the oldest appends are dropped, as by lose(). Returns them.
  std::vector<Append> add(const std::string& path, std::string bytes, std::uint64_t limit,
                          Time now);
  /// So many bytes of this file are missing: its next append begins with a line that says so, and
  /// why.
  void lose(const std::string& path, std::size_t bytes, const std::string& why);

  [[nodiscard]] bool empty() const { return appends_.empty(); }
  /// The oldest append; empty() is false.
  [[nodiscard]] Append take();
  /// The oldest append of this file, which has one.
  [[nodiscard]] Append take(const std::string& path);

  /// Number of appends.
  [[nodiscard]] std::size_t length() const { return appends_.size(); }
  /// Bytes of output.
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  /// Bytes of memory that the appends need.
  [[nodiscard]] std::size_t memory() const { return memory_; }
  /// When the oldest output was added; nothing: none waits.
  [[nodiscard]] std::optional<Time> oldest() const;
  /// The same for one file.
  [[nodiscard]] std::optional<Time> oldest(const std::string& path) const;
  [[nodiscard]] std::uint64_t dropped_bytes() const { return dropped_bytes_; }

 private:
  using Appends = std::list<Append>;
  using Files = std::map<std::string, std::deque<Appends::iterator>>;

  [[nodiscard]] bool can_merge(const Append& last, std::size_t more, std::uint64_t limit) const;
  [[nodiscard]] static std::size_t memory_of(const Append& append);
  [[nodiscard]] Append remove(Files::iterator file);

  std::size_t most_;
  Appends appends_;  ///< By the time of their first byte.
  Files files_;      ///< The appends of each file, in order.
  struct Lost {
    std::uint64_t bytes = 0;
    std::string why;
  };
  std::map<std::string, Lost> lost_;  ///< By path, not yet reported in the file.
  std::size_t bytes_ = 0;
  std::size_t memory_ = 0;
  std::uint64_t dropped_bytes_ = 0;
};

/// Whether the volume takes output. Pure.
class OutputMotion {
 public:
  static constexpr Duration kStall = std::chrono::seconds(2);

  /// Output waits, and none did before.
  void began(Time now) { moved_at_ = now; }
  /// An append has ended.
  void moved(Time now) {
    if (now - moved_at_ >= kStall) last_stall_ = now - moved_at_;
    moved_at_ = now;
  }
  /// While output waits.
  [[nodiscard]] Duration still_for(Time now) const { return now - moved_at_; }
  [[nodiscard]] bool is_stalled(Time now) const { return still_for(now) >= kStall; }
  [[nodiscard]] Duration last_stall() const { return last_stall_; }

 private:
  Time moved_at_{};
  Duration last_stall_{};
};

/// Whether output waits too long: it begins above one age and is over below a lower one. Pure.
class OutputDelay {
 public:
  static constexpr Duration kTooLong = std::chrono::seconds(10);
  static constexpr Duration kOver = std::chrono::seconds(2);

  enum class News { kNone, kBegins, kOver };
  /// `age`: of the oldest output that waits; 0 without any.
  [[nodiscard]] News look(Duration age) {
    const bool is_late = is_late_ ? age > kOver : age >= kTooLong;
    if (std::exchange(is_late_, is_late) == is_late) return News::kNone;
    return is_late ? News::kBegins : News::kOver;
  }

 private:
  bool is_late_ = false;
};

}  // namespace dt::supervisor
