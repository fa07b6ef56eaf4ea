#include "launcher/spool.h"

#include <algorithm>
#include <utility>

namespace dt::launcher {

namespace {
/// What a piece costs beside its bytes, so that many tiny ones are bounded too.
constexpr std::size_t kPieceCost = 64;
}  // namespace

void Spool::drop_oldest() {
  lost_ += pieces_.front().bytes.size();
  bytes_ -= pieces_.front().bytes.size() + kPieceCost;
  pieces_.pop_front();
}

void Spool::push(bool is_stderr, std::string_view bytes) {
  while (!bytes.empty()) {
    const bool joins = !pieces_.empty() && pieces_.back().is_stderr == is_stderr &&
                       pieces_.back().bytes.size() < kPieceSize;
    if (!joins) {
      pieces_.push_back(Piece{is_stderr, {}, 0});
      bytes_ += kPieceCost;
    }
    std::string& last = pieces_.back().bytes;
    const std::size_t n = std::min(bytes.size(), kPieceSize - last.size());
    last.append(bytes.substr(0, n));
    bytes_ += n;
    bytes.remove_prefix(n);
    while (bytes_ > max_bytes_ && pieces_.size() > 1) drop_oldest();
  }
}

Spool::Piece Spool::pop() {
  Piece piece = std::move(pieces_.front());
  pieces_.pop_front();
  bytes_ -= piece.bytes.size() + kPieceCost;
  piece.lost_before = std::exchange(lost_, 0);
  return piece;
}

}  // namespace dt::launcher
