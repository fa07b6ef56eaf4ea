/// Trains a network through a kvstore, epoch by epoch, while the world may grow and shrink.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "trainer/data/iterator.h"
#include "trainer/devices.h"
#include "trainer/lr_schedule.h"

namespace dt::train {

class Network;  // trainer/models/network.h
struct ModuleParts;

struct BatchEnd {
  std::uint32_t epoch = 0;
  std::uint32_t step = 0;  ///< Within the epoch, from 0.
  std::uint32_t samples = 0;
  float loss = 0;
  std::int64_t begin_ns = 0;  ///< Monotonic clock, before the batch was fetched.
  std::int64_t end_ns =
      0;  ///< After its gradients left; without overlap, after the new weights came.
};

struct EpochEnd {
  std::uint32_t epoch = 0;
  std::uint32_t rank = 0;
  std::uint32_t num_workers = 1;
  bool is_lead = false;
  std::uint64_t samples = 0;  ///< Of this worker, as the next five.
  std::uint32_t steps = 0;
  double seconds = 0;  ///< Of its steps.
  double train_accuracy = 0;
  double train_loss = 0;
  float learning_rate = 0;        ///< Of the last step.
  std::uint64_t job_samples = 0;  ///< Of all workers together.
  double job_seconds = 0;         ///< Until all of them had made their steps.
  /// Of the whole eval set, all workers together, and of the model that is saved; -1: none.
  double eval_accuracy = -1;
  double eval_loss = -1;
  std::int64_t end_ns = 0;  ///< Monotonic clock, evaluation included.
};

/// What a module makes of a set.
struct Evaluation {
  std::uint64_t samples = 0;
  std::uint64_t right = 0;  ///< The class with the highest score is the sample's.
  double mean_loss = 0;     ///< Cross entropy.
};

/// What a boundary brought, and when.
struct BoundaryEnd {
  bool left = false;  ///< Told to leave; the view is not set.
  dtkv_view view{};
  std::int64_t enter_ns = 0;
  std::int64_t leave_ns = 0;
};

struct FitOptions {
  std::uint32_t begin_epoch = 0;
  std::uint32_t num_epochs = 1;  ///< Epochs begin_epoch..num_epochs-1.
  LrOptions learning_rate{};
  std::string optimizer = "sgd momentum=0.9";  ///< As dtkv_set_optimizer has it.
  std::string compression = "none";            ///< As dtkv_set_gradient_compression has it.
  /// Gradients leave while backward runs, new weights arrive while the next step begins. Without:
  /// all gradients after backward, and a wait for all weights. The weights are the same.
  bool overlap = true;
  std::uint32_t disp_batches = 50;  ///< A progress line every so many steps; 0: none.
  std::string model_prefix{};       ///< Checkpoints PREFIX-0001.safetensors ...; empty: none.
  /// Progress lines, whole, without newline; the default writes to stdout and flushes.
  std::function<void(std::string_view)> say{};
  /// All on the thread that called fit; may be empty.
  std::function<void(const BoundaryEnd&)> on_boundary{};
  std::function<void(const BatchEnd&)> on_batch_end{};
  std::function<void(const EpochEnd&)> on_epoch_end{};
};

enum class FitEnd {
  kFinished,  ///< All epochs are done.
  kLeft,      ///< The worker was removed: end the program with exit code 0.
};

class Module {
 public:
  /// The network's weights are the initial ones where this worker is the lead of a new job.
  explicit Module(std::shared_ptr<Network> network);
  /// The same network several times, each on a device of this process. Each gets a part of every
  /// batch, by the proportions of `loads` (one each), and they are one worker: the gradient is that
  /// of the batch. Evaluation, checkpoints and initial weights are the first one's.
  Module(std::vector<std::shared_ptr<Network>> replicas, std::vector<double> loads);
  ~Module();
  Module(Module&&) noexcept;

  /// Trains. At each epoch's start all workers meet in an epoch boundary; there this one may get
  /// another rank, see another world size, or be told to leave; a newcomer begins with the epoch
  /// the others are at. When servers are lost, epochs run again. Blocks until the end.
  [[nodiscard]] Result<FitEnd> fit(dtkv::KVStore& kv, BaseDataIterator& data,
                                   const FitOptions& options);

  /// The rest of `data`, with the weights and BatchNorm statistics as they are.
  [[nodiscard]] Result<Evaluation> evaluate(BatchIterator& data) const;

  /// Weights and BatchNorm statistics to and from a checkpoint. Names and shapes must match.
  [[nodiscard]] Result<void> save(const std::string& path) const;
  [[nodiscard]] Result<void> load(const std::string& path);

  [[nodiscard]] std::uint64_t num_parameters() const;

 private:
  std::unique_ptr<ModuleParts> parts_;
};

/// Threads of one operation, as OMP_NUM_THREADS says; unset: libtorch's choice.
void set_threads_from_environment();

/// "" where libtorch can train on these CUDA devices, else one sentence that says why not.
[[nodiscard]] std::string why_not(const std::vector<DeviceNumber>& devices);
/// Moves a network's parameters and buffers to a device.
void move_to(Network& network, DeviceNumber device);

}  // namespace dt::train
