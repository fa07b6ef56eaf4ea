#include "trainer/module.h"

#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "trainer/checkpoint.h"
#include "trainer/network.h"

namespace dt {
namespace {

/// Keys of the trainer's own.
constexpr const char* kWorldsKey = "dttrain.worlds";  // initial world, world of the last epoch
constexpr const char* kEvalKey = "dttrain.eval";      // accuracy, loss
/// Each parameter begins at a multiple of so many floats in the flat arrays: one cache line.
constexpr int64_t kAlign = 16;

int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

/// A dtkv_* code as a Result: "cannot <doing>: <what the library says>".
Result<void> checked(int code, const char* doing) {
  if (code == DTKV_OK) return {};
  const auto kind = code == DTKV_UNAVAILABLE ? ErrorKind::kUnavailable
                    : code == DTKV_TIMEOUT   ? ErrorKind::kTimeout
                    : code == DTKV_FENCED    ? ErrorKind::kClosed
                                             : ErrorKind::kInvalid;
  return fail(kind, "cannot {}: {}", doing, dtkv_last_error());
}

dtkv_array array_of(const torch::Tensor& tensor) {
  return {tensor.data_ptr<float>(),
          static_cast<size_t>(tensor.numel()),
          DTKV_FLOAT32,
          DTKV_CPU,
          0,
          nullptr};
}

/// Named tensors as the kvstore wants them. The tensors keep their memory as long as this lives.
struct KeyTable {
  std::vector<std::string> names;
  std::vector<torch::Tensor> tensors;

  void add(std::string name, torch::Tensor tensor) {
    names.push_back(std::move(name));
    tensors.push_back(std::move(tensor));
  }
  [[nodiscard]] std::vector<const char*> keys() const {
    std::vector<const char*> out;
    for (const auto& name : names) out.push_back(name.c_str());
    return out;
  }
  [[nodiscard]] std::vector<dtkv_array> arrays() const {
    std::vector<dtkv_array> out;
    for (const auto& tensor : tensors) out.push_back(array_of(tensor));
    return out;
  }
};

void say_to_stdout(std::string_view line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

struct Tally {
  uint64_t samples = 0;
  uint64_t right = 0;
  double loss = 0;  // summed over samples

  void add(const torch::Tensor& scores, const torch::Tensor& labels, float mean_loss) {
    const auto n = static_cast<uint64_t>(labels.size(0));
    samples += n;
    right += static_cast<uint64_t>(scores.argmax(1).eq(labels).sum().item<int64_t>());
    loss += static_cast<double>(mean_loss) * static_cast<double>(n);
  }
  [[nodiscard]] double accuracy() const {
    return samples == 0 ? 0 : static_cast<double>(right) / static_cast<double>(samples);
  }
  [[nodiscard]] double mean_loss() const {
    return samples == 0 ? 0 : loss / static_cast<double>(samples);
  }
};

/// A batch's tensors; views of the batch, which must outlive them.
std::pair<torch::Tensor, torch::Tensor> tensors_of(DataBatch& batch) {
  const int64_t n = batch.size();
  return {torch::from_blob(batch.data.data(), {n, batch.shape[0], batch.shape[1], batch.shape[2]}),
          torch::from_blob(batch.labels.data(), {n}, torch::kInt64)};
}

}  // namespace

/// The network with its parameters laid out one after the other in one array, and their gradients
/// in another.
struct ModuleParts {
  std::shared_ptr<Network> network;
  torch::Tensor values;
  torch::Tensor gradients;
  KeyTable parameters;      // views of `values`
  KeyTable gradient_views;  // views of `gradients`, same names
  KeyTable statistics;      // of BatchNorm

  explicit ModuleParts(std::shared_ptr<Network> net) : network(std::move(net)) {
    const torch::NoGradGuard no_grad;
    int64_t size = 0;
    for (const auto& p : network->parameters()) size += padded(p.numel());
    values = torch::zeros({size});
    gradients = torch::zeros({size});
    int64_t at = 0;
    for (auto& item : network->named_parameters()) {
      auto& parameter = item.value();
      const auto view = values.narrow(0, at, parameter.numel()).view(parameter.sizes());
      view.copy_(parameter);
      parameter.set_data(view);
      parameter.mutable_grad() = gradients.narrow(0, at, parameter.numel()).view(parameter.sizes());
      parameters.add(item.key(), parameter);
      gradient_views.add(item.key(), parameter.grad());
      at += padded(parameter.numel());
    }
    for (auto& item : network->named_buffers()) {
      if (item.value().scalar_type() == torch::kFloat) statistics.add(item.key(), item.value());
    }
  }

