#include "kvstore/bench/job_run.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "kvstore/bench/control.h"
#include "kvstore/bench/store_exchange.h"
#include "kvstore/link/agent_socket.h"
#include "kvstore/link/environment.h"
#include "kvstore/protocol/messages.h"
#include "kvstore/worker/client.h"

namespace dt::bench {

namespace {

/// Number of times that each worker sends to the others: quantiles of all its times.
constexpr std::size_t kQuantiles = 256;

/// Exchanges results between workers, through the store itself.
class Numbers {
 public:
  Numbers(kv::Store& store, std::size_t size) : store_(store), given_(size, 0.0), sum_(size, 0.0) {
    push_.reduce = data::Reduce::kSum;
  }

  Result<void> prepare() {
    // Auxiliary: no optimizer touches it, and in dist_async too it is a round of all workers.
    return result_of(store_.init(kKey, array(sum_), data::kAuxiliary));
  }

  /// The sum of all workers' arguments; missing elements count as zeros.
  Result<std::vector<double>> add_up(const std::vector<double>& mine) {
    given_ = mine;
    given_.resize(sum_.size());
    if (auto done = finish(store_.push(kKey, array(given_), push_)); !done)
      return tl::unexpected(done.error());
    if (auto met = store_.barrier(); !met) return tl::unexpected(error_of(met.error()));
    if (auto done = finish(store_.pull(kKey, array(sum_), {})); !done)
      return tl::unexpected(done.error());
    if (auto met = store_.barrier(); !met) return tl::unexpected(error_of(met.error()));
    return sum_;
  }

 private:
  static std::vector<kv::Array> array(std::vector<double>& values) {
    return {{values.data(), values.size(), data::Dtype::kFloat64}};
  }
  Result<void> finish(const kv::StoreResult<kv::Handle>& handle) {
    if (!handle) return tl::unexpected(error_of(handle.error()));
    return result_of(store_.wait(*handle, kWaitLimit));
  }

  const std::vector<std::string> kKey = {"dtbench"};
  kv::Store& store_;
  kv::PushOptions push_;
  std::vector<double> given_;
  std::vector<double> sum_;
};

/// One list, measured by all workers together. `options.workers` is the job's.
class JobMeasurement {
 public:
  JobMeasurement(const KvOptions& options, const TensorList& list, kv::Store& store,
                 Numbers& numbers, const std::string& prefix)
      : options_(options),
        list_(list),
        store_(store),
        numbers_(numbers),
        rank_(store.view().rank.value),
        exchange_(options, list, store, prefix) {
    series_.name = "kvstore";
  }

  Result<Measurement> run() {
    if (auto done = measure(); !done) return tl::unexpected(done.error());
    Measurement measurement;
    measurement.list = list_;
    measurement.series.push_back(std::move(series_));
    return measurement;
  }

 private:
  Result<void> measure() {
    if (auto done = exchange_.prepare(); !done) return done;
    if (auto done = verify_one(); !done) return done;
    if (auto done = choose_operations(); !done) return done;
    for (std::uint32_t r = 0; r < options_.repetitions; ++r)
      if (auto done = repeat(); !done) return done;
    if (auto done = verify_one(); !done) return done;
    return collect();
  }

  Meet meet() {
    return [this] { return result_of(store_.barrier()); };
  }

  Result<void> verify_one(double* seconds = nullptr) {
    const auto found = verify(exchange_, rank_, options_.workers, round_++, meet());
    if (!found) return tl::unexpected(found.error());
    bad_ += found->bad;
    if (seconds) *seconds = found->seconds;
    return {};
  }

  Result<double> time(std::vector<double>& times) {
    if (!options_.verify_all) return time_operations(exchange_, times, meet(), straggle_);
    double sum = 0;
    for (double& one : times) {
      if (auto done = verify_one(&one); !done) return tl::unexpected(done.error());
      sum += one;
    }
    return sum;
  }

  /// Seconds of an operation on the slowest worker; the same number on all workers.
  Result<double> time_together(std::vector<double>& times) {
    const auto mine = time(times);
    if (!mine) return mine;
    std::vector<double> slot(options_.workers, 0.0);
    slot[rank_] = *mine;
    auto all = numbers_.add_up(slot);
    if (!all) return tl::unexpected(all.error());
    return *std::max_element(all->begin(), all->begin() + options_.workers) /
           static_cast<double>(times.size());
  }

  Result<void> choose_operations() {
    for (const std::uint32_t most : {64U, kMostOperations}) {
      std::vector<double> times(options_.verify_all ? 1 : operations_);
      const auto slowest = time_together(times);
      if (!slowest) return tl::unexpected(slowest.error());
      const double wanted = options_.seconds / std::max(*slowest, 1e-9);
      operations_ = operations_for(options_, wanted, most);
    }
    if (options_.verify_all) operations_ = std::min(operations_, kMostVerified);
    return {};
  }

