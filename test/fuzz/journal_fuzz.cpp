/// Any bytes are replayed or refused; an accepted journal, written again, is the same file.

#include <cstdint>
#include <string>

#include "core/files/journal.h"
#include "test/fuzz/target.h"

DT_FUZZ_TARGET(journal)
(const std::uint8_t* data, std::size_t size) {
  using namespace dt;
  const std::string bytes(data, data + size);
  const auto replay = journal::replay(bytes);
  DT_CHECK(replay.good_size <= bytes.size(), "good_size beyond the file");
  if (replay.good_size == 0) return 0;
  std::string again(journal::kHeader);
  for (const auto& r : replay.records) again += journal::append_bytes(r.type, r.body);
  DT_CHECK(again == bytes.substr(0, replay.good_size), "replay and append disagree");
  return 0;
}
