#include "trainer/module.h"

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>

#include "core/base/number.h"
#include "trainer/checkpoint.h"
#include "trainer/gradient_exchange.h"

namespace dt::train {
namespace {

/// The trainer's own keys.
constexpr const char* kWorldsKey = "dttrain.worlds";  // initial world, world of the last epoch
constexpr const char* kStepsKey = "dttrain.steps";    // integers, indexed by StepsSum
constexpr const char* kCountsKey = "dttrain.counts";  // integers: pictures evaluated, right ones
constexpr const char* kLossKey = "dttrain.loss";      // the evaluation's mean loss

/// The values of an epoch's steps that are summed over the workers.
enum StepsSum { kWorkers, kSamples, kSteps, kStepsSquared, kStepsSumSize };

std::int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

void say_to_stdout(std::string_view line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

struct Metrics {
  std::uint64_t samples = 0;
  std::uint64_t right = 0;
  double loss = 0;  // summed over samples

  void add(const torch::Tensor& scores, const torch::Tensor& labels, float mean_loss) {
    const auto n = static_cast<std::uint64_t>(labels.size(0));
    samples += n;
    right += static_cast<std::uint64_t>(scores.argmax(1).eq(labels).sum().item<std::int64_t>());
    loss += static_cast<double>(mean_loss) * static_cast<double>(n);
  }
  void operator+=(const Metrics& more) {
    samples += more.samples;
    right += more.right;
    loss += more.loss;
  }
  [[nodiscard]] double accuracy() const {
    return samples == 0 ? 0 : static_cast<double>(right) / static_cast<double>(samples);
  }
  [[nodiscard]] double mean_loss() const {
    return samples == 0 ? 0 : loss / static_cast<double>(samples);
  }
};

/// A batch's tensors; views of the batch, which must outlive them.
struct Batch {
  torch::Tensor x;
  torch::Tensor labels;

  explicit Batch(DataBatch& batch) {
    const std::int64_t n = batch.size();
    x = torch::from_blob(batch.data.data(), {n, batch.shape[0], batch.shape[1], batch.shape[2]});
    labels = torch::from_blob(batch.labels.data(), {n}, torch::kInt64);
  }
  Batch(torch::Tensor some, torch::Tensor their) : x(std::move(some)), labels(std::move(their)) {}

  /// Samples [begin, end), where the tensor is.
  [[nodiscard]] Batch part(std::int64_t begin, std::int64_t end, const torch::Tensor& where) const {
    return {x.slice(0, begin, end).to(where.device()),
            labels.slice(0, begin, end).to(where.device())};
  }
};

/// Scores, labels and loss of a replica's part of a batch.
struct Computed {
  torch::Tensor scores;
  torch::Tensor labels;
  torch::Tensor loss;  ///< The mean of its samples.
};

/// A copy of a tensor on the CPU.
NamedArray named_array(std::string name, const torch::Tensor& tensor) {
  const auto* data = tensor.data_ptr<float>();
  return {std::move(name), tensor.sizes().vec(), {data, data + tensor.numel()}};
}

/// Floating-point buffers of BatchNorm.
KeyTable statistics_of(const Network& network) {
  KeyTable table;
  for (const auto& item : network.named_buffers())
    if (item.value().scalar_type() == torch::kFloat) table.add(item.key(), item.value());
  return table;
}

}  // namespace

/// The network on one or several devices, with its parameters and statistics.
struct ModuleParts {
  std::vector<Replica> replicas;
  std::vector<double> loads;             // one each
  std::vector<KeyTable> statistics;      // of BatchNorm, by replica
  GradientExchange* exchange = nullptr;  // while fit runs: new weights may still arrive
  std::vector<float> worlds;             // kWorldsKey of the checkpoint that was loaded, or empty

  ModuleParts(std::vector<std::shared_ptr<Network>> networks, std::vector<double> by_load)
      : loads(std::move(by_load)) {
    DT_CHECK(!networks.empty() && networks.size() == loads.size(), "a load for each replica");
    for (auto& network : networks) {
      statistics.push_back(statistics_of(*network));
      replicas.emplace_back(std::move(network));
    }
  }

