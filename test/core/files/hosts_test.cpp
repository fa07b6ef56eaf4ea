#include "core/files/hosts.h"

#include <rapidcheck.h>

#include <algorithm>
#include <array>

#include "test/support/catch.h"

using namespace dt;

namespace {

std::string hosts_of(std::string_view text) {
  const auto lines = parse_hosts(text, "hosts");
  if (!lines) return "error " + lines.error().message;
  std::string out;
  for (const auto& line : *lines) {
    if (!out.empty()) out += " ";
    out += to_string(line.host);
    if (line.host.via) out += fmt::format("/{}", to_text(*line.host.via));
    if (line.slots) out += fmt::format("*{}", *line.slots);
    if (!line.host.gpus.empty()) out += "=" + line.host.gpus;
  }
  return out;
}

std::string error_of(std::string_view text) {
  const auto lines = parse_hosts(text, "hosts");
  return lines ? "no error" : lines.error().message;
}

struct LoneHost {
  static constexpr std::uint16_t kType = 1;
  Host host;
};

std::string join(const std::vector<Host>& hosts) {
  std::string out;
  for (const auto& host : hosts) out += to_string(host) + " ";
  return out;
}

rc::Gen<Host> any_host() {
  const auto word = [](std::string first, std::string rest) {
    return rc::gen::map(
        rc::gen::pair(rc::gen::elementOf(first),
                      rc::gen::container<std::string>(rc::gen::elementOf(rest))),
        [](const std::pair<char, std::string>& p) { return (p.first + p.second).substr(0, 60); });
  };
  const std::string rest = "abcXYZ019-_.";
  const auto name = rc::gen::oneOf(
      word("abcXYZ_", rest),
      rc::gen::element<std::string>("10.0.0.7", "127.0.0.2", "::1", "fe80::1%eth0", "2001:db8::7"));
  const auto user = rc::gen::oneOf(rc::gen::just(std::string()), word("abcXYZ_", rest + "@+"));
  // One name has one via, and one host one list: the name decides.
  return rc::gen::map(
      rc::gen::tuple(user, name, rc::gen::arbitrary<std::uint16_t>()),
      [](const std::tuple<std::string, std::string, std::uint16_t>& parts) {
        Host host{std::get<0>(parts), std::get<1>(parts), std::get<2>(parts)};
        constexpr std::array kVias = {StarterKind::kSsh, StarterKind::kMpi, StarterKind::kCommand};
        const std::size_t choice = host.name.size() % (kVias.size() + 1);
        if (choice < kVias.size()) host.via = kVias[choice];
        if (host.name.size() % 3 == 0) host.gpus = fmt::format("{},8-9", host.name.size() % 7);
        if (host.via && knows_names_only(*host.via))
          return Host{"", host.name, 0, host.via, host.gpus};
        return host;
      });
}

/// Also in how they are reached and in their GPUs.
bool same(const std::vector<Host>& a, const std::vector<Host>& b) {
  return std::ranges::equal(
      a, b, [](const Host& x, const Host& y) { return x == y && line_of(x) == line_of(y); });
}

}  // namespace

