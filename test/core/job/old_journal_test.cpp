/// Journals that earlier versions wrote are read to the same Job: each file of
/// test/core/job/journals with the state it gave then (NAME.txt). DT_REWRITE=1 writes the
/// states again; a difference in an old one is a bug.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/files/journal.h"
#include "test/core/job/job_state.h"
#include "test/support/catch.h"

using namespace dt;
using dt::test::state_after;

namespace {

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string states_of(const std::string& bytes) {
  const auto replay = journal::replay(bytes);
  if (replay.error) return replay.error->message;
  std::vector<Record> records;
  for (const auto& frame : replay.records) records.push_back(record_from(frame).value());
  const auto middle = records.begin() + static_cast<std::ptrdiff_t>(records.size() / 2);
  return state_after({records.begin(), middle}) + "\n" + state_after(records);
}

}  // namespace

TEST_CASE("journals of earlier versions are read to the same job", "[journal]") {
  const std::filesystem::path folder = DT_JOURNALS;
  const bool rewrite = std::getenv("DT_REWRITE") != nullptr;
  std::size_t seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().has_extension()) continue;
    ++seen;
    INFO(entry.path());
    const std::string state = states_of(read(entry.path()));
    const std::filesystem::path golden = entry.path().string() + ".txt";
    if (rewrite) std::ofstream(golden) << state;
    CHECK(state == read(golden));
  }
  CHECK(seen >= 12);
}
