/// One process's GPUs as a group: arrays of all of them are summed so that each has its own part of
/// the sum, and gathered again. With one GPU nothing is to be done, and NCCL is not needed.
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

/// What GPU `rank` of `ranks` carries of an array: parts of one size that begin at multiples of 16
/// bytes, and to the last also what is left over, less than 16 bytes a GPU.
[[nodiscard]] Part part_of(std::size_t elements, NcclType type, std::size_t ranks,
                           std::size_t rank);

/// One thread. The calling thread's current device is the same after each call. "" or one sentence;
/// after a failure all fails with that sentence until use() begins anew.
class LocalGroup {
 public:
  struct Options {
    std::string library;                         ///< NCCL's file; empty: libnccl.so.2.
    const NcclFunctions* functions = nullptr;    ///< Instead of a library; lives longer.
    std::chrono::milliseconds deadline{30'000};  ///< Of each wait; then all is aborted.
  };
  /// An array of one GPU, of as many elements as every other's, at a multiple of 16 bytes.
  struct Array {
    void* data = nullptr;
    Stream stream = nullptr;  ///< Of that GPU; what is done comes after what is on it now.
  };

  explicit LocalGroup(Options options) : options_(std::move(options)) {}

  /// The GPUs, different ones, in rank order. The same as before: nothing is done unless something
  /// had failed. Other ones: the communicators are made anew.
  [[nodiscard]] std::string use(const std::vector<int>& devices);
  [[nodiscard]] const std::vector<int>& devices() const { return devices_; }

  /// Puts on the streams, one array a GPU in rank order: each array's own part (part_of) becomes
  /// the sum over all arrays; the rest of it is not defined afterwards.
  [[nodiscard]] std::string reduce_scatter(const std::vector<Array>& arrays, std::size_t elements,
                                           NcclType type);
  /// Puts on the streams: every array becomes what the GPUs have in their own parts.
  [[nodiscard]] std::string all_gather(const std::vector<Array>& arrays, std::size_t elements,
                                       NcclType type);
  /// Until all that was put is done.
  [[nodiscard]] std::string wait();
  /// Whether anything has failed until now; does not wait.
  [[nodiscard]] std::string check();
  /// Gives up what is under way, which did not end within the deadline; that in words.
  [[nodiscard]] std::string give_up_late();
  /// Gives up what is under way.
  void abort();

 private:
  [[nodiscard]] std::string objection(const std::vector<Array>& arrays) const;
  [[nodiscard]] std::string record(const std::vector<Array>& arrays);

  Options options_;
  NcclFunctions opened_;
  std::vector<int> devices_;
  std::unique_ptr<NcclComms> comms_;          ///< None for one device.
  std::vector<std::unique_ptr<Event>> last_;  ///< Of what was put last, a rank each.
  const char* doing_ = "";
};

}  // namespace dt::kv::cuda