  static int64_t padded(int64_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

  [[nodiscard]] std::vector<NamedArray> named_arrays() const {
    std::vector<NamedArray> all;
    for (const auto* table : {&parameters, &statistics}) {
      for (size_t i = 0; i < table->names.size(); ++i) {
        const auto& tensor = table->tensors[i];
        const auto* data = tensor.data_ptr<float>();
        all.push_back({table->names[i], tensor.sizes().vec(), {data, data + tensor.numel()}});
      }
    }
    return all;
  }
};

namespace {

/// One step's gradients on their way: each is pushed as soon as backward has it, last layer first,
/// while the earlier layers are still computed. New values arrive in an array of their own, since
/// backward may still need the old ones.
class Exchange {
 public:
  Exchange(dtkv::KVStore& kv, ModuleParts& parts)
      : kv_(kv),
        values_(parts.values),
        incoming_(torch::empty_like(values_)),
        keys_(parts.parameters.keys()),
        gradients_(parts.gradient_views.arrays()),
        out_(parts.parameters.arrays()),
        handles_(keys_.size()) {
    const auto* from = values_.data_ptr<float>();
    for (auto& array : out_) {
      array.data = incoming_.data_ptr<float>() + (static_cast<float*>(array.data) - from);
    }
    for (size_t i = 0; i < keys_.size(); ++i) {
      auto node = torch::autograd::impl::grad_accumulator(parts.parameters.tensors[i]);
      node->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
          [this, i](const std::vector<torch::Tensor>& outputs, const std::vector<torch::Tensor>&) {
            send(i);
            return outputs;
          }));
      accumulators_.push_back(std::move(node));
    }
  }
  ~Exchange() {
    // After an exception in backward the library may still write into our memory.
    if (in_flight_) dtkv_wait_all(kv_.get(), 0);
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// Before backward.
  void begin(const dtkv_push_options& options) {
    options_ = options;
    std::ranges::fill(handles_, 0);
    sent_.assign(keys_.size(), false);
    code_ = DTKV_OK;
    in_flight_ = true;
  }

  /// After backward: sends what backward did not touch, waits, and takes over the new values.
  Result<void> finish() {
    for (size_t i = 0; i < keys_.size(); ++i) send(i);
    for (const dtkv_handle handle : handles_) {
      if (code_ == DTKV_OK && handle != 0) code_ = dtkv_wait(kv_.get(), handle, 0);
    }
    if (auto ok = checked(code_, "exchange gradients"); !ok) return ok;
    in_flight_ = false;
    const torch::NoGradGuard no_grad;
    values_.copy_(incoming_);
    return {};
  }

 private:
  void send(size_t i) {
    if (sent_[i] || code_ != DTKV_OK) return;
    sent_[i] = true;
    dtkv_push_options options = options_;
    options.priority = static_cast<int>(keys_.size() - i);  // the next forward begins at layer 0
    code_ =
        dtkv_pushpull(kv_.get(), 1, &keys_[i], &gradients_[i], &out_[i], &options, &handles_[i]);
  }

  dtkv::KVStore& kv_;
  torch::Tensor values_;
  torch::Tensor incoming_;
  std::vector<const char*> keys_;
  std::vector<dtkv_array> gradients_;
  std::vector<dtkv_array> out_;
  std::vector<dtkv_handle> handles_;
  std::vector<bool> sent_;
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;  // own the hooks
  dtkv_push_options options_{};
  int code_ = DTKV_OK;
  bool in_flight_ = false;
};

/// One call of Module::fit.
class Fit {
 public:
  Fit(ModuleParts& parts, dtkv::KVStore& kv, BaseDataIterator& data, const FitOptions& options)
      : parts_(parts), kv_(kv), data_(data), options_(options), exchange_(kv, parts) {
    if (!options_.say) options_.say = say_to_stdout;
  }

