/// A process's output on its way to the supervisor: in order, bounded, the oldest dropped first.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

namespace dt::launcher {

class Spool {
 public:
  struct Piece {
    bool is_stderr = false;
    std::string bytes;
    std::uint64_t lost_before = 0;  ///< Bytes dropped since the piece before this one.
  };

  explicit Spool(std::size_t max_bytes) : max_bytes_(max_bytes) {}
  /// Never fails: makes room by dropping the oldest pieces.
  void push(bool is_stderr, std::string_view bytes);
  /// The oldest piece, at most kPieceSize bytes. Not when empty().
  [[nodiscard]] Piece pop();
  [[nodiscard]] bool empty() const { return pieces_.empty(); }
  /// Memory taken, at most max_bytes.
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

  static constexpr std::size_t kPieceSize = std::size_t{64} << 10;

 private:
  void drop_oldest();

  std::size_t max_bytes_;
  std::size_t bytes_ = 0;
  std::uint64_t lost_ = 0;
  std::deque<Piece> pieces_;
};

}  // namespace dt::launcher
