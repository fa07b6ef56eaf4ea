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
      0;  ///< After its gradients were sent; without overlap, after the new weights arrived.
};

struct EpochEnd {
  std::uint32_t epoch = 0;
  std::uint32_t rank = 0;
  std::uint32_t num_workers = 1;
  bool is_lead = false;
  std::uint64_t samples = 0;  ///< This worker's, as are the next five members.
  std::uint32_t steps = 0;
  double seconds = 0;  ///< Duration of its steps.
  double train_accuracy = 0;
  double train_loss = 0;
  float learning_rate = 0;        ///< The last step's.
  std::uint64_t job_samples = 0;  ///< Samples of all workers together.
  double job_seconds = 0;         ///< Until all workers had made their steps.
  /// On the whole eval set, by all workers together, with the model that is saved; -1: none.
  double eval_accuracy = -1;
  double eval_loss = -1;
  std::int64_t end_ns = 0;  ///< Monotonic clock, evaluation included.
};

/// A module's results on a data set.
struct Evaluation {
  std::uint64_t samples = 0;
  std::uint64_t right = 0;  ///< Samples whose class has the highest score.
  double mean_loss = 0;     ///< Cross entropy.
};

/// A boundary's result and times.
struct BoundaryEnd {
  bool left = false;  ///< The worker must leave; the view is not set.
  dtkv_view view{};
  std::int64_t enter_ns = 0;
  std::int64_t leave_ns = 0;
};

struct FitOptions {
  std::uint32_t begin_epoch = 0;
  std::uint32_t num_epochs = 1;  ///< Epochs begin_epoch..num_epochs-1.
  LrOptions learning_rate{};
  std::string optimizer = "sgd momentum=0.9";  ///< Argument of dtkv_set_optimizer.
  std::string compression = "none";            ///< Argument of dtkv_set_gradient_compression.
  /// Gradients are sent while backward runs, new weights arrive while the next step begins. False:
  /// all gradients are sent after backward, then the step waits for all weights. The weights are
  /// the same.
  bool overlap = true;
  std::uint32_t disp_batches = 50;  ///< Steps between progress lines; 0: none.
  /// Checkpoints PREFIX-0001.safetensors and PREFIX-0001.optimizer.safetensors ...; empty: none.
  std::string model_prefix{};
  /// The optimizer's state that a new job begins with, as written with model_prefix; empty: zeros.
  /// A file that is missing or of another optimizer is reported, and training begins with zeros.
  std::string optimizer_state{};
  /// Progress lines, whole, without newline; the default writes to stdout and flushes.
  std::function<void(std::string_view)> say{};
  /// Called on the thread that called fit; may be empty.
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
  /// If this worker is the lead of a new job, the network's weights are the job's initial weights.
  explicit Module(std::shared_ptr<Network> network);
  /// The same network several times, each on a device of this process. Each gets a part of every
  /// batch, in the proportions of `loads` (one each); together they are one worker, with the
  /// gradient of the whole batch. Evaluation, checkpoints and initial weights use the first one.
  Module(std::vector<std::shared_ptr<Network>> replicas, std::vector<double> loads);
  ~Module();
  Module(Module&&) noexcept;

  /// Trains. At each epoch's start all workers meet in an epoch boundary; there this one may get
  /// another rank, see another world size, or have to leave; a newcomer begins with the epoch of
  /// the others. When servers are lost, epochs run again. Blocks until the end.
  [[nodiscard]] Result<FitEnd> fit(dtkv::KVStore& kv, BaseDataIterator& data,
                                   const FitOptions& options);

  /// Evaluates the rest of `data` with the present weights and BatchNorm statistics.
  [[nodiscard]] Result<Evaluation> evaluate(BatchIterator& data) const;

  /// Weights and BatchNorm statistics to and from a checkpoint. Names and shapes must match.
  [[nodiscard]] Result<void> save(const std::string& path) const;
  [[nodiscard]] Result<void> load(const std::string& path);

  [[nodiscard]] std::uint64_t num_parameters() const;

 private:
  std::unique_ptr<ModuleParts> parts_;
};

/// Sets the number of threads of one operation to OMP_NUM_THREADS; unset: libtorch's choice.
void set_threads_from_environment();

/// "" if libtorch can train on these CUDA devices, else one sentence with the reason.
[[nodiscard]] std::string why_not(const std::vector<DeviceNumber>& devices);
/// Moves a network's parameters and buffers to a device.
void move_to(Network& network, DeviceNumber device);

}  // namespace dt::train