  Result<FitEnd> run() {
    if (auto ok = prepare(); !ok) return tl::unexpected(ok.error());
    for (uint32_t epoch = options_.begin_epoch; epoch < options_.num_epochs; ++epoch) {
      auto stays = boundary(epoch);
      if (!stays) return tl::unexpected(stays.error());
      if (!*stays) return FitEnd::kLeft;
      epoch = view_.epoch;
      if (epoch >= options_.num_epochs) break;
      if (auto ok = one_epoch(epoch); !ok) return tl::unexpected(ok.error());
    }
    if (auto ok = pull(); !ok) return tl::unexpected(ok.error());
    checkpoints_.flush();
    tell_checkpoints();
    return FitEnd::kFinished;
  }

 private:
  Result<void> prepare() {
    worlds_ = torch::full({2}, static_cast<float>(kv_.num_workers()));
    eval_ = torch::zeros({2});
    auxiliary_ = parts_.statistics;
    auxiliary_.add(kWorldsKey, worlds_);
    auxiliary_.add(kEvalKey, eval_);
    if (auto ok = init(parts_.parameters, DTKV_KEY_PARAMETER); !ok) return ok;
    if (auto ok = init(auxiliary_, DTKV_KEY_AUXILIARY); !ok) return ok;
    const char* spec = options_.optimizer.c_str();
    auto ok = checked(dtkv_set_optimizer(kv_.get(), spec), "set the optimizer");
    return ok ? pull() : ok;  // holding the weights is what makes a newcomer warm
  }

  Result<void> init(const KeyTable& table, int flags) {
    const auto keys = table.keys();
    const auto arrays = table.arrays();
    return checked(dtkv_init(kv_.get(), keys.size(), keys.data(), arrays.data(), flags),
                   "create the parameters' keys");
  }

  Result<void> pull() {
    for (const auto* table : {&std::as_const(parts_.parameters), &std::as_const(auxiliary_)}) {
      const auto keys = table->keys();
      const auto arrays = table->arrays();
      const int code = dtkv_pull(kv_.get(), keys.size(), keys.data(), arrays.data(), 0, nullptr);
      if (auto ok = checked(code, "pull the weights"); !ok) return ok;
    }
    return {};
  }

  /// False: told to leave.
  Result<bool> boundary(uint32_t epoch) {
    BoundaryEnd end;
    end.enter_ns = now_ns();
    const int code = dtkv_epoch_boundary(kv_.get(), epoch, &end.view);
    end.leave_ns = now_ns();
    end.left = code == DTKV_LEAVE;
    if (code != DTKV_OK && code != DTKV_LEAVE) {
      return tl::unexpected(checked(code, "pass the epoch boundary").error());
    }
    if (options_.on_boundary) options_.on_boundary(end);
    if (end.left) return false;
    const bool first = iterators_.train == nullptr;
    view_ = end.view;
    if (auto ok = pull(); !ok) return tl::unexpected(ok.error());
    if (first || view_.changed != 0) {
      options_.say(fmt::format("Epoch[{}] World: rank {} of {} (generation {})", view_.epoch,
                               view_.rank, view_.num_workers, view_.generation));
      iterators_ = {};
      iterators_ = data_.get_data_iterator(kv_);
      DT_CHECK(iterators_.train != nullptr, "get_data_iterator gave no training iterator");
    }
    return true;
  }

  Result<void> one_epoch(uint32_t epoch) {
    EpochEnd end;
    end.epoch = epoch;
    end.rank = view_.rank;
    end.num_workers = view_.num_workers;
    if (auto ok = train(epoch, end); !ok) return ok;
    const Tally tally = evaluate(epoch);
    if (auto ok = share(epoch, tally); !ok) return ok;
    if (iterators_.eval != nullptr) {
      end.eval_accuracy = eval_[0].item<float>();
      end.eval_loss = eval_[1].item<float>();
      options_.say(fmt::format("Epoch[{}] Validation-accuracy={:.4f}", epoch, end.eval_accuracy));
    }
    end.is_lead = kv_.is_lead();
    if (end.is_lead && !options_.model_prefix.empty()) {
      if (auto ok = save(epoch); !ok) return ok;
    }
    tell_checkpoints();
    end.end_ns = now_ns();
    if (options_.on_epoch_end) options_.on_epoch_end(end);
    return {};
  }

