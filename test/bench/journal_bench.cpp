/// How long a supervisor reads the journal of a long job, before and after it is cut: by default
/// 1,000 workers and 20,000 boundaries, of which one in ten saves a checkpoint and one in a hundred
/// follows the death of a worker that is started again.
///
///     journal_bench [WORKERS [BOUNDARIES]]
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/number.h"
#include "core/files/journal.h"
#include "core/job/boundary.h"
#include "core/job/job.h"
#include "core/job/snapshot.h"

using namespace dt;

namespace {

constexpr std::int64_t kBegan_ns = 1'763'664'000'000'000'000;

std::vector<Record> long_job(std::uint32_t workers, std::uint32_t boundaries) {
  std::vector<Host> hosts;
  std::vector<WorkerId> view;
  for (std::uint32_t i = 0; i < workers; ++i) {
    hosts.push_back(Host{"", fmt::format("node{:04}", i), 0});
    view.push_back(WorkerId(i));
  }
  std::vector<Record> records{JobBegan{hosts, {hosts.front()}}, TermBegan{Term(1)}};
  for (const Host& host : hosts) records.push_back(AgentKnown{host, "boot", 1});
  WorkerId next(workers);
  Generation generation(1);
  std::uint64_t seq = 0;
  for (std::uint32_t i = 0; i < boundaries; ++i) {
    Committed c{generation, true, Epoch(i), view, view, {}, {}, i % 10 == 9};
    if (i % 100 == 99) {
      const Host& host = hosts[i / 100 % workers];
      const WorkerId dead = view[i / 100 % workers];
      records.push_back(WorkerGone{dead, {1, 0}, "", {{seq++, false, host, kBegan_ns + i}}});
      std::erase(c.contributors, dead);
      generation = generation.next();
      records.push_back(
          Committed{generation, false, Epoch(i - 1), view, c.contributors, {}, {}, false});
      records.push_back(WorkerAllotted{next, host, {}});
      view = c.contributors;
      view.push_back(next);
      c.members = c.contributors = view;
      c.log = {{seq++, true, host, kBegan_ns + i}};
      next = next.next();
    }
    if (!c.saves && c.log.empty()) {
      records.push_back(EpochBegan{Epoch(i)});
      continue;
    }
    c.generation = generation = generation.next();
    records.push_back(c);
    if (c.saves) records.push_back(CheckpointTaken{Epoch(i), generation});
    records.push_back(TimeSpent{i, {{"boundary", i}}});
  }
  return records;
}

std::string file_of(std::string_view header, const std::vector<Record>& records) {
  std::string bytes(header);
  for (const Record& record : records) {
    const wire::Frame frame = to_frame(record);
    bytes += journal::append_bytes(frame.type, frame.body);
  }
  return bytes;
}

std::vector<Record> read(const std::string& bytes) {
  std::vector<Record> records;
  for (const wire::Frame& frame : journal::replay(bytes).records)
    records.push_back(record_from(frame).value());
  return records;
}

double seconds_since(std::chrono::steady_clock::time_point begun) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

/// Bytes and records to a job.
void print(const char* what, const std::string& bytes) {
  const auto begun = std::chrono::steady_clock::now();
  const auto records = read(bytes);
  const double parsed = seconds_since(begun);
  const Job job({}, records, {Time{} + std::chrono::hours(1), kBegan_ns});
  fmt::print("{:<8} {:>8.2f} MB {:>8} records, read in {:.3f} s, replayed in {:.3f} s: epoch {}\n",
             what, static_cast<double>(bytes.size()) / 1e6, records.size(), parsed,
             seconds_since(begun) - parsed, *job.boundary().epoch());
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, std::uint32_t by_default) {
    return argc > i ? parse_number<std::uint32_t>(argv[i]).value_or(by_default) : by_default;
  };
  const std::string whole = file_of(journal::kHeader, long_job(number(1, 1000), number(2, 20'000)));
  print("whole", whole);
  const auto begun = std::chrono::steady_clock::now();
  const std::string cut = file_of(journal::kCutHeader, snapshot(read(whole)));
  fmt::print("cut in {:.3f} s\n", seconds_since(begun));
  print("cut", cut);
  return 0;
}
