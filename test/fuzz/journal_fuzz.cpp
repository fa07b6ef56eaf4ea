/// Any bytes are replayed or refused; an accepted journal, written again, is the same file, and one
/// whose records are known can be cut without losing a line of host_worker_log.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/files/journal.h"
#include "core/job/snapshot.h"
#include "test/fuzz/target.h"

DT_FUZZ_TARGET(journal)
(const std::uint8_t* data, std::size_t size) {
  using namespace dt;
  const std::string bytes(data, data + size);
  const auto replay = journal::replay(bytes);
  DT_CHECK(replay.good_size <= bytes.size(), "good_size beyond the file");
  if (replay.good_size == 0) return 0;
  std::string again(replay.header);
  for (const auto& r : replay.records) again += journal::append_bytes(r.type, r.body);
  DT_CHECK(again == bytes.substr(0, replay.good_size), "replay and append disagree");
  std::vector<Record> records;
  for (const auto& frame : replay.records) {
    auto record = record_from(frame);
    if (!record) return 0;
    records.push_back(std::move(*record));
  }
  const auto cut = snapshot(records);
  DT_CHECK(log_lines(cut).size() == log_lines(records).size(), "a cut loses lines of the log");
  return 0;
}