TEST_CASE("hosts: every form of a line means the obvious thing", "[hosts]") {
  const auto [text, expected] = GENERATE(table<std::string, std::string>({
      {"", ""},
      {"\n\n  \n\t\r\n", ""},
      {"# nothing\n   # here\n", ""},
      {"a", "a"},
      {"a\nb\n", "a b"},
      {"a\r\nb\r\n", "a b"},
      {"  a  \n\tb\t\n", "a b"},
      {"a#comment\nb # more slots=3\n", "a b"},
      {"\xef\xbb\xbf"
       "a\n",
       "a"},
      {"a slots=4\n", "a*4"},
      {"a   slots=4 # four\r\n", "a*4"},
      {"alice@node7:2222 slots=2\n", "alice@node7:2222*2"},
      {"alice@corp.example@node7", "alice@corp.example@node7"},
      {"10.0.1.9:22", "10.0.1.9:22"},
      {"10.0.1", "10.0.1"},
      {"[::1]\n[fe80::1%eth0]:2222 slots=3", "[::1] [fe80::1%eth0]:2222*3"},
      {"bob@[2001:db8::7]:22", "bob@[2001:db8::7]:22"},
      {"node[1-3]", "node1 node2 node3"},
      {"node[01-03]", "node01 node02 node03"},
      {"node[8-11]", "node8 node9 node10 node11"},
      {"node[098-101]", "node098 node099 node100 node101"},
      {"gpu[1,3,5-7]", "gpu1 gpu3 gpu5 gpu6 gpu7"},
      {"r[1-2]n[1-2].x", "r1n1.x r1n2.x r2n1.x r2n2.x"},
      {"10.0.0.[1-2]", "10.0.0.1 10.0.0.2"},
      {"[1-2]a", "1a 2a"},
      {"u@n[1-2]:22 slots=2", "u@n1:22*2 u@n2:22*2"},
      {"n7 via=slurm", "n7/slurm"},
      {"n[1-2] via=sge slots=2 # both\r\n", "n1/sge*2 n2/sge*2"},
      {"n7 slots=2 via=slurm\n10.0.1.9\npod-3 via=kubernetes",
       "n7/slurm*2 10.0.1.9 pod-3/kubernetes"},
      {"u@a:22 via=ssh\nb via=command", "u@a:22/ssh b/command"},
      // A line without via goes the way of its name's other lines, before and behind it.
      {"a\na via=mpi\na", "a/mpi a/mpi a/mpi"},
      {"a via=ssh\nu@a:1", "a/ssh u@a:1/ssh"},
      {"n[1-2] gpus=0,2-5 slots=2 via=ssh", "n1/ssh*2=0,2-5 n2/ssh*2=0,2-5"},
      // One without gpus has its host's, and another port is another host.
      {"a\na gpus=1\na:2", "a=1 a=1 a:2"},
      {"a:1 gpus=255\na:2 gpus=0", "a:1=255 a:2=0"},
  }));
  CAPTURE(text);
  CHECK(hosts_of(text) == expected);
}

