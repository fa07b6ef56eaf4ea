/// When the servers save a checkpoint, and which one counts. Pure; core/job.h acts.
///
///     idle --a boundary that is due--> saving --every server's file is there--> sealing --> idle
///                                         `--a server could not: given up--> idle
///
/// Servers save at the commit of a boundary, before anybody is released into the epoch, and write
/// while it runs. Only a sealed checkpoint counts. One at a time: while one is being written, be it
/// to a volume that stalls, a boundary that is due passes without.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/id.h"

namespace dt {

class Checkpoints {
 public:
  /// What a server wrote.
  struct File {
    std::uint64_t bytes = 0;
    std::uint32_t header_crc = 0;
    std::uint64_t step = 0;
  };
  /// What is being written: the values at the beginning of `epoch`, as the commit of `generation`
  /// found them.
  struct Saving {
    Epoch epoch;
    Generation generation;
    std::map<ServerId, File> files;
    bool is_sealing = false;
  };

  /// At every so many epochs; 0: never. The newest `keep` of those that count are kept.
  Checkpoints(std::uint32_t every, std::size_t keep) : every_(every), keep_(keep) {}

  /// The boundary before this epoch is one for a checkpoint. An epoch that begins once more is not.
  [[nodiscard]] bool is_wanted(Epoch epoch) const;
  /// Nothing is being written.
  [[nodiscard]] bool is_idle() const { return !saving_; }
  [[nodiscard]] const std::optional<Saving>& saving() const { return saving_; }
  /// Of the newest that is whole.
  [[nodiscard]] std::optional<Epoch> newest() const {
    return whole_.empty() ? std::nullopt : std::optional(whole_.back());
  }
  /// Of the newest that is whole but for this one.
  [[nodiscard]] std::optional<Epoch> newest_but(Epoch epoch) const;

  // In the journal.
  void begin(Epoch epoch, Generation generation);
  void taken(Epoch epoch);
  /// That epoch begins once more, from its checkpoint; what is being written is given up.
  void roll_back(Epoch epoch);
  /// It cannot be read: it counts no more.
  void damaged(Epoch epoch) { std::erase(whole_, epoch); }

  /// A server's file is there. True, once: all of `servers` files are, seal it.
  [[nodiscard]] bool add(ServerId server, Generation generation, File file, std::size_t servers);
  /// Only of that generation; false if it is not being written.
  [[nodiscard]] bool is_about(Generation generation) const {
    return saving_ && saving_->generation == generation;
  }
  void give_up() { saving_.reset(); }

 private:
  std::uint32_t every_;
  std::size_t keep_;
  std::optional<Saving> saving_;
  std::vector<Epoch> whole_;  ///< In their order, which is that of their epochs.
  std::optional<Epoch> last_begun_;
};

}  // namespace dt