  Result<void> repeat() {
    std::vector<double> times(operations_);
    const auto slowest = time_together(times);
    if (!slowest) return tl::unexpected(slowest.error());
    series_.operation.push_back(*slowest);
    singles_.insert(singles_.end(), times.begin(), times.end());
    series_.operations += operations_;
    return {};
  }

  /// The times and wrong elements of all workers.
  Result<void> collect() {
    std::vector<double> mine(options_.workers * kQuantiles + 1, 0.0);
    for (std::size_t q = 0; q < kQuantiles; ++q) {
      const double part = (static_cast<double>(q) + 0.5) / static_cast<double>(kQuantiles);
      mine[rank_ * kQuantiles + q] = percentile(singles_, part);
    }
    mine.back() = static_cast<double>(bad_);
    const auto all = numbers_.add_up(mine);
    if (!all) return tl::unexpected(all.error());
    series_.single.assign(all->begin(), all->end() - 1);
    series_.bad = static_cast<std::uint64_t>(all->back());
    return {};
  }

  const KvOptions& options_;
  const TensorList& list_;
  kv::Store& store_;
  Numbers& numbers_;
  std::uint32_t rank_;
  StoreExchange exchange_;
  Straggle straggle_{options_.straggle, rank_, options_.workers};
  std::uint32_t operations_ = 1;
  std::uint32_t round_ = 1;
  std::uint64_t bad_ = 0;
  std::vector<double> singles_;
  Series series_;
};

/// As kv::open_client_from_environment(), with chunks of another size.
kv::StoreResult<std::unique_ptr<kv::Store>> open_store(const KvOptions& options,
                                                       const kv::JobEnvironment& env) {
  kv::ClientOptions client;
  client.type = options.type;
  client.async = options.is_async();
  client.worker = WorkerId(env.id);
  client.rank = Rank(env.rank);
  client.num_workers = env.num_workers;
  client.newcomer = env.newcomer;
  client.secret = env.secret;
  client.start_limit = env.start_timeout;
  client.transport = env.transport;
  client.busy_poll = env.busy_poll();
  client.chunk_bytes = options.chunk_bytes;
  return kv::open_client(std::move(client), kv::make_job_control(env.agent));
}

Result<JobResult> measure_all(KvOptions options, std::uint32_t servers, kv::Store& store) {
  const auto view = store.epoch_boundary(Epoch(0));
  if (!view) return tl::unexpected(error_of(view.error()));
  if (store.is_newcomer())
    return fail(ErrorKind::kInvalid, "a worker was added: dtbench measures a job of one size");
  JobResult result;
  result.workers = options.workers = view->num_workers;
  result.servers = servers;
  result.is_reporter = view->rank == Rank(0);
  Numbers numbers(store, options.workers * kQuantiles + 1);
  if (auto ready = numbers.prepare(); !ready) return tl::unexpected(ready.error());
  for (std::size_t i = 0; i < options.lists.size(); ++i) {
    const std::string prefix = fmt::format("list{}.tensor", i);
    JobMeasurement one(options, options.lists[i], store, numbers, prefix);
    auto measurement = one.run();
    if (!measurement) return tl::unexpected(measurement.error());
    result.measurements.push_back(std::move(*measurement));
  }
  return result;
}

}  // namespace

Error exec_dtlaunch(const KvOptions& options) {
  std::error_code ec;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", ec);
  const auto beside = self.parent_path() / "dtlaunch";
  std::vector<std::string> words = {
      std::filesystem::exists(beside, ec) ? beside.string() : "dtlaunch",
      "-n",
      std::to_string(options.workers),
      "-s",
      std::to_string(options.servers),
      "-H",
      options.hosts,
      "--no-prefix"};
  // Options that the job's servers and their agents need as well.
  if (options.transport != kv::Transport::kAuto)
    words.insert(words.end(), {"--transport", to_string(options.transport)});
  if (options.is_deterministic) words.emplace_back("--deterministic");
  if (options.busy_poll > Duration::zero()) {
    const auto poll = std::chrono::duration_cast<std::chrono::microseconds>(options.busy_poll);
    words.insert(words.end(), {"--busy-poll", std::to_string(poll.count())});
  }
  words.insert(words.end(), options.launch_words.begin(), options.launch_words.end());
  words.insert(words.end(), {self.string(), "kv"});
  words.insert(words.end(), options.job_words.begin(), options.job_words.end());
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  return errno_error(errno, "-H: run " + words[0]);
}

bool is_in_job() { return std::getenv("DT_AGENT_SOCKET") != nullptr; }

Result<JobResult> run_in_job(const KvOptions& options) {
  const auto env = kv::read_environment(Role::kWorker);
  if (!env) return tl::unexpected(env.error());
  auto store = open_store(options, *env);
  if (!store) return tl::unexpected(error_of(store.error()));
  auto result = measure_all(options, env->num_servers, **store);
  if (!result) (void)(*store)->wait_all(5);
  if (result) result->transport = env->transport;
  return result;
}

}  // namespace dt::bench
