#include "core/preflight/judge.h"

#include <algorithm>

#include "core/preflight/report.h"
#include "test/support/catch.h"

namespace dt::preflight {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

/// Hosts h1, h2, ... with which nothing is wrong.
Findings good_hosts(std::size_t count) {
  Findings all;
  all.command = "python3";
  all.folder = "/job";
  all.mount = "nfs1:/export, nfs4";
  for (std::size_t i = 0; i < count; ++i) {
    HostFindings& host = all.hosts.emplace_back();
    host.host.name = fmt::format("h{}", i + 1);
    host.command = CommandFacts{"/usr/bin/python3", "Python 3.11.2", std::string(64, 'a'), "", {}};
    host.volume = VolumeFacts{VolumeState::kGood, "", all.mount, 500, 900};
    host.clock = ClockFacts{0.001, 0.0005};
    host.machine = MachineFacts{8, 16 * kGiB, 12 * kGiB, 8 * kGiB, kGiB, "/run/x", 65536, 0, 0};
    host.gpus = GpuFacts{{"A100", "A100"}, "535.1", {}};
  }
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t k = 0; k < count; ++k)
      if (i != k) all.ways.push_back({i, k, fmt::format("10.0.0.{}", k + 1), 9000, ""});
  return all;
}

/// The only remark.
Remark only(const Verdict& verdict) {
  REQUIRE(verdict.remarks.size() == 1);
  CHECK(!verdict.remarks.front().remedy.empty());
  return verdict.remarks.front();
}

/// Hosts in a ring: pair i is that of h(i+1) and the next one.
Findings with_pairs(const std::vector<double>& rates) {
  Findings all = good_hosts(std::max<std::size_t>(rates.size(), 2));
  for (std::size_t i = 0; i < rates.size(); ++i)
    all.speeds.push_back(
        {i, (i + 1) % all.hosts.size(), "", 30.0 + static_cast<double>(i), rates[i]});
  return all;
}

/// The first letter of each host's mark.
std::string speed_marks(const Verdict& verdict) {
  std::string all;
  for (const auto& marks : verdict.marks) all += *to_text(marks.back());
  return all;
}

void check_only(const Findings& all, std::size_t host, Row row, Mark mark,
                const std::string& what) {
  const Verdict verdict = judge(all);
  const Remark remark = only(verdict);
  CHECK(remark.host == host);
  CHECK(std::string(to_text(remark.row)) == to_text(row));
  CHECK(std::string(to_text(remark.mark)) == to_text(mark));
  CHECK(remark.what == what);
  for (std::size_t i = 0; i < verdict.marks.size(); ++i)
    for (const Row other : kRows)
      if (other != Row::kSpeed)
        CHECK((verdict.marks[i][static_cast<std::size_t>(other)] == Mark::kOk) ==
              !(i == host && other == row));
}

}  // namespace

TEST_CASE("preflight: good hosts get a table of one line") {
  const Verdict verdict = judge(good_hosts(4));
  CHECK(verdict.remarks.empty());
  CHECK(!verdict.has_failed());
  CHECK(table_text(verdict) ==
        "hosts   reach    command  volume   clock    machine  gpus     network  speed\n"
        "h[1-4]  OK       OK       OK       OK       OK       OK       OK       -\n");
}

TEST_CASE("preflight: an unreachable host fails its first row alone") {
  Findings all = good_hosts(3);
  all.hosts[1] = HostFindings();
  all.hosts[1].host.name = "h2";
  all.hosts[1].unreachable = Error{ErrorKind::kUnavailable, "h2: connect: refused"};
  const Verdict verdict = judge(all);
  CHECK(only(verdict).what == "h2: connect: refused");
  CHECK(verdict.has_unreachable());
  CHECK(verdict.has_failed(1));
  CHECK(!verdict.has_failed(0));
}

TEST_CASE("preflight: a host with another version of the command is named") {
  Findings all = good_hosts(8);
  (*all.hosts[7].command)->version = "Python 3.9.2";
  (*all.hosts[7].command)->sha256 = std::string(64, 'b');
  check_only(all, 7, Row::kCommand, Mark::kFail,
             "python3: 2 kinds: h[1-7] Python 3.11.2, h8 Python 3.9.2");
}