  [[nodiscard]] Network& network() const { return *replicas.front().network; }
  [[nodiscard]] const KeyTable& parameters() const { return replicas.front().flat.parameters; }

  /// Sets the first replica's statistics to the mean over all replicas.
  void average_statistics() {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < statistics.front().tensors.size(); ++i) {
      auto& sum = statistics.front().tensors[i];
      for (std::size_t r = 1; r < replicas.size(); ++r)
        sum.add_(statistics[r].tensors[i].to(sum.device()));
      if (replicas.size() > 1) sum.div_(static_cast<double>(replicas.size()));
    }
  }
  /// Copies the first replica's statistics to the others.
  void spread_statistics() {
    const torch::NoGradGuard no_grad;
    for (std::size_t r = 1; r < replicas.size(); ++r)
      for (std::size_t i = 0; i < statistics[r].tensors.size(); ++i)
        statistics[r].tensors[i].copy_(statistics.front().tensors[i]);
  }

  /// Uses the first replica's present weights and statistics.
  Metrics evaluate(BatchIterator& data) const {
    Metrics metrics;
    const torch::NoGradGuard no_grad;
    network().eval();
    for (DataBatch batch; data.next(batch);) {
      if (batch.size() == 0) continue;
      const auto [x, labels] = Batch(batch).part(0, batch.size(), replicas.front().flat.values);
      const auto scores = network().forward(x);
      metrics.add(scores, labels,
                  torch::nn::functional::cross_entropy(scores, labels).item<float>());
    }
    return metrics;
  }

  [[nodiscard]] Result<void> settle() const {
    return exchange != nullptr ? exchange->settle() : Result<void>{};
  }

  [[nodiscard]] std::vector<NamedArray> named_arrays() const {
    std::vector<NamedArray> all;
    const KeyTable* const tables[] = {&parameters(), &statistics.front()};
    for (const auto* table : tables) {
      for (std::size_t i = 0; i < table->names.size(); ++i)
        all.push_back(named_array(table->names[i], table->tensors[i].detach().cpu()));
    }
    return all;
  }
};

namespace {

/// An error of a step of Fit, which ends it; kClosed: the servers were lost.
struct Failure : std::runtime_error {
  explicit Failure(Error why) : std::runtime_error(why.message), error(std::move(why)) {}
  Error error;
};
void must(const Result<void>& result) {
  if (!result) throw Failure(result.error());
}

/// In a checkpoint: the initial world and that of its last epoch; empty: it has none.
Metadata metadata_of(const std::vector<float>& worlds) {
  if (worlds.empty()) return {};
  return {{kWorldsKey, fmt::format("{:.0f} {:.0f}", worlds[0], worlds[1])}};
}
std::vector<float> parse_worlds(std::string_view text) {
  const auto initial = take_number<std::uint32_t>(text);
  if (!text.empty()) text.remove_prefix(1);
  const auto last = take_number<std::uint32_t>(text);
  if (initial.value_or(0) == 0 || last.value_or(0) == 0) return {};
  return {static_cast<float>(*initial), static_cast<float>(*last)};
}

// In a file of the optimizer's state.
const std::string kUpdatesOf = "updates.";  // its metadata's, and the parameter's name
std::string state_name(const std::string& parameter, int which) {
  return fmt::format("{}.state{}", parameter, which);
}

/// One call of Module::fit.
class Fit {
 public:
  Fit(ModuleParts& parts, dtkv::KVStore& kv, BaseDataIterator& data, const FitOptions& options)
      : parts_(parts),
        kv_(kv),
        data_(data),
        options_(options),
        exchange_(kv, parts.replicas, options.overlap) {
    if (!options_.say) options_.say = say_to_stdout;
    parts_.exchange = &exchange_;
  }
  ~Fit() { parts_.exchange = nullptr; }
  Fit(const Fit&) = delete;
  Fit& operator=(const Fit&) = delete;

  FitEnd run() {
    unless_servers_are_lost([&] { prepare(); });
    for (std::uint32_t epoch = options_.begin_epoch;;) {
      std::optional<FitEnd> end;
      if (unless_servers_are_lost([&] { end = epoch_or_end(epoch); }))
        ++epoch;
      else
        exchange_.forget();  // the next boundary returns the epoch to go on with
      if (end) return *end;
    }
  }