TEST_CASE("hosts: an error names file, line, column, the word and what was expected", "[hosts]") {
  const auto [text, expected] = GENERATE(table<std::string, std::string>({
      {"a\nb\nc slot=2\n",
       "hosts:3:3: \"slot=2\" was not expected: a line is [user@]host[:port] [slots=N] [gpus=LIST] "
       "[via=KIND]"},
      {"a\nb gpus=",
       "hosts:2:8: \"\" is no list of GPUs: nvidia-smi's numbers, each once, as in 0,2-5, were "
       "expected"},
      {"a gpus=2-0", "hosts:1:8: \"2-0\" is no list of GPUs"},
      {"a gpus=a", "hosts:1:8: \"a\" is no list of GPUs"},
      {"a gpus=0,0", "hosts:1:8: \"0,0\" is no list of GPUs"},
      {"a gpus=1-3,2", "hosts:1:8: \"1-3,2\" is no list of GPUs"},
      {"a gpus=0,", "hosts:1:8: \"0,\" is no list of GPUs"},
      {"a gpus=0-", "hosts:1:8: \"0-\" is no list of GPUs"},
      {"a gpus=-1", "hosts:1:8: \"-1\" is no list of GPUs"},
      {"a gpus=1-2-3", "hosts:1:8: \"1-2-3\" is no list of GPUs"},
      {"a gpus=256", "hosts:1:8: \"256\" is no list of GPUs"},
      {"a gpus=0 gpus=1", "hosts:1:10: gpus= is given twice"},
      {"a gpus=0\na gpus=0-1", "hosts:2:3: a has gpus=0 in line 1: one host has one list"},
      {"a via=", "hosts:1:7: \"\" is no way to reach a host"},
      {"a via=Slurm",
       "hosts:1:7: \"Slurm\" is no way to reach a host: ssh, local, slurm, sge, mpi, kubernetes, "
       "command was expected"},
      {"a via=ssh via=ssh", "hosts:1:11: via= is given twice"},
      {"n1 via=slurm\nn2 via=ssh\n\nn1 slots=2 via=ssh\n",
       "hosts:4:12: n1 has via=slurm in line 1: one host is reached in one way"},
      {"n[1-3] via=slurm\nn2 via=mpi", "hosts:2:4: n2 has via=slurm in line 1"},
      {"u@n1 via=slurm", "hosts:1:6: via=slurm reaches a host by its name alone: u@n1 has a user"},
      {"u@n1 via=mpi", "hosts:1:6: via=mpi reaches a host by its name alone: u@n1 has a user"},
      {"n1:22 via=sge", "hosts:1:7: via=sge reaches a host by its name alone: n1:22 has a port"},
      {"a slots=0", "hosts:1:9: \"0\" is no number of slots: 1 to 10000 was expected"},
      {"a slots=", "hosts:1:9: \"\" is no number"},
      {"a slots=-1", "hosts:1:9: \"-1\" is no number"},
      {"a slots=99999999999999999999", "is no number of slots"},
      {"a slots=1 slots=2", "hosts:1:11: slots= is given twice"},
      {"a b", "hosts:1:3: \"b\" was not expected"},
      {"a,b", "hosts:1:2: \"a,b\": one host a line"},
      {"fe80::1", "hosts:1:1: \"fe80::1\": write an IPv6 address in brackets, as in [fe80::1]"},
      {"ssh://h1", "hosts:1:1: \"ssh://h1\": no scheme: [user@]host[:port] was expected"},
      {"h1,h2", "hosts:1:3: \"h1,h2\": one host a line"},
      {"[fe80::1", "IPv6 address in brackets"},
      {"[fe80::1]x", "hosts:1:10: \"x\": only \":port\" may follow"},
      {"[fe:xyz::1]", "hosts:1:2: \"fe:xyz::1\" is no IPv6 address"},
      {"a:0", "hosts:1:3: \"0\" is no port"},
      {"a:70000", "hosts:1:3: \"70000\" is no port"},
      {"a:", "hosts:1:3: \"\" is no port"},
      {":22", "hosts:1:1: a host's name is missing before \":\""},
      {"@a", "hosts:1:1: a user's name is missing"},
      {"u@", "hosts:1:3: a host's name is missing after \"@\""},
      {"-oProxyCommand=x", "\"=\" may not stand in a host's name"},
      {"-v", "hosts:1:1: \"-v\": a host's name begins with a letter or a digit"},
      {"-l@a", "hosts:1:1: \"-l\" is no user's name"},
      {"../etc", "hosts:1:3: \"/\" may not stand"},
      {"..", "begins with a letter or a digit"},
      {"10.0.0.300", "hosts:1:1: \"10.0.0.300\" is no IPv4 address"},
      {"10.0.0.01", "is no IPv4 address: four numbers 0 to 255 without leading zeros"},
      {"n[1-", "hosts:1:2: \"[\" has no matching \"]\""},
      {"n[]", "hosts:1:3: \"\" is no range"},
      {"n[1,]", "hosts:1:5: \"\" is no range"},
      {"n[a-b]", "hosts:1:3: \"a-b\" is no range"},
      {"n[3-1]", "hosts:1:3: the range \"3-1\" runs backwards"},
      {"n[1-99999999]", "hosts:1:1: the list would have more than 65536 hosts"},
      {"n[1-60000]\nm[1-60000]", "hosts:2:1: the list would have more than 65536 hosts"},
      {"n[1-9999]m[1-9999]m[1-9999]m[1-9999]m[1-9999]", "more than 65536 hosts"},
      {std::string("a\0b", 3), "hosts:1:2: \"\\x00\" may not stand"},
      {"ok\n\xff\xfe", "hosts:2:1: \"\\xff\" may not stand"},
  }));
  CAPTURE(text);
  CHECK(error_of(text).find("hosts:") == 0);
  CHECK_THAT(error_of(text), Catch::Matchers::Contains(expected));
}

