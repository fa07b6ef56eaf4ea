#include "supervisor/files/journal_file.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "test/supervisor/loop.h"

using namespace dt;
using namespace dt::test;
using supervisor::JournalFile;

namespace {

std::vector<wire::Frame> replayed(const std::string& path) {
  std::vector<wire::Frame> records;
  const auto journal = JournalFile::open(path, records);
  REQUIRE(journal);
  return records;
}

}  // namespace

TEST_CASE("journal: records come back, from a private file", "[journal]") {
  TempDir dir;
  {
    std::vector<wire::Frame> records;
    auto journal = JournalFile::open(dir / "journal", records);
    REQUIRE(journal);
    CHECK(records.empty());
    CHECK(journal->append(1, "one"));
    CHECK(journal->append(2, ""));
  }
  CHECK(replayed(dir / "journal") == std::vector<wire::Frame>{{1, "one"}, {2, ""}});
  struct stat st {};
  REQUIRE(::stat((dir / "journal").c_str(), &st) == 0);
  CHECK((st.st_mode & 0777) == 0600);
}

TEST_CASE("journal: a torn tail is cut and what follows is whole", "[journal]") {
  TempDir dir;
  const std::string path = dir / "journal";
  const std::string one = journal::append_bytes(1, "one");
  for (std::size_t cut = 0; cut < journal::kHeader.size() + one.size(); ++cut) {
    spill(path, (std::string(journal::kHeader) + one).substr(0, cut));
    {
      std::vector<wire::Frame> records;
      auto journal = JournalFile::open(path, records);
      REQUIRE(journal);
      REQUIRE(records.empty());
      REQUIRE(journal->append(7, "seven"));
    }
    REQUIRE(replayed(path) == std::vector<wire::Frame>{{7, "seven"}});
  }
}

TEST_CASE("journal: a damaged journal is refused by name and left as it is", "[journal]") {
  TempDir dir;
  std::string bytes = std::string(journal::kHeader) + journal::append_bytes(1, "one") +
                      journal::append_bytes(2, "");
  bytes[journal::kHeader.size() + 10] ^= 1;
  spill(dir / "journal", bytes);
  std::vector<wire::Frame> records;
  const auto journal = JournalFile::open(dir / "journal", records);
  REQUIRE_FALSE(journal);
  CHECK(journal.error().message.find(dir / "journal") == 0);
  CHECK(journal.error().message.find("byte 19") != std::string::npos);
  CHECK(slurp(dir / "journal") == bytes);
}

TEST_CASE("journal: one supervisor at a time", "[journal]") {
  TempDir dir;
  std::vector<wire::Frame> records;
  auto first = JournalFile::open(dir / "journal", records);
  REQUIRE(first);
  const auto second = JournalFile::open(dir / "journal", records);
  REQUIRE_FALSE(second);
  CHECK(second.error().kind == ErrorKind::kDenied);
}

TEST_CASE("journal: a full disk is an exact error, and the journal stays whole", "[journal]") {
  TempDir dir;
  {
    std::vector<wire::Frame> records;
    auto journal = JournalFile::open(dir / "journal", records);
    REQUIRE(journal);
    REQUIRE(journal->append(1, "one"));
    rlimit old{};
    ::getrlimit(RLIMIT_FSIZE, &old);
    ::signal(SIGXFSZ, SIG_IGN);
    rlimit tiny = old;
    tiny.rlim_cur = fs::file_size(dir / "journal") + 20;
    ::setrlimit(RLIMIT_FSIZE, &tiny);
    const auto done = journal->append(2, std::string(100, 'x'));
    ::setrlimit(RLIMIT_FSIZE, &old);
    REQUIRE_FALSE(done);
    CHECK(done.error().message == "write journal " + (dir / "journal") + ": File too large");
    CHECK(journal->is_full());
    REQUIRE(journal->append(3, "three"));
    CHECK_FALSE(journal->is_full());
  }
  CHECK(replayed(dir / "journal") == std::vector<wire::Frame>{{1, "one"}, {3, "three"}});
}

