#include "kvstore/bench/soak.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "kvstore/bench/contender.h"
#include "kvstore/bench/worker.h"
#include "kvstore/compute/compression.h"

namespace dt::bench {

namespace {

namespace fs = std::filesystem;

/// Parts of a run, with a sample after each.
constexpr std::uint64_t kParts = 20;
constexpr std::size_t kFirstTenth = kParts / 10;  ///< The sample at its end.
/// An allocator may add or remove a few after the first tenth; a leak adds thousands.
constexpr std::uint32_t kMoreMappings = 8;

Result<std::uint32_t> entries_of(const std::string& folder) {
  std::error_code ec;
  std::uint32_t count = 0;
  for (fs::directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec)) ++count;
  if (ec) return fail(ErrorKind::kUnavailable, "read {}: {}", folder, ec.message());
  return count;
}

std::uint64_t chunks_of(const KvOptions& options) {
  const std::uint64_t most = options.chunk_bytes / sizeof(float);
  std::uint64_t chunks = 0;
  for (const std::uint64_t count : options.lists.front().elements)
    chunks += std::max<std::uint64_t>(1, (count + most - 1) / most);
  return chunks;
}

/// The running kvstore's processes.
class Soaking {
 public:
  Soaking(Contender store, const KvOptions& options)
      : store_(std::move(store)), options_(options), chunks_(chunks_of(options)) {
    for (std::uint32_t w = 0; w < options.workers; ++w)
      result_.names.push_back(fmt::format("worker {}", w));
    for (std::uint32_t s = 0; s < options.servers; ++s)
      result_.names.push_back(fmt::format("server {}", s));
  }

  Result<Soak> run(const std::function<void(const Soak&)>& report) {
    if (auto ready = store_.control.await_ready(kStartLimit, watch()); !ready)
      return tl::unexpected(ready.error());
    begin_ = now_s();
    for (std::uint64_t part = 0; part <= kParts; ++part) {
      if (auto done = operations_until(options_.soak_rounds * part / kParts); !done)
        return tl::unexpected(done.error());
      if (auto taken = take_sample(); !taken) return tl::unexpected(taken.error());
      report(result_);
    }
    Command quit;
    quit.order = Order::kQuit;
    store_.control.order(quit);
    if (auto joined = store_.children.join(kEndLimit); !joined)
      return tl::unexpected(joined.error());
    result_.bad = store_.control.bad();
    return std::move(result_);
  }

 private:
  Control::Watch watch() {
    return [this] { return store_.children.watch(); };
  }

  Result<void> order(Order what, std::uint32_t operations) {
    Command command;
    command.order = what;
    command.operations = operations;
    command.round = static_cast<std::uint32_t>(result_.samples.size()) + 1;
    command.straggle = options_.straggle;
    store_.control.order(command);
    rounds_ += operations * chunks_;
    return store_.control.await_done(kOrderLimit, watch());
  }

  /// Runs up to this many rounds since the start, and checks the last operation.
  Result<void> operations_until(std::uint64_t rounds) {
    while (rounds_ + chunks_ < rounds) {
      const std::uint64_t left = (rounds - rounds_ - 1) / chunks_;
      const auto now = static_cast<std::uint32_t>(std::min<std::uint64_t>(left, at_once_));
      const double before = now_s();
      if (auto done = order(Order::kTime, now); !done) return done;
      // Orders of about a second, so that a hang is detected.
      if (now_s() - before < 1) at_once_ = std::min(2 * at_once_, kMostOperations);
    }
    return order(Order::kVerify, 1);
  }

  Result<void> take_sample() {
    SoakSample sample;
    sample.rounds = rounds_;
    sample.seconds = now_s() - begin_;
    for (const int pid : store_.control.pids()) {
      auto usage = usage_of(pid);
      if (!usage) return tl::unexpected(usage.error());
      sample.processes.push_back(*usage);
    }
    result_.samples.push_back(std::move(sample));
    return {};
  }

  Contender store_;
  const KvOptions& options_;
  std::uint64_t chunks_;
  std::uint64_t rounds_ = 0;
  std::uint32_t at_once_ = 1;
  double begin_ = 0;
  Soak result_;
};

double megabytes(std::uint64_t bytes) { return static_cast<double>(bytes) / 1e6; }

}  // namespace