 private:
  template <class Step>
  static bool unless_servers_are_lost(Step step) {
    try {
      step();
      return true;
    } catch (const Failure& failure) {
      if (failure.error.kind != ErrorKind::kClosed) throw;
      return false;
    }
  }

  /// Runs one epoch, from its boundary on; `epoch` becomes the epoch that was run. None: there are
  /// more epochs.
  std::optional<FitEnd> epoch_or_end(std::uint32_t& epoch) {
    if (epoch < options_.num_epochs) {
      if (!boundary(epoch)) return FitEnd::kLeft;
      epoch = view_.epoch;
    }
    if (epoch < options_.num_epochs) one_epoch(epoch);
    if (epoch + 1 < options_.num_epochs) return std::nullopt;
    pull();
    checkpoints_.flush();
    tell_checkpoints();
    return FitEnd::kFinished;
  }

  void prepare() {
    worlds_ = torch::full({2}, static_cast<float>(kv_.num_workers()));
    if (!parts_.worlds.empty()) worlds_.copy_(torch::tensor(parts_.worlds));
    steps_ = torch::zeros({kStepsSumSize}, torch::kLong);
    counts_ = torch::zeros({2}, torch::kLong);
    loss_ = torch::zeros({1});
    auxiliary_ = parts_.statistics.front();
    auxiliary_.add(kWorldsKey, worlds_);
    auxiliary_.add(kStepsKey, steps_);
    evaluation_.add(kCountsKey, counts_);
    evaluation_.add(kLossKey, loss_);
    init(parts_.parameters(), DTKV_KEY_PARAMETER);
    init(auxiliary_, DTKV_KEY_AUXILIARY);
    init(evaluation_, DTKV_KEY_AUXILIARY);
    must(checked("set the optimizer", [&] { kv_.set_optimizer(options_.optimizer); }));
    must(checked("set gradient compression",
                 [&] { kv_.set_gradient_compression(options_.compression); }));
    if (!options_.optimizer_state.empty() && !kv_.is_newcomer()) load_optimizer();
    pull();  // a newcomer is warm when it has the weights
  }

  /// Gives the servers the optimizer's state of a checkpoint.
  void load_optimizer() {
    Metadata metadata;
    const auto arrays = load_checkpoint(options_.optimizer_state, &metadata);
    dtkv::KVStore::Optimizer optimizer;
    must(checked("ask for the optimizer", [&] { optimizer = kv_.optimizer(); }));
    std::string why;
    if (!arrays)
      why = arrays.error().message;
    else if (metadata["optimizer"] != optimizer.text)
      why = fmt::format("it is of the optimizer '{}'", metadata["optimizer"]);
    if (!why.empty())
      return options_.say(fmt::format("Warning: the optimizer begins without the state of {}: {}",
                                      options_.optimizer_state, why));
    const auto& parameters = parts_.parameters();
    const std::size_t n = parameters.names.size();
    std::vector<std::uint64_t> updates;
    for (const auto& name : parameters.names) {
      std::string_view text(metadata[kUpdatesOf + name]);
      updates.push_back(take_number<std::uint64_t>(text).value_or(0));
    }
    if (arrays->size() != n * static_cast<std::size_t>(optimizer.states))
      throw Failure(
          {ErrorKind::kInvalid, fmt::format("{}: {} arrays for {} parameters",
                                            options_.optimizer_state, arrays->size(), n)});
    for (int which = 1; which <= optimizer.states; ++which) {
      KeyTable state;
      for (const auto& name : parameters.names) {
        const auto array = std::ranges::find(*arrays, state_name(name, which), &NamedArray::name);
        if (array == arrays->end())
          throw Failure({ErrorKind::kInvalid,
                         fmt::format("{} has no {}: it was made by another network",
                                     options_.optimizer_state, state_name(name, which))});
        state.add(name, torch::tensor(array->values));
      }
      must(checked("give the servers the optimizer's state",
                   [&] { kv_.init_state(state.entries(), which, updates); }));
    }
  }

  void init(const KeyTable& table, int flags) {
    must(checked("create the parameters' keys", [&] { kv_.init(table.entries(), flags); }));
  }

