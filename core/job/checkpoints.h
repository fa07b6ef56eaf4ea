/// When the servers save a checkpoint, and which one counts. Pure; core/job/job.h acts.
///
///     idle --a boundary that is due--> saving --every server's file is there--> sealing --> idle
///                                         `--a server could not: given up--> idle
///
/// A boundary is due by its epoch's number, or by time: the first one behind an epoch that was
/// trained, then the first one after a while, which is long enough for saving to cost a twentieth
/// of the time at most. Not the one before the first epoch: servers may hold nothing by then. By
/// time only while there is a place for checkpoints; by epochs whoever asked for it knows.
///
/// Servers save at the commit of a boundary, before anybody is released into the epoch, and write
/// while it runs. Only a sealed checkpoint counts. One at a time: while one is being written, be it
/// to a volume that stalls, a boundary that is due passes without.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/id.h"
#include "core/base/time.h"

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
    Time began{};
    bool is_late_noted = false;
  };

  struct Policy {
    std::uint32_t every = 0;  ///< At every so many epochs, at any time; 0: not by epochs.
    Duration interval{};      ///< Where not by epochs: at least so long apart; 0: never.
    std::size_t keep = 2;     ///< The newest of those that count are kept.
  };
  /// Between two begins by time: so many times what the last one took.
  static constexpr int kLeastShare = 20;

  explicit Checkpoints(Policy policy) : policy_(policy) {}

  /// The boundary before this epoch is one for a checkpoint. An epoch that begins once more is not.
  [[nodiscard]] bool is_wanted(Epoch epoch, Time now) const;
  /// By time, whether there is a place, and why not; empty: there is. Nothing is saved before.
  /// True: that is news.
  [[nodiscard]] bool place_is(std::string why_not);
  /// Why there is no place, if it is known that there is none.
  [[nodiscard]] const std::string& no_place() const { return no_place_; }
  /// Of the newest, all files together; 0: none is known of.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] std::size_t count() const { return whole_.size(); }
  /// A boundary that is due passes without, for the last one is still being written. True: a
  /// note is due; by time, one for each checkpoint.
  [[nodiscard]] bool is_late();
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
  void begin(Epoch epoch, Generation generation, Time now);
  /// The newest was begun then, took so long and is so large.
  void timed(Time began, Duration took, std::uint64_t bytes);
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
  Policy policy_;
  bool has_place_ = false;
  std::string no_place_;
  std::optional<Time> begun_at_;  ///< The last one of all.
  Duration took_{};
  std::uint64_t bytes_ = 0;
  std::optional<Saving> saving_;
  std::vector<Epoch> whole_;  ///< In their order, which is that of their epochs.
  std::optional<Epoch> last_begun_;
};

}  // namespace dt