Result<Usage> usage_of(int pid) {
  const std::string folder = fmt::format("/proc/{}/", pid);
  Usage usage;
  // VmRSS in status is the sum of counters that lag; this value is counted page by page.
  std::ifstream rollup(folder + "smaps_rollup");
  rollup.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  std::string name;
  std::uint64_t kilobytes = 0;
  if (!(rollup >> name >> kilobytes) || name != "Rss:")
    return fail(ErrorKind::kUnavailable, "{}smaps_rollup says nothing of Rss", folder);
  usage.resident = kilobytes * 1024;
  std::ifstream maps(folder + "maps");
  for (std::string line; std::getline(maps, line);) ++usage.mappings;
  const auto descriptors = entries_of(folder + "fd");
  if (!descriptors) return tl::unexpected(descriptors.error());
  usage.descriptors = *descriptors;
  const auto threads = entries_of(folder + "task");
  if (!threads) return tl::unexpected(threads.error());
  usage.threads = *threads;
  return usage;
}

Result<Soak> soak(const KvOptions& options, const std::function<void(const Soak&)>& report) {
  auto store = start_store(options, options.lists.front());
  if (!store) return tl::unexpected(store.error());
  return Soaking(std::move(*store), options).run(report);
}

std::vector<std::string> grown(const KvOptions& options, const Soak& soak) {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < soak.names.size(); ++i) {
    const Usage& from = soak.samples.at(kFirstTenth).processes.at(i);
    const Usage& to = soak.samples.back().processes.at(i);
    if (to.resident > from.resident + options.soak_growth)
      all.push_back(fmt::format("{}: memory grew from {:.2f} to {:.2f} MB (--growth)",
                                soak.names[i], megabytes(from.resident), megabytes(to.resident)));
    if (to.descriptors > from.descriptors)
      all.push_back(fmt::format("{}: descriptors grew from {} to {}", soak.names[i],
                                from.descriptors, to.descriptors));
    if (to.mappings > from.mappings + kMoreMappings)
      all.push_back(fmt::format("{}: mappings grew from {} to {}", soak.names[i], from.mappings,
                                to.mappings));
    if (to.threads > from.threads)
      all.push_back(
          fmt::format("{}: threads grew from {} to {}", soak.names[i], from.threads, to.threads));
  }
  return all;
}

std::string soak_head(const KvOptions& options, const Soak& soak) {
  std::string text = fmt::format(
      "dtbench kv --soak: {} of {}, {}, {}, transport {}; per process: MB "
      "resident, descriptors/mappings/threads\n{:>12}{:>9}",
      to_string(options.operation), options.lists.front().name, options.type,
      kv::name_of(options.codec), to_string(options.transport), "rounds", "s");
  for (const auto& name : soak.names) text += fmt::format("{:>22}", name);
  return text + "\n";
}

std::string soak_line(const SoakSample& sample) {
  std::string text = fmt::format("{:>12}{:>9.1f}", sample.rounds, sample.seconds);
  for (const auto& usage : sample.processes)
    text += fmt::format("{:>11.2f}{:>11}", megabytes(usage.resident),
                        fmt::format("{}/{}/{}", usage.descriptors, usage.mappings, usage.threads));
  return text + "\n";
}

std::string soak_json(const KvOptions& options, const Soak& soak) {
  nlohmann::json samples = nlohmann::json::array();
  for (const auto& sample : soak.samples) {
    nlohmann::json processes = nlohmann::json::array();
    for (std::size_t i = 0; i < soak.names.size(); ++i) {
      const Usage& usage = sample.processes[i];
      processes.push_back({{"name", soak.names[i]},
                           {"resident_bytes", usage.resident},
                           {"descriptors", usage.descriptors},
                           {"mappings", usage.mappings},
                           {"threads", usage.threads}});
    }
    samples.push_back({{"rounds", sample.rounds},
                       {"seconds", sample.seconds},
                       {"processes", std::move(processes)}});
  }
  const nlohmann::json whole = {{"program", "dtbench kv --soak"},
                                {"list", options.lists.front().name},
                                {"transport", to_string(options.transport)},
                                {"samples", std::move(samples)},
                                {"grown", grown(options, soak)},
                                {"bad", soak.bad}};
  return whole.dump(1) + "\n";
}

}  // namespace dt::bench