  void pull() {
    // Weights to every replica: a key is named once for each of them.
    std::vector<dtkv::Entry> all;
    const auto& names = parts_.parameters().names;
    for (std::size_t i = 0; i < names.size(); ++i)
      for (const auto& replica : parts_.replicas)
        all.emplace_back(names[i], array_of(replica.flat.parameters.tensors[i]));
    const auto auxiliary = auxiliary_.entries();
    all.insert(all.end(), auxiliary.begin(), auxiliary.end());
    must(checked("pull the weights", [&] { kv_.pull(all); }));
    parts_.spread_statistics();
  }

  /// False: the worker must leave.
  bool boundary(std::uint32_t epoch) {
    BoundaryEnd end;
    end.enter_ns = now_ns();
    std::optional<dtkv_view> view;
    must(checked("pass the epoch boundary", [&] { view = kv_.epoch_boundary(epoch); }));
    end.leave_ns = now_ns();
    end.left = !view;
    end.view = view.value_or(dtkv_view{});
    if (options_.on_boundary) options_.on_boundary(end);
    if (end.left) return false;
    const bool first = iterators_.train == nullptr;
    view_ = end.view;
    if (view_.rolled_back != 0)
      options_.say(fmt::format("Epoch[{}] Servers were lost: it begins again", view_.epoch));
    pull();
    if (first || view_.changed != 0) {
      options_.say(fmt::format("Epoch[{}] World: rank {} of {} (generation {})", view_.epoch,
                               view_.rank, view_.num_workers, view_.generation));
      iterators_ = {};
      iterators_ = data_.get_data_iterator(kv_);
      DT_CHECK(iterators_.train != nullptr, "get_data_iterator gave no training iterator");
    }
    return true;
  }

  void one_epoch(std::uint32_t epoch) {
    EpochEnd end{epoch, view_.rank, view_.num_workers};
    train(epoch, end);
    share_statistics(epoch, end);
    Metrics metrics;
    if (iterators_.eval != nullptr) {
      iterators_.eval->begin(epoch);
      metrics = parts_.evaluate(*iterators_.eval);
    }
    share_evaluation(epoch, metrics);
    if (iterators_.eval != nullptr) {
      end.eval_accuracy = metrics.accuracy();
      end.eval_loss = metrics.mean_loss();
      options_.say(fmt::format("Epoch[{}] Validation-accuracy={:.4f}", epoch, end.eval_accuracy));
    }
    end.is_lead = kv_.is_lead();
    const auto& weights = parts_.replicas.front().flat.values;
    if (!std::isfinite(metrics.loss) || !weights.isfinite().all().item<bool>())
      throw Failure(not_finite(epoch, "the weights, or the loss of the evaluation, are"));
    if (end.is_lead && !options_.model_prefix.empty()) save(epoch);
    tell_checkpoints();
    end.end_ns = now_ns();
    if (options_.on_epoch_end) options_.on_epoch_end(end);
  }

