#include "supervisor/volume/host_worker.h"

#include <cstdlib>

#include "test/supervisor/loop.h"

using namespace dt;
using namespace dt::test;
using namespace std::chrono_literals;

namespace {

constexpr const char* kStart = "10.0.0.1\n10.0.0.2\n";

/// A job folder being watched; decisions as text.
struct Watched {
  TempDir dir;
  VolumeLoop loop;
  std::vector<std::string> said;
  std::unique_ptr<supervisor::HostWorker> watch;

  Watched() {
    spill(file(), kStart);
    supervisor::HostWorker::Options options;
    options.folder = dir.path();
    options.accepted = kStart;
    auto note = [this](FileWatchResult result) { said.push_back(show(result)); };
    watch = std::make_unique<supervisor::HostWorker>(loop.volume, options, note);
    loop.group.spawn(watch->run());
    // Watched and read once.
    (void)loop.wait(loop.volume.read(file()));
  }
  ~Watched() {
    watch->stop();
    loop.volume.stop();
    loop.finished();
  }

  [[nodiscard]] std::string file() const { return dir / "host_worker"; }
  static std::string show(const FileWatchResult& result) {
    if (const auto* a = std::get_if<FileAccepted>(&result)) {
      std::string out = "accepted";
      for (const auto& line : a->lines) out += " " + line.host.name;
      return out;
    }
    if (const auto* r = std::get_if<FileRefused>(&result)) return "refused " + r->why;
    return "cleared";
  }
  /// Runs a shell command in the folder and returns the first decision. Its background commands
  /// continue while the loop waits for that.
  std::string after(const std::string& command) {
    said.clear();
    REQUIRE(std::system(("cd " + dir.path() + " && " + command).c_str()) == 0);
    REQUIRE(loop.until([&] { return !said.empty(); }));
    return said.front();
  }
};

bool have(const char* program) {
  return std::system(fmt::format("command -v {} >/dev/null", program).c_str()) == 0;
}

}  // namespace

TEST_CASE("host_worker: appended, replaced, copied over: each is accepted once", "[host_worker]") {
  Watched w;
  CHECK(w.after("echo 10.0.1.9 >> host_worker") == "accepted 10.0.0.1 10.0.0.2 10.0.1.9");
  CHECK(w.after("sed -i /10.0.1.9/d host_worker") == "accepted 10.0.0.1 10.0.0.2");
  CHECK(w.after("printf '10.0.0.1\\r\\n10.0.0.2\\r\\n\\r\\n# x\\r\\n10.0.1.8\\r\\n' > new && "
                "cp new host_worker") == "accepted 10.0.0.1 10.0.0.2 10.0.1.8");
  CHECK(w.after("echo 10.0.0.1 > new && mv new host_worker") == "accepted 10.0.0.1");
  CHECK_FALSE(w.loop.until([&] { return w.said.size() > 1; }, 500ms));
}

TEST_CASE("host_worker: saved by vim, in place and by rename", "[host_worker]") {
  if (!have("vim")) {
    WARN("SKIPPED: vim is not installed");
    return;
  }
  Watched w;
  const std::string vim =
      "vim -u NONE -N -es -c 'set backupcopy={}' -c '$s/$/\\r{}/' -c wq host_worker </dev/null";
  for (const char* mode : {"yes", "no"}) {
    const std::string host = std::string("h-") + mode;
    const std::string said = w.after(fmt::format(fmt::runtime(vim), mode, host));
    CHECK(said.find("accepted 10.0.0.1 10.0.0.2") == 0);
    CHECK(said.find(host) != std::string::npos);
    CHECK(w.said.size() == 1);
  }
}

TEST_CASE("host_worker: a truncate with the content a second later is one edit", "[host_worker]") {
  Watched w;
  // The content is written while the loop watches the file.
  CHECK(w.after(": > host_worker; (sleep 1; echo 10.0.0.7 > host_worker) &") ==
        "accepted 10.0.0.7");
}

TEST_CASE("host_worker: garbage, emptied, deleted: refused, then cleared when restored",
          "[host_worker]") {
  Watched w;
  CHECK(w.after("printf 'a\\n%%%% what\\nb\\n' > host_worker").find("refused host_worker:2:") == 0);
  CHECK(w.after("rm host_worker").find("refused host_worker is gone") == 0);
  CHECK(w.after(": > host_worker").find("refused host_worker names no host") == 0);
  REQUIRE(w.watch->state().refusal());
  CHECK(w.after(fmt::format("printf '{}' > host_worker", "10.0.0.1\\n10.0.0.2\\n")) == "cleared");
  CHECK_FALSE(w.watch->state().refusal());
}

TEST_CASE("host_worker: without any hint the poll finds the change", "[host_worker]") {
  Watched w;
  w.loop.volume.on_hint = nullptr;
  const auto begin = std::chrono::steady_clock::now();
  CHECK(w.after("echo 10.0.0.3 > host_worker") == "accepted 10.0.0.3");
  CHECK(std::chrono::steady_clock::now() - begin < 10s);
}
