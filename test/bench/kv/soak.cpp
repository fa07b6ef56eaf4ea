#include "test/bench/kv/soak.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "kvstore/compute/compression.h"
#include "test/bench/kv/contender.h"
#include "test/bench/kv/failure.h"
#include "test/bench/kv/worker.h"

namespace dt::bench {

namespace {

namespace fs = std::filesystem;

/// Parts of a run, with a sample after each.
constexpr std::uint64_t kParts = 20;
constexpr std::size_t kFirstTenth = kParts / 10;  ///< The sample at its end.
/// An allocator may add or remove a few after the first tenth; a leak adds thousands.
constexpr std::uint32_t kMoreMappings = 8;

std::uint32_t entries_of(const std::string& folder) {
  std::error_code ec;
  std::uint32_t entries = 0;
  for (fs::directory_iterator at(folder, ec); at != fs::directory_iterator(); at.increment(ec))
    ++entries;
  if (ec) throw Failure("read {}: {}", folder, ec.message());  // it has ended the loop
  return entries;
}

Usage usage_of(int pid) {
  const std::string folder = fmt::format("/proc/{}/", pid);
  Usage usage;
  // VmRSS in status is the sum of counters that lag; this value is counted page by page.
  std::ifstream rollup(folder + "smaps_rollup");
  rollup.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  std::string name;
  std::uint64_t kilobytes = 0;
  if (!(rollup >> name >> kilobytes) || name != "Rss:")
    throw Failure("{}smaps_rollup says nothing of Rss", folder);
  usage.resident = kilobytes * 1024;
  std::ifstream maps(folder + "maps");
  for (std::string line; std::getline(maps, line);) ++usage.mappings;
  usage.descriptors = entries_of(folder + "fd");
  usage.threads = entries_of(folder + "task");
  return usage;
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

  Soak run(const std::function<void(const Soak&)>& report) {
    store_.await_ready();
    begin_ = now_s();
    for (std::uint64_t part = 0; part <= kParts; ++part) {
      operations_until(options_.soak_rounds * part / kParts);
      take_sample();
      report(result_);
    }
    result_.bad = store_.quit();
    return std::move(result_);
  }

 private:
  void order(Order what, std::uint32_t operations) {
    const auto round = static_cast<std::uint32_t>(result_.samples.size()) + 1;
    store_.order({what, operations, round, options_.straggle});
    rounds_ += operations * chunks_;
  }

  /// Runs up to this many rounds since the start, and checks the last operation.
  void operations_until(std::uint64_t rounds) {
    while (rounds_ + chunks_ < rounds) {
      const std::uint64_t left = (rounds - rounds_ - 1) / chunks_;
      const auto now = static_cast<std::uint32_t>(std::min<std::uint64_t>(left, at_once_));
      const double before = now_s();
      order(Order::kTime, now);
      // Orders of about a second, so that a hang is detected.
      if (now_s() - before < 1) at_once_ = std::min(2 * at_once_, kMostOperations);
    }
    order(Order::kVerify, 1);
  }

  void take_sample() {
    SoakSample sample;
    sample.rounds = rounds_;
    sample.seconds = now_s() - begin_;
    for (const int pid : store_.control.pids()) sample.processes.push_back(usage_of(pid));
    result_.samples.push_back(std::move(sample));
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

Soak soak(const KvOptions& options, const std::function<void(const Soak&)>& report) {
  return Soaking(start_store(options, options.lists.front()), options).run(report);
}

std::vector<std::string> grown(const KvOptions& options, const Soak& soak) {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < soak.names.size(); ++i) {
    const Usage& from = soak.samples.at(kFirstTenth).processes.at(i);
    const Usage& to = soak.samples.back().processes.at(i);
    if (to.resident > from.resident + options.soak_growth)
      all.push_back(fmt::format("{}: memory grew from {:.2f} to {:.2f} MB (--growth)",
                                soak.names[i], megabytes(from.resident), megabytes(to.resident)));
    const auto look_at = [&](const char* what, std::uint32_t Usage::*count, std::uint32_t more) {
      if (to.*count > from.*count + more)
        all.push_back(
            fmt::format("{}: {} grew from {} to {}", soak.names[i], what, from.*count, to.*count));
    };
    look_at("descriptors", &Usage::descriptors, 0);
    look_at("mappings", &Usage::mappings, kMoreMappings);
    look_at("threads", &Usage::threads, 0);
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
