/// Whether the job folder is a place for checkpoints: a volume that every base host sees, with room
/// for them. Proved by a file with a random word that the supervisor writes and a process on each
/// host reads, so that an agent never waits for the volume. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/protocol/control_messages.h"

namespace dt::supervisor {

class CheckpointPlace {
 public:
  /// Least free space while the size of a checkpoint is unknown.
  static constexpr std::uint64_t kLeastRoom = std::uint64_t{16} << 20;

  /// `hosts` must see `file` with the content `word`. `is_local`: all are this machine.
  CheckpointPlace(std::string file, std::string word, std::set<Host> hosts, bool is_local);

  [[nodiscard]] const std::string& file() const { return file_; }
  [[nodiscard]] const std::string& word() const { return word_; }
  /// The file is there (an empty text), or why it could not be written.
  void written(std::string why_not) { not_written_ = std::move(why_not); }
  [[nodiscard]] bool is_written() const { return not_written_ == ""; }
  /// The process to start on this host to look for the file; its agent is attached and reports only
  /// `known`. nullopt if the host has answered, is answering, or is not asked. `id` becomes the
  /// process's.
  [[nodiscard]] std::optional<StartProcess> ask(const Host& host, std::uint32_t id,
                                                const std::vector<ProcessReport>& known);
  [[nodiscard]] bool is_ours(ProcessId process) const;
  /// Lets hosts that did not see the file check again, since a volume can come back. Returns them.
  std::vector<Host> look_again();
  void output(ProcessId process, std::string_view bytes);
  /// Returns the host of the process.
  Host ended(ProcessId process, ExitStatus status, const std::string& why);
  /// Sets the free space on the volume, and the space that further checkpoints need.
  void room(std::uint64_t free, std::uint64_t needed);

  /// Why it is no place for checkpoints; empty if it is one, nullopt if unknown yet.
  [[nodiscard]] std::optional<std::string> why_not() const;

 private:
  struct Look {
    std::uint32_t id = 0;
    bool is_asked = false;  ///< Asked, and has not answered yet.
    bool is_due = false;    ///< Its last answer is old.
    std::string text;
    std::optional<std::string> why_not;  ///< Its last answer; empty: it sees the file.
  };
  std::string file_;
  std::string word_;
  std::set<Host> hosts_;
  bool is_local_;
  std::optional<std::string> not_written_;
  std::map<Host, Look> looks_;
  std::optional<std::string> no_room_;
};

}  // namespace dt::supervisor
