/// A process's output on its way to the supervisor: in order, bounded, the oldest dropped first.
/// What was handed out is kept for a while, since a link that breaks loses what was in flight.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "core/protocol/control_messages.h"

namespace dt::launcher {

class Spool {
 public:
  struct Piece {
    bool is_stderr = false;
    std::string bytes;
    std::uint64_t offset = 0;       ///< Position of its first byte in all output of the process.
    std::uint64_t lost_before = 0;  ///< Bytes missing since the piece handed out before.
    OutputLoss why_lost = OutputLoss::kLink;

    [[nodiscard]] std::uint64_t end() const { return offset + bytes.size(); }
  };

  /// `max_bytes`: what waits; `max_kept`: what was handed out and may be wanted again.
  Spool(std::size_t max_bytes, std::size_t max_kept) : max_bytes_(max_bytes), max_kept_(max_kept) {}
  /// Never fails: makes room by dropping the oldest pieces, for the reason given.
  void push(bool is_stderr, std::string_view bytes, OutputLoss why_lost = OutputLoss::kLink);
  /// The oldest piece, at most so many bytes of it. Not when empty().
  [[nodiscard]] Piece pop(std::size_t most = kPieceSize);
  /// Drops what waits: an empty piece that tells how much is missing.
  [[nodiscard]] Piece drop();
  /// Hands out again what comes from `offset` on, as far as it is kept. There is room for that.
  void rewind(std::uint64_t offset);
  /// The reason for what was dropped while there was no link.
  void link_was_down(OutputLoss why) {
    if (why_lost_ == OutputLoss::kLink) why_lost_ = why;
  }
  [[nodiscard]] bool empty() const { return waiting_.empty(); }
  /// Memory taken by what waits.
  [[nodiscard]] std::size_t bytes() const { return waiting_bytes_; }

  static constexpr std::size_t kPieceSize = std::size_t{64} << 10;

 private:
  std::size_t max_bytes_;
  std::size_t max_kept_;
  std::deque<Piece> waiting_;
  std::deque<Piece> kept_;
  std::size_t waiting_bytes_ = 0;
  std::size_t kept_bytes_ = 0;
  std::size_t rewound_bytes_ = 0;  ///< Room beyond max_bytes_, until less than that waits.
  OutputLoss why_lost_ = OutputLoss::kLink;
  std::uint64_t written_ = 0;   ///< Bytes, by the process.
  std::uint64_t position_ = 0;  ///< Where the next piece would begin if nothing was dropped.
};

}  // namespace dt::launcher
