#include "test/bench/kv/measure.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <deque>
#include <filesystem>
#include <fstream>

#include "test/bench/kv/contender.h"
#include "test/bench/kv/failure.h"
#include "test/bench/kv/peers.h"

namespace dt::bench {

namespace {

/// CPU seconds of these processes so far.
double cpu_of(const std::vector<int>& pids) {
  double sum = 0;
  for (const int pid : pids) {
    clockid_t clock{};
    timespec used{};
    if (::clock_getcpuclockid(pid, &clock) == 0 && ::clock_gettime(clock, &used) == 0)
      sum += static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
  }
  return sum;
}

/// CPU nanoseconds of each thread of these processes so far.
std::vector<double> thread_times(const std::vector<int>& pids) {
  std::vector<double> all;
  std::error_code ec;
  for (const int pid : pids)
    for (const auto& task :
         std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), ec)) {
      std::ifstream file(task.path() / "schedstat");
      double used = 0;
      if (file >> used) all.push_back(used);
    }
  return all;
}

std::uint32_t count_busy(const std::vector<double>& times) {
  if (times.empty()) return 0;
  const double least = *std::ranges::max_element(times) / 20;
  return static_cast<std::uint32_t>(
      std::ranges::count_if(times, [&](double used) { return used > 0 && used >= least; }));
}

/// A contender whose processes are ready, and its results so far.
class Running {
 public:
  /// Waits for the processes, checks a round, and determines the number of operations per
  /// repetition.
  Running(Contender contender, const KvOptions& options, const TensorList& list)
      : contender_(std::move(contender)), options_(options), bytes_(list.bytes()) {
    series_.name = contender_.name;
    at(series_.name, [this] { contender_.await_ready(); });
    contender_.folder.remove();  // they have met
    order(Order::kVerify, 1);
    // Twice, since the first times are those of cold caches and connections.
    for (const std::uint32_t most : {64U, kMostOperations}) {
      order(Order::kTime, operations_);
      const double wanted = options_.seconds / std::max(slowest(), 1e-9);
      operations_ = operations_for(options_, wanted, most);
    }
    if (options_.verify_all) operations_ = std::min(operations_, kMostVerified);
  }

  void repeat() {
    const auto pids = contender_.control.pids();
    const double cpu = cpu_of(pids);
    order(options_.verify_all ? Order::kVerify : Order::kTime, operations_);
    const double payload = static_cast<double>(bytes_) * options_.workers * operations_ / 1e9;
    if (!options_.verify_all) series_.cpu_per_gb.push_back((cpu_of(pids) - cpu) / payload);
    series_.operation.push_back(slowest());
    for (std::uint32_t w = 0; w < options_.workers; ++w) {
      const auto times = contender_.control.times(w).first(operations_);
      series_.single.insert(series_.single.end(), times.begin(), times.end());
    }
    series_.operations += operations_;
    if (const auto kept = contender_.control.kept()) series_.kept.push_back(*kept);
  }

  Series end() {
    order(Order::kVerify, 1);
    series_.busy_loops = count_busy(thread_times(contender_.control.server_pids()));
    series_.bad = at(series_.name, [this] { return contender_.quit(); });
    series_.read_in_place = contender_.control.read_in_place();
    return std::move(series_);
  }

 private:
  void order(Order what, std::uint32_t operations) {
    const Command command{what, operations, next_round_, options_.straggle};
    if (what != Order::kTime) next_round_ += operations;
    at(series_.name, [&] { contender_.order(command); });
  }

  /// Seconds of an operation on the slowest worker.
  double slowest() {
    double most = 0;
    for (std::uint32_t w = 0; w < options_.workers; ++w)
      most = std::max(most, contender_.control.elapsed(w));
    return most / operations_;
  }

  Contender contender_;
  const KvOptions& options_;
  std::uint64_t bytes_;
  std::uint32_t operations_ = 1;
  std::uint32_t next_round_ = 1;
  Series series_;
};

/// Refuses options that need more memory than the machine has.
void check_memory(const KvOptions& options, const TensorList& list) {
  std::ifstream file("/proc/meminfo");
  std::string name;
  double kilobytes = 0;
  double available = 0;
  while (file >> name >> kilobytes) {
    if (name == "MemAvailable:") available = kilobytes * 1024;
    file.ignore(100, '\n');
  }
  // A worker's gradient and result; a server's value, its open round, its answers.
  const double copies = 3.0 * options.workers + 2;
  const double wanted =
      static_cast<double>(list.bytes()) * copies * static_cast<double>(1 + options.peers.size());
  if (available > 0 && wanted > available)
    throw Failure(
        "{} with {} workers needs about {:.1f} GB of memory, and {:.1f} GB are free: take fewer "
        "workers, peers or a smaller list",
        list.name, options.workers, wanted / 1e9, available / 1e9);
}

}  // namespace

Measurement measure(const KvOptions& options, const TensorList& list) {
  check_memory(options, list);
  std::deque<Running> all;
  all.emplace_back(start_store(options, list), options, list);
  for (const auto& peer : options.peers)
    all.emplace_back(start_peer(peer, options, list), options, list);
  // Interleaved, in alternating order, so that other load on the machine affects all alike.
  for (std::uint32_t r = 0; r < options.repetitions; ++r)
    for (std::size_t i = 0; i < all.size(); ++i) all[(i + r) % all.size()].repeat();
  Measurement measurement{list, {}};
  for (auto& running : all) measurement.series.push_back(running.end());
  return measurement;
}

std::uint32_t operations_for(const KvOptions& options, double wanted, std::uint32_t most) {
  const double operations = std::clamp(wanted, 1.0, static_cast<double>(most));
  const auto whole = static_cast<std::uint32_t>(operations);
  if (options.straggle <= 0) return whole;
  const std::uint32_t turns = (whole + options.workers - 1) / options.workers;
  return std::min(turns, most / options.workers) * options.workers;
}

double Series::gigabytes_per_s(std::uint64_t bytes) const {
  return static_cast<double>(bytes) / 1e9 / median(operation);
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double percentile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  const auto rank = std::ceil(part * static_cast<double>(values.size()));
  const auto index = static_cast<std::size_t>(std::max(rank, 1.0)) - 1;
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(index));
  return values[index];
}

double median_ratio(const std::vector<double>& ours, const std::vector<double>& theirs) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i)
    ratios.push_back(ours[i] / theirs[i]);
  return median(std::move(ratios));
}

}  // namespace dt::bench
