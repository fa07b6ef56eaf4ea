#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_future.hpp>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "io/asio.h"
#include "supervisor/fleet/provider.h"
#include "test/support/catch.h"
#include "test/support/sshd.h"

using namespace dt;
using Catch::Matchers::Contains;

namespace {

constexpr const char* kPrograms = R"(#!/bin/sh
# Slurm's queue in a file: lines NUMBER|STATE|NODE|REASON|COMMENT.
cd "${0%/*}"
case ${0##*/} in
  squeue) cat queue ;;
  sbatch)
    [ ! -e refuses ] || { echo 'sbatch: error: invalid partition specified: x' >&2; exit 1; }
    echo "$@" >submitted
    cat >script
    for word in "$@"; do case $word in --comment=*) comment=${word#*=} ;; esac; done
    echo "$((41 + $(wc -l <queue)))|PENDING||Priority|$comment" >>queue
    echo "$((40 + $(wc -l <queue)));cluster" ;;
  scontrol) sed -i "s~^\(${2#JobId=}|.*|\).*~\1${3#Comment=}~" queue ;;
  scancel) sed -i "/^$2|/d" queue ;;
esac
)";

class FakeSlurm {
 public:
  FakeSlurm() {
    for (const char* name : {"squeue", "sbatch", "scontrol", "scancel"})
      test::write_file(dir_ / name, kPrograms, 0700);
    shows("");
    ::setenv("PATH", fmt::format("{}:{}", dir_.path(), path_).c_str(), 1);
  }
  ~FakeSlurm() { ::setenv("PATH", path_.c_str(), 1); }
  FakeSlurm(const FakeSlurm&) = delete;
  FakeSlurm& operator=(const FakeSlurm&) = delete;

  void shows(const std::string& queue) { test::write_file(dir_ / "queue", queue); }
  void refuses() { test::write_file(dir_ / "refuses", ""); }
  [[nodiscard]] std::string queue() const { return test::read_file(dir_ / "queue"); }
  [[nodiscard]] std::string submitted() const { return test::read_file(dir_ / "submitted"); }

 private:
  test::TempDir dir_;
  std::string path_ = std::getenv("PATH");
};

template <class T>
T get(io::awaitable<T> work) {
  io::asio::io_context context;
  auto done = io::asio::co_spawn(context, std::move(work), io::asio::use_future);
  context.run();
  return done.get();
}

}  // namespace

TEST_CASE("Slurm as a provider: holders are listed, marked and given back") {
  FakeSlurm slurm;
  const auto provider = supervisor::slurm_provider("j");
  CHECK(get(provider->list({})).value().empty());
  slurm.shows(
      "42|PENDING||Resources|dtlaunch:j\n"
      "41|RUNNING|n1|None|dtlaunch:j slots=2 keep=-p%20x\n");
  const auto holders = get(provider->list({})).value();
  REQUIRE(holders.size() == 2);
  CHECK(holders[0].host == "n1");
  CHECK(holders[0].slots == 2);
  CHECK(holders[1].state == MachineState::kPending);
  CHECK(holders[1].why == "Resources");

  CHECK(get(provider->act(SetMark{"41", Mark::kAddQueued}, holders[0], {})).value().empty());
  CHECK(get(provider->list({})).value()[0].mark == Mark::kAdded);
  // Its notice is to ask for no replacement, so it is marked before it is cancelled.
  CHECK(get(provider->act(LetGo{"41", "n1 has no line"}, holders[0], {})).value() ==
        "Slurm job 41 (n1) is given back: n1 has no line");
  CHECK(slurm.queue() == "42|PENDING||Resources|dtlaunch:j\n");
  CHECK(get(provider->act(LetGo{"41", "it is gone"}, holders[0], {})).has_value());
  CHECK(get(provider->give_all_back()).has_value());
  CHECK(slurm.queue().empty());
}

TEST_CASE("Slurm as a provider: who was kept is asked for once more when its node is taken") {
  FakeSlurm slurm;
  const auto provider = supervisor::slurm_provider("j");
  slurm.shows("41|RUNNING|n1|None|dtlaunch:j joined keep=-p%20x\n");
  const Machine taken = get(provider->list({})).value().at(0);
  const HolderOrder order{.excluded = {"n2"}};
  CHECK(get(provider->act(Replace{"41"}, taken, order)).value() ==
        "Slurm job 41 (n1) is taken away: Slurm job 42 asks for another node");
  CHECK_THAT(slurm.submitted(), Contains("--exclude=n2") && Contains("--job-name=dt+j"));
  const auto holders = get(provider->list({})).value();
  REQUIRE(holders.size() == 2);
  CHECK_FALSE(holders[0].kept);
  CHECK(holders[1].replaces == "41");
  CHECK(holders[1].kept == taken.kept);
}

TEST_CASE("Slurm as a provider: what it refuses, and what cannot be read, changes nothing") {
  FakeSlurm slurm;
  const auto provider = supervisor::slurm_provider("j");
  const std::string queue = "41|RUNNING|n1|None|dtlaunch:j keep=-p%20x\n";
  slurm.shows(queue);
  const Machine taken = get(provider->list({})).value().at(0);
  slurm.refuses();
  const auto refused = get(provider->act(Replace{"41"}, taken, {}));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message == "sbatch: error: invalid partition specified: x");
  CHECK(slurm.queue() == queue);
  for (const char* garbage :
       {"slurm_load_jobs error: Unable to contact slurm controller\n", "41|RUNNING|n1|None|\n",
        "x|RUNNING|n1|None|dtlaunch:j\n", "41|RUNNING|n1|None|dtlaunch:k\n"}) {
    INFO(garbage);
    slurm.shows(queue + garbage);
    CHECK_FALSE(get(provider->list({})));
    CHECK_FALSE(get(provider->give_all_back()));
    CHECK(slurm.queue() == queue + garbage);
  }
}