  void train(std::uint32_t epoch, EpochEnd& end) {
    for (auto& replica : parts_.replicas) replica.network->train();
    iterators_.train->begin(epoch);
    const Worlds worlds{static_cast<std::uint32_t>(worlds_[0].item<float>() + 0.5F),
                        static_cast<std::uint32_t>(worlds_[1].item<float>() + 0.5F),
                        view_.num_workers};
    Metrics all;
    Metrics shown;  // since the last progress line
    steps_began_ns_ = now_ns();
    std::int64_t shown_at = steps_began_ns_;
    for (std::uint32_t step = 0;; ++step) {
      const std::int64_t began_ns = now_ns();
      DataBatch batch;
      if (!iterators_.train->next(batch)) break;
      end.learning_rate = learning_rate(options_.learning_rate, epoch, step, worlds);
      const Metrics metrics = one_step(epoch, step, end.learning_rate, batch);
      end.steps = step + 1;
      const BatchEnd batch_end{
          epoch, step, batch.size(), static_cast<float>(metrics.mean_loss()), began_ns, now_ns()};
      if (options_.on_batch_end) options_.on_batch_end(batch_end);
      all += metrics;
      shown += metrics;
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
    must(exchange_.settle());
    end.seconds = static_cast<double>(now_ns() - steps_began_ns_) * 1e-9;
    end.samples = all.samples;
    end.train_accuracy = all.accuracy();
    end.train_loss = all.mean_loss();
    options_.say(fmt::format("Epoch[{}] Train-accuracy={:.4f}", epoch, end.train_accuracy));
    options_.say(fmt::format("Epoch[{}] Time cost={:.3f}", epoch, end.seconds));
  }

  /// With overlap, returns before the new weights have arrived.
  Metrics one_step(std::uint32_t epoch, std::uint32_t step, float rate, DataBatch& batch) {
    Metrics metrics;
    const dtkv::Push push{
        .samples = batch.size(), .step = std::uint64_t{epoch} << 32U | step, .learning_rate = rate};
    if (batch.size() > 0 && !parts_.network().says_use()) must(exchange_.settle());
    const auto computed = forward(batch);
    must(exchange_.settle());
    exchange_.begin(push);
    backward(computed, batch.size());
    must(exchange_.push_rest());
    for (const auto& part : computed)
      metrics.add(part.scores.detach(), part.labels, part.loss.item<float>());
    if (!std::isfinite(metrics.loss))
      throw Failure(not_finite(epoch, fmt::format("the loss of step {} is", step)));
    if (!options_.overlap) must(exchange_.settle());
    must(checked("report progress", [&] {
      kv_.progress(epoch, step);
      if (batch.size() > 0) kv_.report("train_loss", metrics.mean_loss());
      kv_.report("learning_rate", double{rate});
    }));
    return metrics;
  }

  /// Computes every replica's part of the batch, without replicas that get no samples.
  std::vector<Computed> forward(DataBatch& batch) {
    std::vector<Computed> all;
    const Batch tensors(batch);
    const auto sizes = divide(batch.size(), parts_.loads);
    std::int64_t begin = 0;
    for (std::size_t r = 0; r < sizes.size(); ++r) {
      if (sizes[r] == 0) continue;
      auto& replica = parts_.replicas[r];
      const auto [x, labels] = tensors.part(begin, begin + sizes[r], replica.flat.values);
      begin += sizes[r];
      auto scores = replica.network->forward(x);
      auto loss = torch::nn::functional::cross_entropy(scores, labels);
      all.push_back({std::move(scores), labels, std::move(loss)});
    }
    return all;
  }

  /// The sum of the replicas' gradients is the gradient of the mean over the batch; replicas on
  /// GPUs compute at the same time.
  static void backward(const std::vector<Computed>& computed, std::uint32_t samples) {
    if (computed.empty()) return;
    if (computed.size() == 1) return computed.front().loss.backward();
    std::vector<torch::Tensor> losses;
    for (const auto& part : computed)
      losses.push_back(part.loss * (static_cast<double>(part.labels.size(0)) / samples));
    torch::autograd::backward(losses, {});
  }

  /// After an epoch's last step: averages BatchNorm statistics and the world size over the workers,
  /// and sums their numbers of steps. Finishes the steps first, so that other workers' remaining
  /// steps do not wait for this worker. This worker waits for these steps, and then has the final
  /// weights and statistics, which are the same on all workers and are saved.
  void share_statistics(std::uint32_t epoch, EpochEnd& end) {
    parts_.average_statistics();
    worlds_[1] = static_cast<float>(view_.num_workers);
    const auto steps = static_cast<std::int64_t>(end.steps);
    auto* sums = steps_.data_ptr<std::int64_t>();
    sums[kWorkers] = 1;
    sums[kSamples] = static_cast<std::int64_t>(end.samples);
    sums[kSteps] = steps;
    sums[kStepsSquared] = steps * steps;
    must(checked("finish the steps of the epoch", [&] { kv_.finish_steps(); }));
    const auto entries = auxiliary_.entries();
    must(checked("exchange statistics at the end of the epoch",
                 [&] { kv_.pushpull(entries, entries, last_push(epoch)); }));
    end.job_samples = static_cast<std::uint64_t>(sums[kSamples]);
    end.job_seconds = static_cast<double>(now_ns() - steps_began_ns_) * 1e-9;
    parts_.spread_statistics();
    // If all made equally many synchronous steps, the last answer contains all workers' last
    // pushes.
    const bool are_equal = sums[kWorkers] * sums[kStepsSquared] == sums[kSteps] * sums[kSteps];
    if (!are_equal || kv_.type() == "dist_async") pull();
  }

  /// Combines the evaluation's results of all workers.
  void share_evaluation(std::uint32_t epoch, Metrics& metrics) {
    auto* counts = counts_.data_ptr<std::int64_t>();
    counts[0] = static_cast<std::int64_t>(metrics.samples);
    counts[1] = static_cast<std::int64_t>(metrics.right);
    loss_[0] = metrics.mean_loss();
    must(checked("exchange the evaluation's result", [&] {
      std::vector<dtkv_handle> handles;
      for (const auto& entry : evaluation_.entries()) {
        dtkv::Push push = last_push(epoch);
        if (entry.key == kLossKey) push.samples = metrics.samples;
        kv_.pushpull({entry}, {entry}, push, &handles.emplace_back());
      }
      kv_.finish_epoch();
      for (const dtkv_handle handle : handles) kv_.wait(handle);
    }));
    metrics.samples = static_cast<std::uint64_t>(counts[0]);
    metrics.right = static_cast<std::uint64_t>(counts[1]);
    metrics.loss = loss_[0].item<double>() * static_cast<double>(metrics.samples);
  }

  static Error not_finite(std::uint32_t epoch, std::string_view what) {
    return {
        ErrorKind::kInvalid,
        fmt::format("Epoch[{}]: {} not finite: a lower --lr may help; checkpoints before it stay",
                    epoch, what)};
  }

  /// Options of the pushes after the epoch's last step; each worker counts as one sample.
  static dtkv::Push last_push(std::uint32_t epoch) {
    return {.samples = 1, .step = std::uint64_t{epoch} << 32U | 0xffffffffU};
  }

  /// Saves the weights and statistics that were evaluated, after the optimizer's state: where the
  /// former are, the latter is.
  void save(std::uint32_t epoch) {
    const auto path = checkpoint_path(options_.model_prefix, epoch + 1);
    auto worlds = metadata_of({worlds_[0].item<float>(), worlds_[1].item<float>()});
    if (!save_optimizer(epoch) ||
        !checkpoints_.submit(path, parts_.named_arrays(), std::move(worlds))) {
      options_.say(fmt::format("Warning: no checkpoint {}: {} before it are still being written",
                               path.string(), CheckpointWriter::kMaxWaiting));
    }
  }

  /// False: too many files are still to be written.
  bool save_optimizer(std::uint32_t epoch) {
    dtkv::KVStore::Optimizer optimizer;
    must(checked("ask for the optimizer", [&] { optimizer = kv_.optimizer(); }));
    Metadata metadata{{"optimizer", optimizer.text}};
    std::vector<NamedArray> arrays;
    const auto& parameters = parts_.parameters();
    for (int which = 1; which <= optimizer.states; ++which) {
      KeyTable state;
      for (std::size_t i = 0; i < parameters.names.size(); ++i)
        state.add(parameters.names[i], torch::empty(parameters.tensors[i].sizes()));
      std::vector<std::uint64_t> updates;
      must(checked("pull the optimizer's state",
                   [&] { updates = kv_.pull_state(state.entries(), which); }));
      for (std::size_t i = 0; i < state.names.size(); ++i) {
        metadata[kUpdatesOf + state.names[i]] = std::to_string(updates[i]);
        arrays.push_back(named_array(state_name(state.names[i], which), state.tensors[i]));
      }
    }
    return checkpoints_.submit(optimizer_path(options_.model_prefix, epoch + 1), std::move(arrays),
                               std::move(metadata));
  }

  void tell_checkpoints() {
    for (const auto& line : checkpoints_.take_messages()) options_.say(line);
  }

  ModuleParts& parts_;
  KeyTable auxiliary_;   // statistics, and the trainer's keys that are exchanged after the steps
  KeyTable evaluation_;  // the trainer's keys that are exchanged after the evaluation
  torch::Tensor worlds_;
  torch::Tensor steps_;
  torch::Tensor counts_;
  torch::Tensor loss_;
  std::int64_t steps_began_ns_ = 0;  // of this epoch
  dtkv::KVStore& kv_;
  BaseDataIterator& data_;
  FitOptions options_;
  GradientExchange exchange_;
  DataIterators iterators_;
  dtkv_view view_{};
  CheckpointWriter checkpoints_;
};

}  // namespace

Module::Module(std::shared_ptr<Network> network) : Module(std::vector{std::move(network)}, {1}) {}
Module::Module(std::vector<std::shared_ptr<Network>> replicas, std::vector<double> loads)
    : parts_(std::make_unique<ModuleParts>(std::move(replicas), std::move(loads))) {}
Module::~Module() = default;
Module::Module(Module&&) noexcept = default;

Result<FitEnd> Module::fit(dtkv::KVStore& kv, BaseDataIterator& data, const FitOptions& options) {
  try {
    Fit fit(*parts_, kv, data, options);
    return fit.run();
  } catch (const Failure& failure) {
    return tl::unexpected(failure.error);
  } catch (const c10::Error& error) {
    return fail(ErrorKind::kInvalid, "libtorch: {}", error.what_without_backtrace());
  } catch (const dtkv::Error& error) {
    return fail(ErrorKind::kUnavailable, "{}", error.what());
  }
}

Result<Evaluation> Module::evaluate(BatchIterator& data) const {
  if (auto ok = parts_->settle(); !ok) return tl::unexpected(ok.error());
  const Metrics metrics = parts_->evaluate(data);
  return Evaluation{metrics.samples, metrics.right, metrics.mean_loss()};
}

Result<void> Module::save(const std::string& path) const {
  if (auto ok = parts_->settle(); !ok) return ok;
  return save_checkpoint(path, parts_->named_arrays(), metadata_of(parts_->worlds));
}

Result<void> Module::load(const std::string& path) {
  Metadata metadata;
  const auto arrays = load_checkpoint(path, &metadata);
  if (!arrays) return tl::unexpected(arrays.error());
  std::vector<std::pair<torch::Tensor, const NamedArray*>> found;
  const KeyTable* const tables[] = {&parts_->parameters(), &parts_->statistics.front()};
  for (const auto* table : tables) {
    for (std::size_t i = 0; i < table->names.size(); ++i) {
      const auto at = std::ranges::find(*arrays, table->names[i], &NamedArray::name);
      const auto& tensor = table->tensors[i];
      if (at == arrays->end() || at->shape != tensor.sizes().vec())
        return fail(ErrorKind::kInvalid, "{}: {} {}: it was made by another network", path,
                    at == arrays->end() ? "has no" : "has another shape of", table->names[i]);
      found.emplace_back(tensor, &*at);
    }
  }
  // Copied only after all checks: a checkpoint that does not fit changes nothing.
  const torch::NoGradGuard no_grad;
  for (auto& [tensor, array] : found) {
    const auto values = torch::tensor(array->values).view(tensor.sizes());
    tensor.data().copy_(values);
  }
  for (std::size_t r = 1; r < parts_->replicas.size(); ++r)
    parts_->replicas[r].flat.values.data().copy_(parts_->replicas.front().flat.values);
  parts_->spread_statistics();
  parts_->worlds = parse_worlds(metadata[kWorldsKey]);
  return {};
}

std::uint64_t Module::num_parameters() const {
  std::uint64_t n = 0;
  for (const auto& tensor : parts_->parameters().tensors)
    n += static_cast<std::uint64_t>(tensor.numel());
  return n;
}

void set_threads_from_environment() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  if (text == nullptr) return;
  std::string_view list(text);  // "8", or "8,1": a number for each level of nesting
  if (const int threads = take_number<int>(list).value_or(0); threads > 0)
    at::set_num_threads(threads);
}

std::string why_not(const std::vector<DeviceNumber>& devices) {
  if (!torch::cuda::is_available()) return "no CUDA device, or a libtorch without CUDA";
  const auto count = static_cast<DeviceNumber>(torch::cuda::device_count());
  for (const DeviceNumber device : devices)
    if (device >= count)
      return fmt::format("there is no device {}: 0 to {} are here", device, count - 1);
  return {};
}

void move_to(Network& network, DeviceNumber device) {
  if (device >= 0) network.to(torch::Device(torch::kCUDA, static_cast<torch::DeviceIndex>(device)));
}

}  // namespace dt::train
