/// Weights in a file of the safetensors format (a JSON header, then raw numbers), which Python
/// reads with safetensors.torch.load_file. Needs no libtorch.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/result.h"

namespace dt::train {

struct NamedArray {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> values;  ///< As many as the shape's product.
};

/// "PREFIX-0003.safetensors": the weights after three epochs.
[[nodiscard]] std::filesystem::path checkpoint_path(const std::string& prefix,
                                                    std::uint32_t epochs);

/// "PREFIX-0003.optimizer.safetensors": the optimizer's state then.
[[nodiscard]] std::filesystem::path optimizer_path(const std::string& prefix, std::uint32_t epochs);

using Metadata = std::map<std::string, std::string>;

/// Writes the whole file or none: a temporary file next to `path`, synced to the disk, then
/// renamed.
[[nodiscard]] Result<void> save_checkpoint(const std::filesystem::path& path,
                                           const std::vector<NamedArray>& arrays,
                                           const Metadata& metadata = {});

/// Errors name the file and the cause. `metadata`, if given, becomes the file's.
[[nodiscard]] Result<std::vector<NamedArray>> load_checkpoint(const std::filesystem::path& path,
                                                              Metadata* metadata = nullptr);

/// Writes checkpoints on a thread of its own, in order, so that a slow volume delays no step. Its
/// end waits until everything was written, however slow the volume: the weights are the job's
/// result.
class CheckpointWriter {
 public:
  CheckpointWriter() : thread_([this](std::stop_token ending) { write_all(ending); }) {}
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// False if kMaxWaiting are not written yet; the checkpoint is then dropped.
  bool submit(std::filesystem::path path, std::vector<NamedArray> arrays, Metadata metadata = {});
  /// The messages since the last call, a line each.
  std::vector<std::string> take_messages();
  /// Waits until everything was written.
  void flush();

  static constexpr std::size_t kMaxWaiting = 8;

 private:
  struct File {
    std::filesystem::path path;
    std::vector<NamedArray> arrays;
    Metadata metadata;
  };

  void write_all(const std::stop_token& ending);

  std::mutex mutex_;  ///< Protects all members below but the thread.
  std::condition_variable_any changed_;
  std::deque<File> waiting_;  ///< The first is being written.
  std::vector<std::string> messages_;
  std::jthread thread_;
};

}  // namespace dt::train
