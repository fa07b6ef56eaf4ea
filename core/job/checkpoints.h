/// When the servers save a checkpoint, and which ones are valid. Pure; core/job/checkpoint_saver.h
/// acts.
///
///     idle --a boundary that is due--> saving --every server's file is there--> sealing --> idle
///                                         `--a server could not: given up--> idle
///
/// A boundary is due by its epoch's number, or by time: the first one after an epoch was trained,
/// then the first one after an interval that keeps the cost of saving below a twentieth of the
/// time. The boundary before the first epoch is never due: servers may hold no values yet. By time,
/// a boundary is due only while there is a place for checkpoints; by epochs, the user answers for
/// it.
///
/// Servers copy their values at the commit of a boundary, before any worker is released into the
/// epoch, and write them while it runs. Only a sealed checkpoint is valid. One is written at a
/// time: until it is done, boundaries that are due pass without one, even if the volume stalls.
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
  /// The checkpoint that is being written: the values at the beginning of `epoch`, copied at the
  /// commit of `generation`.
  struct Saving {
    Epoch epoch;
    Generation generation;
    std::map<ServerId, File> files;
    bool is_sealing = false;
    Time began{};
    bool is_late_noted = false;
  };

  struct Policy {
    std::uint32_t every = 0;  ///< Epochs between two, whatever the time; 0: not by epochs.
    Duration interval{};      ///< If not by epochs: the least time between two; 0: never.
    std::size_t keep = 2;     ///< How many of the newest valid ones are kept.
  };
  /// By time, the interval is at least so many times the duration of the last one.
  static constexpr int kLeastShare = 20;

  explicit Checkpoints(Policy policy) : policy_(policy) {}

  /// A checkpoint is due at the boundary before this epoch; never if the epoch begins again.
  [[nodiscard]] bool is_wanted(Epoch epoch, Time now) const;
  /// Sets why there is no place for checkpoints by time; empty: there is one. Until the first call
  /// none is saved by time. True: this is a change.
  [[nodiscard]] bool place_is(std::string why_not);
  /// Why there is no place; empty if there is one, or not known.
  [[nodiscard]] const std::string& no_place() const { return no_place_; }
  /// The size of the newest, all files together; 0: not known.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] std::size_t count() const { return whole_.size(); }
  /// A boundary that is due passes without a checkpoint because one is still being written. True:
  /// a note is due; by time, one for each checkpoint.
  [[nodiscard]] bool is_late();
  /// Nothing is being written.
  [[nodiscard]] bool is_idle() const { return !saving_; }
  [[nodiscard]] const std::optional<Saving>& saving() const { return saving_; }
  /// The epoch of the newest valid one.
  [[nodiscard]] std::optional<Epoch> newest() const {
    return whole_.empty() ? std::nullopt : std::optional(whole_.back());
  }
  /// The epoch of the newest valid one other than this.
  [[nodiscard]] std::optional<Epoch> newest_but(Epoch epoch) const;

  // In the journal.
  void begin(Epoch epoch, Generation generation, Time now);
  /// When the newest was begun, its duration and its size.
  void timed(Time began, Duration took, std::uint64_t bytes);
  void taken(Epoch epoch);
  /// That epoch begins again, from its checkpoint; the one being written is given up.
  void roll_back(Epoch epoch);
  /// It cannot be read: it is not valid any more.
  void damaged(Epoch epoch) { std::erase(whole_, epoch); }

  /// A server's file exists. True, once: the files of all `servers` servers exist, seal them.
  [[nodiscard]] bool add(ServerId server, Generation generation, File file, std::size_t servers);
  /// The checkpoint of that generation is being written.
  [[nodiscard]] bool is_about(Generation generation) const {
    return saving_ && saving_->generation == generation;
  }
  void give_up() { saving_.reset(); }

 private:
  Policy policy_;
  bool has_place_ = false;
  std::string no_place_;
  std::optional<Time> begun_at_;  ///< When the last one was begun.
  Duration took_{};
  std::uint64_t bytes_ = 0;
  std::optional<Saving> saving_;
  std::vector<Epoch> whole_;  ///< The valid ones, in ascending order.
  std::optional<Epoch> last_begun_;
};

}  // namespace dt
