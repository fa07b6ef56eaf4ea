#include "launcher/agent/spool.h"

#include <algorithm>
#include <utility>

namespace dt::launcher {

namespace {

/// Its bytes and a fixed overhead, so that many tiny pieces are bounded too.
std::size_t cost(const Spool::Piece& piece) { return piece.bytes.size() + 64; }

}  // namespace

void Spool::push(bool is_stderr, std::string_view bytes, OutputLoss why_lost) {
  while (!bytes.empty()) {
    const bool joins = !waiting_.empty() && waiting_.back().is_stderr == is_stderr &&
                       waiting_.back().bytes.size() < kPieceSize;
    if (!joins) {
      waiting_.push_back(Piece{is_stderr, {}, written_, 0});
      waiting_bytes_ += cost(waiting_.back());
    }
    std::string& last = waiting_.back().bytes;
    const std::size_t n = std::min(bytes.size(), kPieceSize - last.size());
    last.append(bytes.substr(0, n));
    written_ += n;
    waiting_bytes_ += n;
    bytes.remove_prefix(n);
    while (waiting_bytes_ > max_bytes_ + rewound_bytes_ && waiting_.size() > 1) {
      why_lost_ = why_lost;
      waiting_bytes_ -= cost(waiting_.front());
      waiting_.pop_front();
    }
  }
}

Spool::Piece Spool::pop(std::size_t most) {
  Piece& first = waiting_.front();
  waiting_bytes_ -= cost(first);
  Piece piece = std::move(first);
  if (piece.bytes.size() <= most) {
    waiting_.pop_front();
  } else {
    first = {piece.is_stderr, piece.bytes.substr(most), piece.offset + most, 0};
    waiting_bytes_ += cost(first);
    piece.bytes.resize(most);
  }
  if (waiting_bytes_ <= max_bytes_) rewound_bytes_ = 0;
  piece.lost_before = piece.offset - std::exchange(position_, piece.end());
  piece.why_lost = why_lost_;
  kept_.push_back(piece);
  kept_bytes_ += cost(piece);
  while (kept_bytes_ > max_kept_) {
    kept_bytes_ -= cost(kept_.front());
    kept_.pop_front();
  }
  return piece;
}

Spool::Piece Spool::drop() {
  Piece end{false, {}, written_, written_ - std::exchange(position_, written_), why_lost_};
  waiting_.clear();
  waiting_bytes_ = rewound_bytes_ = 0;
  return end;
}

void Spool::rewind(std::uint64_t offset) {
  if (offset > position_) return;
  position_ = offset;
  while (!kept_.empty() && kept_.back().end() > offset) {
    Piece piece = std::move(kept_.back());
    kept_.pop_back();
    kept_bytes_ -= cost(piece);
    if (piece.offset < offset) {
      piece.bytes.erase(0, static_cast<std::size_t>(offset - piece.offset));
      piece.offset = offset;
    }
    waiting_bytes_ += cost(piece);
    rewound_bytes_ += cost(piece);
    waiting_.push_front(std::move(piece));
  }
}

}  // namespace dt::launcher
