/// One process's GPUs as a group: sums arrays of all GPUs so that each GPU has its own part of the
/// sum, and gathers the parts again. With one GPU it does nothing, and does not need NCCL.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "kvstore/compute/cuda/nccl.h"

namespace dt::kv::cuda {

/// Elements of an array, by number.
struct Part {
  std::size_t begin = 0;
  std::size_t size = 0;
};
inline bool operator==(const Part& a, const Part& b) {
  return a.begin == b.begin && a.size == b.size;
}

/// The part of an array that GPU `rank` of `ranks` carries: parts of one size that begin at
/// multiples of 16 bytes; the last part also has the remainder, less than 16 bytes per GPU.
[[nodiscard]] Part part_of(std::size_t elements, NcclType type, std::size_t ranks,
                           std::size_t rank);

/// One thread. The calling thread's current device is the same after each call. Calls return "" or
/// one sentence; after a failure all calls fail with that sentence until use() starts again.
class LocalGroup {
 public:
  struct Options {
    std::string library{};                       ///< NCCL's file; empty: libnccl.so.2.
    const NcclFunctions* functions = nullptr;    ///< Instead of a library; lives longer.
    std::chrono::milliseconds deadline{30'000};  ///< For each wait; then all calls are aborted.
  };
  /// An array of one GPU, of as many elements as every other's, at a multiple of 16 bytes.
  struct Array {
    void* data = nullptr;
    Stream stream = nullptr;  ///< On that GPU; the work comes after what is on the stream now.
  };

  explicit LocalGroup(Options options) : options_(std::move(options)) {}

  /// Sets the GPUs, all different, in rank order. For the same GPUs as before it does nothing,
  /// unless a call has failed. For others it creates new communicators.
  [[nodiscard]] std::string use(const std::vector<int>& devices);
  [[nodiscard]] const std::vector<int>& devices() const { return devices_; }

  /// Puts on the streams, for one array per GPU in rank order: each array's own part (part_of)
  /// becomes the sum over all arrays; the rest of the array is undefined afterwards.
  [[nodiscard]] std::string reduce_scatter(const std::vector<Array>& arrays, std::size_t elements,
                                           NcclType type) {
    return exchange(arrays, elements, type, true);
  }
  /// Puts on the streams: every array gets the own parts of all GPUs.
  [[nodiscard]] std::string all_gather(const std::vector<Array>& arrays, std::size_t elements,
                                       NcclType type) {
    return exchange(arrays, elements, type, false);
  }
  /// Waits until all calls on the streams are done.
  [[nodiscard]] std::string wait();
  /// The failure so far; does not wait.
  [[nodiscard]] std::string check();
  /// Aborts the calls under way, which did not end within the deadline; returns the error.
  [[nodiscard]] std::string give_up_late();
  /// Aborts the calls under way.
  void abort();

 private:
  [[nodiscard]] std::string exchange(const std::vector<Array>& arrays, std::size_t elements,
                                     NcclType type, bool is_sum);
  [[nodiscard]] std::string objection(const std::vector<Array>& arrays) const;
  [[nodiscard]] std::string record(const std::vector<Array>& arrays);

  Options options_;
  NcclFunctions opened_;
  std::vector<int> devices_;
  std::unique_ptr<NcclComms> comms_;          ///< None for one device.
  std::vector<std::unique_ptr<Event>> last_;  ///< After the last call on the streams, one per rank.
  const char* doing_ = "";
};

}  // namespace dt::kv::cuda