TEST_CASE("hosts: names that would take gigabytes once expanded are refused unexpanded",
          "[hosts]") {
  const std::string megabyte(1 << 20, 'a');
  CHECK_THAT(error_of("[1-60000]" + megabyte), Catch::Matchers::Contains("at most 253"));
  CHECK_THAT(error_of("n[" + std::string(1 << 20, '0') + "1-60000]"),
             Catch::Matchers::Contains("at most 253"));
  std::string groups = "[1-60000]";
  for (int i = 0; i < 100'000; ++i) groups += "[1]";
  CHECK_THAT(error_of(groups), Catch::Matchers::Contains("at most 253"));
}

TEST_CASE("hosts: a line remembers its number", "[hosts]") {
  const auto lines = parse_hosts("\n# x\na\n\nb[1-2]\n", "hosts");
  REQUIRE(lines);
  REQUIRE(lines->size() == 3);
  CHECK((*lines)[0].line == 3);
  CHECK((*lines)[1].line == 5);
  CHECK((*lines)[2].line == 5);
}

TEST_CASE("hosts: equal hosts add up, in order of first appearance", "[hosts]") {
  const auto lines = parse_hosts("b\na slots=2\nb slots=3\nb:22\nu@b\n", "hosts");
  REQUIRE(lines);
  const auto sums = sum_slots(*lines);
  std::string out;
  for (const auto& sum : sums) out += fmt::format("{}={} ", sum.host, sum.slots);
  CHECK(out == "b=4 a=2 b:22=1 u@b=1 ");
}

TEST_CASE("hosts: a bare address takes user and port from the hosts file", "[hosts]") {
  const auto adopted = [](std::string_view text, std::string_view known_text) {
    const auto known_lines = parse_hosts(known_text, "hosts");
    std::vector<Host> known;
    for (const auto& line : *known_lines) known.push_back(line.host);
    std::vector<Host> hosts;
    for (const auto& line : with_known_ways(*parse_hosts(text, "host_worker"), known))
      hosts.push_back(line.host);
    return join(hosts);
  };
  CHECK(adopted("a", "u@a:2222") == "u@a:2222 ");
  CHECK(adopted("a", "u@a:2222\nu@a:2222") == "u@a:2222 ");
  CHECK(adopted("a:1", "u@a:2222") == "u@a:1 ");
  CHECK(adopted("v@a", "u@a:2222") == "v@a:2222 ");
  CHECK(adopted("b", "u@a:2222") == "b ");
  const Host known{"u", "a", 22, {}, "0-1"};
  CHECK(line_of(with_known_ways(*parse_hosts("a", "f"), {known}).at(0).host) == "u@a:22 gpus=0-1");
  CHECK(line_of(with_known_ways(*parse_hosts("a gpus=2", "f"), {known}).at(0).host) ==
        "u@a:22 gpus=2");
  // A line that has no list takes none from one that has.
  CHECK(line_of(sum_slots({{{"u", "a", 22}, {}, 1}, {known, {}, 2}}).at(0).host) ==
        "u@a:22 gpus=0-1");
  CHECK(with_known_ways(*parse_hosts("a\nb via=ssh", "f"),
                        {{"", "a", 0, StarterKind::kSlurm}, {"", "b", 0, StarterKind::kSlurm}})
            .at(0)
            .host.via == StarterKind::kSlurm);
  CHECK(with_known_ways(*parse_hosts("b via=ssh", "f"), {{"", "b", 0, StarterKind::kSlurm}})
            .at(0)
            .host.via == StarterKind::kSsh);
  // Two of one name: which one is meant is not ours to guess.
  CHECK(adopted("a", "a:1\na:2") == "a ");
}

TEST_CASE("hosts: workers are dealt in turn over slots, and numbered host by host", "[hosts]") {
  const auto placed = [](std::string_view text, std::uint32_t count) {
    const auto workers = place_workers(*parse_hosts(text, "hosts"), count);
    return workers ? join(*workers) : "error " + workers.error().message;
  };
  CHECK(placed("a\nb", 1) == "a ");
  CHECK(placed("a\nb", 5) == "a a a b b ");
  CHECK(placed("a\na\nb", 6) == "a a a a b b ");
  CHECK(placed("a slots=2\nb slots=3", 5) == "a a b b b ");
  CHECK(placed("a slots=2\nb", 3) == "a a b ");
  CHECK(placed("a slots=2\nb", 4) ==
        "error 4 workers were asked for but the hosts have 3 slots: add hosts, raise slots=N, or "
        "ask for fewer");
  CHECK(placed("", 1) == "error there is no host for 1 workers");
  CHECK(placed("a", 0).empty());
}

TEST_CASE("hosts: how a host is reached is on its line, and no part of its name", "[hosts]") {
  const Host host{"u", "a", 22, StarterKind::kSsh};
  CHECK(to_string(host) == "u@a:22");
  CHECK(line_of(host) == "u@a:22 via=ssh");
  CHECK(fmt::format("{}", host) == "u@a:22");
  CHECK(host == Host{"u", "a", 22});
  CHECK(format_host_worker({{"", "n7", 0, StarterKind::kSlurm}, {"", "b", 0}}) ==
        "n7 via=slurm\nb\n");
  CHECK_FALSE(are_same_lines({{{"", "a", 0}, 1}}, {{{"", "a", 0, StarterKind::kSge}, 1}}));
  CHECK_FALSE(are_same_lines({{{"", "a", 0}, 1}}, {{{"", "a", 0, {}, "0"}, 1}}));
  CHECK(are_same_lines({{host, 1}}, {{host, 1}}));
}

TEST_CASE("hosts: a host travels as it did before it had a via", "[hosts]") {
  CHECK(wire::body_of(Host{"u", "a", 22}) == wire::body_of(HostOnWire{"u", "a", 22}));
  const auto back = [](const Host& host) {
    const auto read = wire::parse<LoneHost>(wire::body_of(host));
    return read ? line_of(read->host) : read.error().message;
  };
  CHECK(back({"u", "a", 22}) == "u@a:22");
  CHECK(back({"", "a", 0, StarterKind::kSlurm}) == "a via=slurm");
  CHECK(back({"u", "a", 22, StarterKind::kCommand}) == "u@a:22 via=command");
  CHECK(back({"", "a", 0, {}, "0,2-5"}) == "a gpus=0,2-5");
  CHECK(back({"u", "a", 22, StarterKind::kSsh, "1"}) == "u@a:22 gpus=1 via=ssh");
  // Of a later version.
  CHECK_FALSE(wire::parse<LoneHost>(wire::body_of(HostOnWire{"teleport u", "a", 22})));
}

TEST_CASE("hosts: what is formatted parses back to the same", "[hosts][property]") {
  CHECK(rc::check([] {
    const auto hosts = *rc::gen::container<std::vector<Host>>(any_host());
    const auto lines = parse_hosts(format_host_worker(hosts), "host_worker");
    RC_ASSERT(lines.has_value());
    std::vector<Host> back;
    for (const auto& line : *lines) {
      RC_ASSERT_FALSE(line.slots.has_value());
      back.push_back(line.host);
    }
    RC_ASSERT(same(back, hosts));
  }));
}

TEST_CASE("hosts: what parses formats to something that parses to the same", "[hosts][property]") {
  CHECK(rc::check([] {
    const auto text =
        *rc::gen::container<std::string>(rc::gen::elementOf(std::string("ab1.0:@[]-,=# \r\n%s")));
    const auto lines = parse_hosts(text, "f");
    if (!lines) return;
    std::vector<Host> hosts;
    for (const auto& line : *lines) hosts.push_back(line.host);
    const auto again = parse_hosts(format_host_worker(hosts), "f");
    RC_ASSERT(again.has_value());
    std::vector<Host> back;
    for (const auto& line : *again) back.push_back(line.host);
    RC_ASSERT(same(back, hosts));
  }));
}

TEST_CASE("hosts: any bytes give hosts or one line of error", "[hosts][property]") {
  CHECK(rc::check([](const std::string& text) {
    const auto lines = parse_hosts(text, "f");
    if (!lines) {
      RC_ASSERT(lines.error().message.starts_with("f:"));
      RC_ASSERT(lines.error().message.find('\n') == std::string::npos);
    }
  }));
}

TEST_CASE("hosts: placement uses no host above its slots and as many workers as asked",
          "[hosts][property]") {
  CHECK(rc::check([] {
    std::vector<HostLine> lines;
    std::uint32_t total = 0;
    for (const auto slots :
         *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 5)))) {
      const auto n = static_cast<std::uint32_t>(slots);
      lines.push_back({Host{"", fmt::format("h{}", lines.size() % 4), 0}, n, 1});
      total += n;
    }
    const auto count = *rc::gen::inRange<std::uint32_t>(0, total + 3);
    const auto workers = place_workers(lines, count);
    RC_ASSERT(workers.has_value() == (count <= total));
    if (!workers) return;
    RC_ASSERT(workers->size() == count);
    // In turn: who has fewer than another has all of its slots. Host by host: each in one piece.
    std::vector<Host> pieces = *workers;
    pieces.erase(std::unique(pieces.begin(), pieces.end()), pieces.end());
    const auto sums = sum_slots(lines);
    std::ptrdiff_t most = 0;
    const auto has = [&](const Host& host) {
      return std::count(workers->begin(), workers->end(), host);
    };
    for (const auto& sum : sums) most = std::max(most, has(sum.host));
    for (const auto& sum : sums) {
      const auto slots = static_cast<std::ptrdiff_t>(sum.slots);
      RC_ASSERT(has(sum.host) <= slots);
      RC_ASSERT(has(sum.host) >= std::min(slots, most - 1));
      RC_ASSERT(std::count(pieces.begin(), pieces.end(), sum.host) <= 1);
    }
  }));
}