TEST_CASE("journal: a replaced one is used from then on, and stays locked", "[journal]") {
  TempDir dir;
  const std::string shorter =
      std::string(journal::kCutHeader) + journal::append_bytes(24, "the rest");
  {
    spill(dir / "journal.new", "left by a supervisor that died");
    std::vector<wire::Frame> records;
    auto journal = JournalFile::open(dir / "journal", records);
    REQUIRE(journal);
    CHECK_FALSE(fs::exists(dir / "journal.new"));
    CHECK(journal->header() == journal::kHeader);
    for (int i = 0; i < 100; ++i) REQUIRE(journal->append(1, std::string(1000, 'x')));
    CHECK(journal->size() == fs::file_size(dir / "journal"));
    spill(dir / "journal.new", "left by an earlier try");
    REQUIRE(journal->replace(shorter));
    CHECK(journal->path() == dir / "journal");
    CHECK(journal->header() == journal::kCutHeader);
    CHECK(journal->size() == shorter.size());
    CHECK(slurp(dir / "journal") == shorter);
    CHECK_FALSE(fs::exists(dir / "journal.new"));
    CHECK((fs::status(dir / "journal").permissions() & fs::perms::all) ==
          (fs::perms::owner_read | fs::perms::owner_write));
    const auto second = JournalFile::open(dir / "journal", records);
    REQUIRE_FALSE(second);
    CHECK(second.error().kind == ErrorKind::kDenied);
    REQUIRE(journal->append(1, "one more"));
  }
  CHECK(replayed(dir / "journal") == std::vector<wire::Frame>{{24, "the rest"}, {1, "one more"}});
}

TEST_CASE("journal: one that cannot be replaced is used as it is", "[journal]") {
  TempDir dir;
  {
    std::vector<wire::Frame> records;
    auto journal = JournalFile::open(dir / "journal", records);
    REQUIRE(journal);
    REQUIRE(journal->append(1, "one"));
    rlimit old{};
    ::getrlimit(RLIMIT_FSIZE, &old);
    ::signal(SIGXFSZ, SIG_IGN);
    rlimit tiny = old;
    tiny.rlim_cur = fs::file_size(dir / "journal") + 20;
    ::setrlimit(RLIMIT_FSIZE, &tiny);
    const auto done = journal->replace(std::string(journal::kCutHeader) + std::string(100, 'x'));
    ::setrlimit(RLIMIT_FSIZE, &old);
    REQUIRE_FALSE(done);
    CHECK_FALSE(journal->is_full());
    CHECK_FALSE(fs::exists(dir / "journal.new"));
    REQUIRE(journal->append(2, "two"));
    fs::create_directory(dir / "journal.new");
    CHECK_FALSE(journal->replace(journal::kCutHeader));
    REQUIRE(journal->append(3, "three"));
  }
  fs::remove(dir / "journal.new");
  CHECK(replayed(dir / "journal") ==
        std::vector<wire::Frame>{{1, "one"}, {2, "two"}, {3, "three"}});
}

TEST_CASE("journal: the disk keeps room for the next records", "[journal]") {
  TempDir dir;
  std::vector<wire::Frame> records;
  auto journal = JournalFile::open(dir / "journal", records);
  REQUIRE(journal);
  struct stat st {};
  REQUIRE(::stat((dir / "journal").c_str(), &st) == 0);
  if (st.st_blocks < 8) return;  // this file system keeps no room ahead
  CHECK(st.st_size == static_cast<off_t>(journal::kHeader.size()));
  CHECK(st.st_blocks * 512 >= static_cast<blkcnt_t>(JournalFile::kAhead));
  // Used up by more than half, it is filled up again.
  for (int i = 0; i < 3; ++i)
    REQUIRE(journal->append(1, std::string(JournalFile::kAhead / 4, 'x')));
  REQUIRE(::stat((dir / "journal").c_str(), &st) == 0);
  CHECK(st.st_blocks * 512 >= st.st_size + static_cast<blkcnt_t>(JournalFile::kAhead) / 2);
  CHECK(journal->shortage().empty());
}
