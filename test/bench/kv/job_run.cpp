#include "test/bench/kv/job_run.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <numeric>

#include "kvstore/link/link_environment.h"
#include "kvstore/protocol/messages.h"
#include "kvstore/worker/client.h"
#include "test/bench/kv/control.h"
#include "test/bench/kv/failure.h"
#include "test/bench/kv/store_exchange.h"

namespace dt::bench {

namespace {

/// Number of times that each worker sends to the others: quantiles of all its times.
constexpr std::size_t kQuantiles = 256;

/// Exchanges results between workers, through the store itself.
class Numbers {
 public:
  Numbers(kv::Store& store, std::size_t size) : store_(store), given_(size, 0.0), sum_(size, 0.0) {
    push_.reduce = data::Reduce::kSum;
    // Auxiliary: no optimizer touches it, and in dist_async too it is a round of all workers.
    must(store_.init(kKey, array(sum_), data::kAuxiliary));
  }

  /// The sum of all workers' arguments; missing elements count as zeros.
  std::vector<double> add_up(const std::vector<double>& mine) {
    given_ = mine;
    given_.resize(sum_.size());
    wait(store_.push(kKey, array(given_), push_));
    must(store_.barrier());
    wait(store_.pull(kKey, array(sum_), {}));
    must(store_.barrier());
    return sum_;
  }

 private:
  static std::vector<kv::Array> array(std::vector<double>& values) {
    return {{values.data(), values.size(), data::Dtype::kFloat64}};
  }
  void wait(const kv::StoreResult<kv::Handle>& handle) {
    must(store_.wait(must(handle), kWaitLimit));
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

  Measurement run() {
    verify_one();
    choose_operations();
    for (std::uint32_t r = 0; r < options_.repetitions; ++r) repeat();
    verify_one();
    collect();
    return {list_, {std::move(series_)}};
  }

 private:
  Meet meet() {
    return [this] { must(store_.barrier()); };
  }

  /// Seconds of the operation.
  double verify_one() {
    const Verified found = verify(exchange_, rank_, options_.workers, round_++, meet());
    bad_ += found.bad;
    return found.seconds;
  }

  double time(std::vector<double>& times) {
    if (!options_.verify_all) return time_operations(exchange_, times, meet(), straggle_);
    for (double& one : times) one = verify_one();
    return std::accumulate(times.begin(), times.end(), 0.0);
  }

  /// Seconds of an operation on the slowest worker; the same number on all workers.
  double time_together(std::vector<double>& times) {
    std::vector<double> slot(options_.workers, 0.0);
    slot[rank_] = time(times);
    const auto all = numbers_.add_up(slot);
    return *std::max_element(all.begin(), all.begin() + options_.workers) /
           static_cast<double>(times.size());
  }

  void choose_operations() {
    for (const std::uint32_t most : {64U, kMostOperations}) {
      std::vector<double> times(options_.verify_all ? 1 : operations_);
      const double wanted = options_.seconds / std::max(time_together(times), 1e-9);
      operations_ = operations_for(options_, wanted, most);
    }
    if (options_.verify_all) operations_ = std::min(operations_, kMostVerified);
  }

  void repeat() {
    std::vector<double> times(operations_);
    series_.operation.push_back(time_together(times));
    singles_.insert(singles_.end(), times.begin(), times.end());
    series_.operations += operations_;
  }

  /// The times and wrong elements of all workers.
  void collect() {
    std::vector<double> mine(options_.workers * kQuantiles + 1, 0.0);
    for (std::size_t q = 0; q < kQuantiles; ++q) {
      const double part = (static_cast<double>(q) + 0.5) / static_cast<double>(kQuantiles);
      mine[rank_ * kQuantiles + q] = percentile(singles_, part);
    }
    mine.back() = static_cast<double>(bad_);
    const auto all = numbers_.add_up(mine);
    series_.single.assign(all.begin(), all.end() - 1);
    series_.bad = static_cast<std::uint64_t>(all.back());
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

JobResult measure_all(KvOptions options, std::uint32_t servers, kv::Store& store) {
  const auto view = must(store.epoch_boundary(Epoch(0)));
  if (store.is_newcomer()) throw Failure("a worker was added: dtbench measures a job of one size");
  JobResult result;
  result.workers = options.workers = view.num_workers;
  result.servers = servers;
  result.is_reporter = view.rank == Rank(0);
  Numbers numbers(store, options.workers * kQuantiles + 1);
  for (std::size_t i = 0; i < options.lists.size(); ++i) {
    const std::string prefix = fmt::format("list{}.tensor", i);
    JobMeasurement one(options, options.lists[i], store, numbers, prefix);
    result.measurements.push_back(one.run());
  }
  return result;
}

}  // namespace

void exec_dtlaunch(const KvOptions& options) {
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
  if (options.data_auth != kv::DataAuth::kAuto)
    words.insert(words.end(), {"--data-auth", to_string(options.data_auth)});
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
  throw Failure(errno_error(errno, "-H: run " + words[0]));
}

bool is_in_job() { return std::getenv("DT_AGENT_SOCKET") != nullptr; }

JobResult run_in_job(const KvOptions& options) {
  const auto env = must(kv::read_environment(Role::kWorker));
  const auto store = must(kv::open_client_from_environment(options.type, options.chunk_bytes));
  try {
    JobResult result = measure_all(options, env.num_servers, *store);
    result.transport = env.transport;
    return result;
  } catch (...) {
    (void)store->wait_all(5);
    throw;
  }
}

}  // namespace dt::bench
