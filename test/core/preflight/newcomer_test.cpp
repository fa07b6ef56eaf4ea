#include "core/preflight/newcomer.h"

#include "test/support/catch.h"

namespace dt::preflight {
namespace {

HostFindings good_host(const std::string& name) {
  HostFindings host;
  host.host.name = name;
  host.command = CommandFacts{"/shared/tool", "", std::string(64, 'a'), "", {}};
  host.clock = ClockFacts{0.001, 0.0005};
  host.machine = MachineFacts{
      8, 16'000'000'000, 12'000'000'000, 8'000'000'000, 1'000'000'000, "/run/x", 65536, 0, 0};
  host.gpus = GpuFacts{{"A100", "A100"}, "535.1", {}};
  return host;
}

Findings of(std::vector<HostFindings> hosts) {
  Findings all;
  all.command = "/shared/tool";
  all.folder = "/job";
  all.hosts = std::move(hosts);
  return all;
}

/// The newcomer n1, and the host of a server that it reaches.
Findings newcomer() {
  Findings all = of({good_host("n1"), HostFindings()});
  all.hosts[1].host.name = "s1";
  all.ways.push_back({0, 1, "10.0.0.1", 9100, ""});
  return all;
}

Reference base() {
  const Findings all = of({good_host("h1"), good_host("h2")});
  return reference_of(all, judge(all));
}

}  // namespace

TEST_CASE("newcomer: one like the base hosts passes") {
  const NewcomerVerdict verdict = judge_newcomer(base(), newcomer());
  CHECK(verdict.failed.empty());
  CHECK(verdict.warnings.empty());
}

TEST_CASE("newcomer: what differs from the base hosts is named, and never theirs") {
  Findings all = newcomer();
  (*all.hosts[0].command)->sha256 = std::string(64, 'b');
  CHECK(judge_newcomer(base(), all).failed ==
        std::vector<std::string>{
            "command: /shared/tool: 2 kinds: h1 aaaaaaaaaaaa, n1 bbbbbbbbbbbb (remedy: copy the "
            "same file to all hosts (these are SHA-256 sums))"});
  all = newcomer();
  (*all.hosts[0].gpus)->names.pop_back();
  CHECK(judge_newcomer(base(), all)
            .failed.front()
            .starts_with("gpus: GPUs: 2 kinds: h1 2 x A100, n1 1 x A100"));
  all = newcomer();
  (*all.hosts[0].gpus)->driver = "470.2";
  (*all.hosts[0].machine)->cores = 4;
  const NewcomerVerdict verdict = judge_newcomer(base(), all);
  CHECK(verdict.failed.empty());
  REQUIRE(verdict.warnings.size() == 2);
  CHECK(verdict.warnings[0].starts_with("machine: cores: 2 kinds: h1 8, n1 4"));
  CHECK(verdict.warnings[1].starts_with("gpus: GPU driver: 2 kinds"));
}

TEST_CASE("newcomer: --check-file is compared too") {
  Findings launch = of({good_host("h1")});
  (*launch.hosts[0].command)->files.push_back({"train.py", std::string(64, 'c'), ""});
  const Reference reference = reference_of(launch, judge(launch));
  Findings all = newcomer();
  (*all.hosts[0].command)->files.push_back({"train.py", std::string(64, 'd'), ""});
  const NewcomerVerdict verdict = judge_newcomer(reference, all);
  REQUIRE(verdict.failed.size() == 1);
  CHECK(verdict.failed[0].starts_with(
      "command: train.py: 2 kinds: h1 cccccccccccc, n1 dddddddddddd"));
}

TEST_CASE("newcomer: a clock, a way to a server, a way back") {
  Findings all = newcomer();
  all.hosts[0].clock = ClockFacts{90, 0.01};
  CHECK(judge_newcomer(base(), all).failed.front().starts_with("clock: its clock is +90.0 s off"));
  all = newcomer();
  all.ways[0].why_not = "no answer";
  CHECK(judge_newcomer(base(), all)
            .failed.front()
            .starts_with("network: from n1 to s1 (10.0.0.1) port 9100: no answer"));
  all.ways = {{1, 0, "10.0.0.9", 4000, "no answer"}};
  CHECK(judge_newcomer(base(), all)
            .failed.front()
            .starts_with("network: from s1 to n1 (10.0.0.9) port 4000: no answer"));
}

TEST_CASE("newcomer: that another host is not reached by the check is not its fault") {
  Findings all = newcomer();
  all.hosts[1].unreachable = Error{ErrorKind::kUnavailable, "s1: connect: refused"};
  CHECK(judge_newcomer(base(), all).failed.empty());
  all.hosts[1].unreachable.reset();
  for (const auto& said : {Result<Listening>(Listening{0, "", {}, "no port is free"}),
                           Result<Listening>(fail(ErrorKind::kTimeout, "no answer"))}) {
    all.hosts[1].listening = said;
    CHECK(judge_newcomer(base(), all).failed.empty());
  }
  all.hosts[0].unreachable = Error{ErrorKind::kUnavailable, "n1: connect: refused"};
  CHECK(judge_newcomer(base(), all).failed.front().starts_with("reach: n1: connect: refused"));
}

TEST_CASE("newcomer: the reference is the host with the fewest remarks") {
  Findings all = of({good_host("h1"), good_host("h2"), good_host("h3")});
  (*all.hosts[0].machine)->cores = 4;  // a warning
  const Reference reference = reference_of(all, judge(all));
  CHECK(reference.host.name == "h2");
  CHECK(reference.cores == 8);
  CHECK(reference.command.sha256 == std::string(64, 'a'));
  CHECK(reference.gpus.names.size() == 2);
}

}  // namespace dt::preflight