  Result<void> train(uint32_t epoch, EpochEnd& end) {
    parts_.network->train();
    iterators_.train->begin(epoch);
    const Worlds worlds{static_cast<uint32_t>(worlds_[0].item<float>() + 0.5F),
                        static_cast<uint32_t>(worlds_[1].item<float>() + 0.5F), view_.num_workers};
    Tally all;
    Tally shown;  // since the last progress line
    const int64_t epoch_begin = now_ns();
    int64_t shown_at = epoch_begin;
    for (uint32_t step = 0;; ++step) {
      BatchEnd batch_end;
      batch_end.begin_ns = now_ns();
      DataBatch batch;
      if (!iterators_.train->next(batch)) break;
      end.learning_rate = learning_rate(options_.learning_rate, epoch, step, worlds);
      auto tally = one_step(epoch, step, end.learning_rate, batch);
      if (!tally) return tl::unexpected(tally.error());
      batch_end.end_ns = now_ns();
      batch_end.epoch = epoch;
      batch_end.step = step;
      batch_end.samples = batch.size();
      batch_end.loss = static_cast<float>(tally->mean_loss());
      if (options_.on_batch_end) options_.on_batch_end(batch_end);
      for (Tally* sum : {&all, &shown}) {
        sum->samples += tally->samples;
        sum->right += tally->right;
        sum->loss += tally->loss;
      }
      if (options_.disp_batches != 0 && (step + 1) % options_.disp_batches == 0) {
        const double seconds = static_cast<double>(batch_end.end_ns - shown_at) * 1e-9;
        options_.say(fmt::format(
            "Epoch[{}] Batch [{}] Speed: {:.1f} samples/sec accuracy={:.4f} loss={:.4f}", epoch,
            step + 1, static_cast<double>(shown.samples) / seconds, shown.accuracy(),
            shown.mean_loss()));
        shown = {};
        shown_at = batch_end.end_ns;
      }
    }
    end.seconds = static_cast<double>(now_ns() - epoch_begin) * 1e-9;
    end.samples = all.samples;
    end.train_accuracy = all.accuracy();
    end.train_loss = all.mean_loss();
    options_.say(fmt::format("Epoch[{}] Train-accuracy={:.4f}", epoch, end.train_accuracy));
    options_.say(fmt::format("Epoch[{}] Time cost={:.3f}", epoch, end.seconds));
    return {};
  }

  Result<Tally> one_step(uint32_t epoch, uint32_t step, float rate, DataBatch& batch) {
    Tally tally;
    parts_.gradients.zero_();
    dtkv_push_options push{};
    push.samples = batch.size();
    push.step = uint64_t{epoch} << 32U | step;
    push.learning_rate = rate;
    exchange_.begin(push);
    if (batch.size() > 0) {
      const auto [x, labels] = tensors_of(batch);
      const auto scores = parts_.network->forward(x);
      const auto loss = torch::nn::functional::cross_entropy(scores, labels);
      loss.backward();
      tally.add(scores.detach(), labels, loss.item<float>());
    }
    if (auto ok = exchange_.finish(); !ok) return tl::unexpected(ok.error());
    if (auto ok = checked(dtkv_progress(kv_.get(), epoch, step), "report progress"); !ok) {
      return tl::unexpected(ok.error());
    }
    return tally;
  }

  /// This worker's part of the eval set.
  Tally evaluate(uint32_t epoch) {
    Tally tally;
    if (iterators_.eval == nullptr) return tally;
    const torch::NoGradGuard no_grad;
    parts_.network->eval();
    iterators_.eval->begin(epoch);
    for (DataBatch batch; iterators_.eval->next(batch);) {
      if (batch.size() == 0) continue;
      const auto [x, labels] = tensors_of(batch);
      const auto scores = parts_.network->forward(x);
      tally.add(scores, labels, torch::nn::functional::cross_entropy(scores, labels).item<float>());
    }
    return tally;
  }

