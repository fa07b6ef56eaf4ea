/// When an edit of host_worker counts. Pure: observations and the time go in, a decision comes out.
///
/// The file is edited by any program, from any client of the shared volume, at any moment, and is
/// seen half-written. So a content counts only when it was seen unchanged for a while: 200 ms, or 3
/// s if it does not look finished (no newline at its end, empty, gone, unreadable: "10.0.1" is a
/// legal half of "10.0.1.9", and an editor may empty or move the file before it writes).
/// What is unusable then is refused as a whole; the last accepted list stays.
///
///               differs            seen long enough
///     settled ----------> settling ----------------> settled: accepted, refused or cleared
///                           ^  | differs again
///                           `--'
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/base/time.h"
#include "core/files/hosts.h"

namespace dt {

/// One open + read + close of the file.
struct Observation {
  enum class Kind { kContent, kAbsent, kUnreadable };
  Kind kind = Kind::kContent;
  std::string text;  ///< The content, or why it could not be read.

  friend bool operator==(const Observation&, const Observation&) = default;
};

/// A new wanted list.
struct FileAccepted {
  std::string text;
  std::vector<HostLine> lines;  ///< Never empty.
};

/// The content is unusable; reported once per change. `why` is a sentence for the console.
struct FileRefused {
  std::string why;
};

/// After a refusal the file is again as it was last accepted.
struct FileCleared {};

using FileWatchResult = std::variant<std::monostate, FileAccepted, FileRefused, FileCleared>;

class FileWatch {
 public:
  struct Options {
    Duration settle = std::chrono::milliseconds(200);
    Duration settle_unfinished = std::chrono::seconds(3);
    Duration poll = std::chrono::seconds(1);
    std::string name = "host_worker";  ///< For messages.
  };

  /// `accepted`: the text in force now, which the supervisor wrote or journalled.
  FileWatch(std::string accepted, Options options);

  /// `now` is when the read ended; it never goes back.
  [[nodiscard]] FileWatchResult observe(Observation seen, Time now);
  /// When the file should be read again: earlier than the next poll while a change settles.
  [[nodiscard]] Time next_look(Time now) const;
  [[nodiscard]] bool settling() const { return !judged_; }
  /// The text of the list in force.
  [[nodiscard]] const std::string& accepted_text() const { return accepted_; }
  /// Why the present content is not in force; for status.
  [[nodiscard]] const std::optional<std::string>& refusal() const { return refusal_; }

 private:
  [[nodiscard]] Duration needed() const;
  [[nodiscard]] FileWatchResult judge();
  [[nodiscard]] FileWatchResult refuse(std::string why);

  Options options_;
  std::string accepted_;
  std::optional<std::string> refusal_;
  Observation seen_;     ///< The latest observation,
  Time since_;           ///< unchanged since then,
  bool judged_ = false;  ///< and already acted upon.
};

}  // namespace dt
