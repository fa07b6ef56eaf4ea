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
  /// Without a known size of a checkpoint at least so much room is there.
  static constexpr std::uint64_t kLeastRoom = std::uint64_t{16} << 20;

  /// `hosts` are to see `file`, whose content is `word`. `is_local`: they all are this machine.
  CheckpointPlace(std::string file, std::string word, std::set<Host> hosts, bool is_local);

  [[nodiscard]] const std::string& file() const { return file_; }
  [[nodiscard]] const std::string& word() const { return word_; }
  /// The file is there (an empty text), or why it could not be written.
  void written(std::string why_not);
  [[nodiscard]] bool is_written() const { return not_written_ == ""; }
  /// What is to be run on this host, which is attached and knows of `known` alone; nothing if it
  /// has said, or is to say, what it sees, or is not asked. `id` becomes the process's.
  [[nodiscard]] std::optional<StartProcess> ask(const Host& host, std::uint32_t id,
                                                const std::vector<ProcessReport>& known);
  [[nodiscard]] bool is_ours(ProcessId process) const;
  /// Hosts that did not see the file may be asked again: a volume can come back. Returns them.
  std::vector<Host> look_again();
  void output(ProcessId process, std::string_view bytes);
  /// Where it was.
  Host ended(ProcessId process, ExitStatus status, const std::string& why);
  /// What is free on the volume, and what further checkpoints need.
  void room(std::uint64_t free, std::uint64_t needed);

  /// Empty: it is one. Nothing: that is not known yet.
  [[nodiscard]] std::optional<std::string> why_not() const;

 private:
  struct Look {
    std::uint32_t id = 0;
    bool is_asked = false;  ///< And has not said yet.
    bool is_due = false;    ///< What it said last is old.
    std::string text;
    std::optional<std::string> why_not;  ///< What it said last; empty: it sees the file.
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