  /// After an epoch's last step: BatchNorm statistics, the world size and the eval result become
  /// the mean over the workers. The epoch is finished before the answers are waited for: the others
  /// may still have steps to make, and those must not wait for this worker.
  Result<void> share(uint32_t epoch, const Tally& tally) {
    worlds_[1] = static_cast<float>(view_.num_workers);
    eval_[0] = tally.accuracy();
    eval_[1] = tally.mean_loss();
    const auto keys = auxiliary_.keys();
    const auto arrays = auxiliary_.arrays();
    const size_t eval_at = keys.size() - 1;  // weighted by its own number of samples
    dtkv_push_options push{};
    push.step = uint64_t{epoch} << 32U | 0xffffffffU;
    push.samples = 1;
    std::array<dtkv_handle, 2> handles{};
    int code = dtkv_pushpull(kv_.get(), eval_at, keys.data(), arrays.data(), arrays.data(), &push,
                             handles.data());
    push.samples = tally.samples;
    if (code == DTKV_OK) {
      code = dtkv_pushpull(kv_.get(), 1, &keys[eval_at], &arrays[eval_at], &arrays[eval_at], &push,
                           &handles[1]);
    }
    if (code == DTKV_OK) code = dtkv_finish_epoch(kv_.get());
    for (const dtkv_handle handle : handles) {
      if (code == DTKV_OK) code = dtkv_wait(kv_.get(), handle, 0);
    }
    return checked(code, "exchange statistics at the end of the epoch");
  }

  Result<void> save(uint32_t epoch) {
    // Others may have made steps after our last.
    if (auto ok = pull(); !ok) return ok;
    const auto path = checkpoint_path(options_.model_prefix, epoch + 1);
    if (!checkpoints_.submit(path, parts_.named_arrays())) {
      options_.say(fmt::format("Warning: no checkpoint {}: {} before it are still being written",
                               path.string(), CheckpointWriter::kMaxWaiting));
    }
    return {};
  }

  void tell_checkpoints() {
    for (const auto& line : checkpoints_.take_messages()) options_.say(line);
  }

  ModuleParts& parts_;
  KeyTable auxiliary_;  // the statistics and our own two
  torch::Tensor worlds_;
  torch::Tensor eval_;
  dtkv::KVStore& kv_;
  BaseDataIterator& data_;
  FitOptions options_;
  Exchange exchange_;
  DataIterators iterators_;
  dtkv_view view_{};
  CheckpointWriter checkpoints_;
};

}  // namespace

Module::Module(std::shared_ptr<Network> network)
    : parts_(std::make_unique<ModuleParts>(std::move(network))) {}
Module::~Module() = default;
Module::Module(Module&&) noexcept = default;

Result<FitEnd> Module::fit(dtkv::KVStore& kv, BaseDataIterator& data, const FitOptions& options) {
  try {
    Fit fit(*parts_, kv, data, options);
    return fit.run();
  } catch (const c10::Error& error) {
    return fail(ErrorKind::kInvalid, "libtorch: {}", error.what_without_backtrace());
  }
}

Result<void> Module::save(const std::string& path) const {
  return save_checkpoint(path, parts_->named_arrays());
}

Result<void> Module::load(const std::string& path) {
  const auto arrays = load_checkpoint(path);
  if (!arrays) return tl::unexpected(arrays.error());
  std::map<std::string, const NamedArray*> by_name;
  for (const auto& array : *arrays) by_name[array.name] = &array;
  std::vector<std::pair<torch::Tensor, const NamedArray*>> found;
  for (const auto* table : {&parts_->parameters, &parts_->statistics}) {
    for (size_t i = 0; i < table->names.size(); ++i) {
      const auto at = by_name.find(table->names[i]);
      const auto& tensor = table->tensors[i];
      if (at == by_name.end() || at->second->shape != tensor.sizes().vec()) {
        return fail(ErrorKind::kInvalid, "{}: {} {}: it was made by another network", path,
                    at == by_name.end() ? "has no" : "has another shape of", table->names[i]);
      }
      found.emplace_back(tensor, at->second);
    }
  }
  // Only now: a checkpoint that does not fit changes nothing.
  for (auto& [tensor, array] : found) {
    std::ranges::copy(array->values, tensor.data_ptr<float>());
  }
  return {};
}

uint64_t Module::num_parameters() const {
  uint64_t n = 0;
  for (const auto& tensor : parts_->parameters.tensors) n += static_cast<uint64_t>(tensor.numel());
  return n;
}

void set_threads_from_environment() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  if (text == nullptr) return;
  int threads = 0;
  std::from_chars(text, text + std::strlen(text), threads);
  if (threads > 0) at::set_num_threads(threads);
}

bool cuda_is_available() { return torch::cuda::is_available(); }

}  // namespace dt
