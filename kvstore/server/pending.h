/// Requests that wait until another worker has created their key, their chunk or the optimizer.
/// Their bytes are limited for each worker and for all together, whatever a worker sends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "kvstore/compute/payload.h"
#include "kvstore/protocol/messages.h"

namespace dt::kv {

class PendingRequests {
 public:
  struct Limits {
    std::size_t worker_bytes = std::size_t{64} << 20;  ///< Room for 380'000 requests of a worker.
    std::size_t all_bytes = std::size_t{512} << 20;
  };
  struct Frame {
    data::Header header;
    Payload payload;
  };

  explicit PendingRequests(Limits limits) : limits_(limits) {}
  /// False: a limit would be exceeded; the request is not kept.
  [[nodiscard]] bool put(const data::Header& header, Payload payload);
  /// Takes out all requests of `header`'s type; of a kInit, those for the same chunk.
  [[nodiscard]] std::vector<Frame> take(const data::Header& header) { return take(what(header)); }
  [[nodiscard]] std::vector<Frame> take_registrations() {
    return take(What(data::Type::kRegister, 0));
  }
  [[nodiscard]] std::vector<Frame> take_all();
  void forget(WorkerId worker);
  /// Calls `f(header)` for every request.
  template <class F>
  void each(F f) const {
    for (const auto& [what, frames] : frames_)
      for (const Frame& frame : frames) f(frame.header);
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  using What = std::pair<data::Type, std::uint64_t>;

  [[nodiscard]] static What what(const data::Header& header);
  [[nodiscard]] std::vector<Frame> take(const What& what);
  /// Bytes of a frame, with an allowance for the containers' overhead.
  [[nodiscard]] static std::size_t cost(const Frame& frame) {
    return 2 * sizeof(Frame) + frame.payload.size();
  }
  void leaves(const Frame& frame);

  Limits limits_;
  std::map<What, std::vector<Frame>> frames_;
  std::map<WorkerId, std::size_t> worker_bytes_;
  std::size_t bytes_ = 0;
};

}  // namespace dt::kv
