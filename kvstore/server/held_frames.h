/// Frames of generations whose commit has not arrived here yet, in the order of their arrival. They
/// wait for it until a deadline, in bounded memory.
#pragma once

#include <algorithm>
#include <iterator>
#include <vector>

#include "core/base/time.h"
#include "kvstore/server/chunk_value.h"

namespace dt::kv {

class HeldFrames {
 public:
  struct Frame {
    Time deadline;
    data::Header header;
    Payload payload;
    SharedBuffers shared;
  };

  explicit HeldFrames(std::size_t most_bytes) : most_bytes_(most_bytes) {}
  /// Whether one more frame with so many bytes may be held.
  [[nodiscard]] bool has_room(std::size_t payload) const { return bytes_ + payload <= most_bytes_; }
  void hold(Frame frame) {
    bytes_ += sizeof frame + frame.payload.size();
    frames_.push_back(std::move(frame));
  }
  /// Takes out the frames of this generation and of earlier ones.
  std::vector<Frame> take(Generation generation) {
    return take_if([&](const Frame& frame) { return frame.header.generation <= generation; });
  }
  /// Takes out the frames whose deadline has come.
  std::vector<Frame> expire(Time now) {
    return take_if([&](const Frame& frame) { return frame.deadline <= now; });
  }
  void disconnect(WorkerId worker) {
    take_if([&](const Frame& frame) { return frame.header.worker == worker; });
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  template <class F>
  std::vector<Frame> take_if(F is_due) {
    const auto due = std::stable_partition(frames_.begin(), frames_.end(),
                                           [&](const Frame& frame) { return !is_due(frame); });
    std::vector<Frame> taken(std::make_move_iterator(due), std::make_move_iterator(frames_.end()));
    frames_.erase(due, frames_.end());
    for (const Frame& frame : taken) bytes_ -= sizeof frame + frame.payload.size();
    return taken;
  }

  std::size_t most_bytes_;
  std::size_t bytes_ = 0;
  std::vector<Frame> frames_;
};

}  // namespace dt::kv