TEST_CASE("preflight: another build of the same version is a warning, of a user's program not") {
  Findings all = good_hosts(3);
  (*all.hosts[0].command)->sha256 = std::string(64, 'b');
  check_only(all, 0, Row::kCommand, Mark::kWarn,
             "python3: 2 kinds: h1 bbbbbbbbbbbb, h[2-3] aaaaaaaaaaaa");
  for (auto& host : all.hosts) (*host.command)->version.clear();
  check_only(all, 0, Row::kCommand, Mark::kFail,
             "python3: 2 kinds: h1 bbbbbbbbbbbb, h[2-3] aaaaaaaaaaaa");
}

TEST_CASE("preflight: a command that is missing") {
  Findings all = good_hosts(2);
  *all.hosts[1].command = CommandFacts{"", "", "", "python3: it is not in PATH there", {}};
  check_only(all, 1, Row::kCommand, Mark::kFail, "python3: it is not in PATH there");
}

TEST_CASE("preflight: the states of a volume") {
  Findings all = good_hosts(2);
  VolumeFacts& facts = **all.hosts[1].volume;
  const auto fails = [&](const std::string& what) {
    check_only(all, 1, Row::kVolume, Mark::kFail, what);
  };
  facts.state = VolumeState::kMissing;
  fails("/job: not mounted: there is no such folder");
  CHECK(only(judge(all)).remedy == "mount there what is here: nfs1:/export, nfs4");
  all.mount = "/dev/vda, ext4";
  CHECK(only(judge(all)).remedy.starts_with("here it is on this machine's own disk (/dev/vda, "));
  all.mount = "nfs1:/export, nfs4";
  facts.state = VolumeState::kReadOnly;
  fails("/job: read-only (nfs1:/export, nfs4)");
  facts.state = VolumeState::kOther;
  fails("/job: stale: what was written here is not seen after 5 s (nfs1:/export, nfs4)");
  facts.mount = "/dev/sda1, ext4";
  fails("/job: another folder: /dev/sda1, ext4 there, nfs1:/export, nfs4 here");
  facts.state = VolumeState::kGood;
  all.hosts[1].unseen = "nothing is there after 5 s";
  fails("/job: what this host writes is not seen here: nothing is there after 5 s");
  all.needs_volume = false;
  CHECK(only(judge(all)).mark == Mark::kWarn);
}

TEST_CASE("preflight: a clock is off only beyond the error of the measurement") {
  Findings all = good_hosts(2);
  all.hosts[0].clock = ClockFacts{0.9, 0.5};
  CHECK(judge(all).remarks.empty());
  all.hosts[0].clock = ClockFacts{-1.5, 0.5};
  check_only(all, 0, Row::kClock, Mark::kWarn, "its clock is -1.5 s off (within 0.500 s)");
  all.hosts[0].clock = ClockFacts{90, 0.001};
  check_only(all, 0, Row::kClock, Mark::kFail, "its clock is +90.0 s off (within 0.001 s)");
}

TEST_CASE("preflight: a machine that is too small") {
  Findings all = good_hosts(2);
  MachineFacts& facts = **all.hosts[1].machine;
  facts.shm_free = 16 * kMiB;
  check_only(all, 1, Row::kMachine, Mark::kWarn, "/dev/shm: 16 MiB are left");
  facts.shm_free = 0;
  check_only(all, 1, Row::kMachine, Mark::kFail, "/dev/shm: 0 MiB are left");
  facts.shm_free = kGiB;
  facts.open_files = 100;
  check_only(all, 1, Row::kMachine, Mark::kFail,
             "open files: the hard limit is 100, 264 are needed");
  facts.open_files = 65536;
  facts.cores = 4;
  check_only(all, 1, Row::kMachine, Mark::kWarn, "cores: 2 kinds: h1 8, h2 4");
}

TEST_CASE("preflight: one GPU fewer, and hosts without any have no row") {
  Findings all = good_hosts(3);
  (*all.hosts[2].gpus)->names.pop_back();
  check_only(all, 2, Row::kGpus, Mark::kFail, "GPUs: 2 kinds: h[1-2] 2 x A100, h3 1 x A100");
  for (auto& host : all.hosts) (*host.gpus)->names.clear();
  CHECK(judge(all).marks[0][static_cast<std::size_t>(Row::kGpus)] == Mark::kNone);
}

