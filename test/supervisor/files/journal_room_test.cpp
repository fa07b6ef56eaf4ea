#include "supervisor/files/journal_room.h"

#include <signal.h>
#include <sys/resource.h>

#include <optional>
#include <string>

#include "core/protocol/exit_code.h"
#include "test/supervisor/supervised.h"

using namespace dt;
using namespace dt::test;

namespace {

/// The journal cannot grow during its lifetime; a file size limit of this process stands for a
/// full disk.
struct FullDisk {
  explicit FullDisk(const std::string& journal) {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before);
    rlimit now = before;
    now.rlim_cur = fs::file_size(journal);
    ::setrlimit(RLIMIT_FSIZE, &now);
  }
  ~FullDisk() { ::setrlimit(RLIMIT_FSIZE, &before); }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  rlimit before{};
};

bool says(const std::string& status, const char* words) {
  return status.find(words) != std::string::npos;
}

}  // namespace

TEST_CASE("supervisor: while the journal's disk is full nothing is decided, and then it goes on") {
  Supervised job;
  job.start();
  open_store(job, job.told(0, StartProcess::kType));
  std::optional<FullDisk> full(std::in_place, job.journal_path);
  CHECK(job.wait(job.ask(R"({"op":"add","host":"b"})")) == R"({"ok":true})");
  std::string status;
  REQUIRE(job.until([&] {
    status = job.wait(job.ask(R"({"op":"status"})"));
    return says(status, "File too large");
  }));
  CHECK_FALSE(job.code);
  CHECK(job.ends.size() == 1);  // b is not connected: its addition is not journalled
  full.reset();
  CHECK(job.told(1, AgentHello::kType).with_start);
  status = job.wait(job.ask(R"({"op":"status"})"));
  CHECK(says(status, R"("journal":{"trouble":"","waits_s":0.0})"));
}

TEST_CASE("supervisor: a job whose journal's disk is full can be stopped") {
  Supervised job;
  job.start();
  job.told(0, StartProcess::kType);
  const FullDisk full(job.journal_path);
  CHECK(says(job.wait(job.ask(R"({"op":"add","host":"b"})")), R"("ok":true)"));
  REQUIRE(
      job.until([&] { return says(job.wait(job.ask(R"({"op":"status"})")), "File too large"); }));
  job.supervisor->stop("on request");
  CHECK(job.end() == kExitInterrupted);
  CHECK(job.ends[0]->was_told(Shutdown::kType));
}