TEST_CASE("preflight: a way that is closed names source, destination and port") {
  Findings all = good_hosts(3);
  all.ways[0].why_not = "no answer within 3.0 s";
  check_only(all, 0, Row::kNetwork, Mark::kFail,
             "from h1 to h2 (10.0.0.2) port 9000: no answer within 3.0 s");
  // Nobody reaches h2.
  for (Way& way : all.ways)
    if (way.to == 1) way.why_not = "no answer within 3.0 s";
  check_only(all, 1, Row::kNetwork, Mark::kFail,
             "none of 2 hosts reaches it at 10.0.0.2 port 9000: no answer within 3.0 s");
}

TEST_CASE("preflight speed: of two hosts nobody knows which is slow") {
  CHECK(judge(with_pairs({1e3})).remarks.empty());
  CHECK(judge(with_pairs({0})).remarks.empty());
}

TEST_CASE("preflight speed: a host that is slow with both neighbours fails, and no other") {
  for (const std::size_t count : {3U, 5U, 6U}) {
    for (std::size_t slow = 0; slow < count; ++slow) {
      std::vector<double> rates(count, 1e9);
      rates[slow] = 1e6;
      rates[(slow + count - 1) % count] = 2e6;
      const Verdict verdict = judge(with_pairs(rates));
      CHECK(speed_marks(verdict) ==
            std::string(slow, 'O') + "F" + std::string(count - slow - 1, 'O'));
      CHECK(verdict.remarks.size() == 2);
    }
  }
  const Verdict verdict = judge(with_pairs({1e9, 1.2e9, 1e6, 2e6, 1e9}));
  CHECK(remarks_text(verdict) ==
        "FAIL speed h4: slow between h3 and h4: 1.0 MB/s; the median is 1.0 GB/s\n"
        "     remedy: see the speed of its network interface (ethtool), its cable and its switch "
        "port\n"
        "FAIL speed h4: slow between h4 and h5: 2.0 MB/s; the median is 1.0 GB/s\n"
        "     remedy: see the speed of its network interface (ethtool), its cable and its switch "
        "port\n");
  CHECK(table_text(verdict).starts_with(
      "hosts     reach    command  volume   clock    machine  gpus     network  speed\n"
      "h[1-3,5]  OK       OK       OK       OK       OK       OK       OK       30 us, 1.0 GB/s\n"
      "h4        OK       OK       OK       OK       OK       OK       OK       FAIL 33 us, 2.0 "
      "MB/s\n"));
}

TEST_CASE("preflight speed: a slow link between two hosts that are fast elsewhere is a warning") {
  const Verdict verdict = judge(with_pairs({1e9, 4e8, 1e9, 1e8}));
  CHECK(speed_marks(verdict) == "WOOW");
  CHECK(
      remarks_text(verdict).starts_with("WARN speed h[1,4]: slow between h4 and h1: 100.0 MB/s; "));
  CHECK(!verdict.has_failed());
  CHECK(judge(with_pairs({1e9, 3.4e8, 1e9})).remarks.empty());
}

TEST_CASE("preflight speed: a fast host between two slow ones is named with its neighbours") {
  const Verdict verdict = judge(with_pairs({1e6, 1e6, 1e6, 1e6, 1e9, 1e9, 1e9, 1e9}));
  CHECK(speed_marks(verdict) == "OFFFOOOO");
  CHECK_THAT(remarks_text(verdict),
             Catch::Matchers::Contains("FAIL speed h[3-4]: slow between h3 and h4: ") &&
                 Catch::Matchers::Contains("FAIL speed h[2-3]: slow between h2 and h3: "));
}

TEST_CASE("preflight speed: where fewer than half were measured nobody is slow") {
  Findings all = with_pairs({1e9, 1e6, 1e9, 1e9, 1e9, 1e9, 1e9});
  CHECK(speed_marks(judge(all)) == "OWWOOOO");
  all.speeds[0].why = "the connection broke";  // h2 has one pair left, which blames nobody
  CHECK(speed_marks(judge(all)) == "FWWOOOO");
  for (std::size_t pair = 3; pair < 7; ++pair) all.speeds[pair].why = all.speeds[0].why;
  CHECK(speed_marks(judge(all)) == "FOOFFFF");
  CHECK_THAT(table_text(judge(all)),
             Catch::Matchers::Contains("FAIL speed h4: to h5: the connection broke"));
}

}  // namespace dt::preflight
