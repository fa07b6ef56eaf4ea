#include "launcher/cli/placement.h"

#include <map>

#include "test/support/catch.h"

using namespace dt;
using namespace dt::launcher;
using Catch::Matchers::Contains;

namespace {

using Variables = std::map<std::string, std::string>;
using How = AllocationWish::How;

const Variables kInSlurm = {{"SLURM_JOB_ID", "41"}, {"SLURM_JOB_NODELIST", "n[1-2]"}};
const Variables kInSge = {{"PE_HOSTFILE", "/spool/7/pe"}, {"JOB_ID", "7"}};

VariableOf of(Variables variables) {
  return [all = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = all.find(name);
    return found == all.end() ? std::nullopt : std::optional(found->second);
  };
}

Result<Options> parse(const io::Words& words, const Variables& variables) {
  return parse_options(words, {.cwd = "/job", .variable = of(variables), .version = "1"});
}

Options good(const io::Words& words, const Variables& variables) {
  auto options = parse(words, variables);
  INFO((options ? "" : options.error().message));
  REQUIRE(options);
  return *options;
}

Allocation slurm(std::optional<std::uint32_t> tasks = std::nullopt) {
  Allocation found;
  found.job = "41";
  found.nodes = "n[1-2]";
  for (const char* name : {"n1", "n2"}) found.hosts.push_back({Host{"", name, 0}, tasks, 1});
  if (tasks) found.slots_from = "--ntasks of the Slurm job";
  return found;
}

How wish_of(const io::Words& words, const Variables& variables, std::string_view hosts = "") {
  const auto wish = allocation_wish(good(words, variables), hosts, of(variables));
  REQUIRE(wish);
  return wish->how;
}

std::string workers_of(const Result<io::JobSpec>& spec) {
  if (!spec) return spec.error().message;
  return fmt::format("{}", fmt::join(spec->workers, " "));
}

std::string way_of(const io::JobSpec& spec, const Host& host) {
  return std::string(to_text(way_to(host, StarterKind::kSsh, spec.allocation)));
}

}  // namespace

TEST_CASE("placement: an allocation is looked for where its hosts may be meant", "[placement]") {
  CHECK(wish_of({"-n", "2", "t"}, {}) == How::kNone);
  CHECK(wish_of({"t"}, kInSlurm) == How::kNeeded);
  CHECK(wish_of({"t"}, kInSge) == How::kNeeded);
  CHECK(wish_of({"-n", "2", "--launcher", "local", "t"}, kInSlurm) == How::kNone);
  CHECK(wish_of({"--launcher", "ssh", "t"}, kInSlurm) == How::kNeeded);
  CHECK(wish_of({"-n", "2", "-H", "h", "t"}, kInSlurm, "a\nb\n") == How::kNone);
  CHECK(wish_of({"-n", "2", "-H", "h", "t"}, kInSlurm, "a\nn2\n") == How::kNeeded);
  CHECK(wish_of({"-n", "2", "-H", "h", "t"}, kInSlurm, "a\nn2 via=ssh\n") == How::kNone);
  CHECK(wish_of({"-n", "2", "-H", "h", "t"}, kInSlurm, "a\nu@n2\nn1:22\n") == How::kNone);
  CHECK(wish_of({"-n", "2", "-H", "h", "t"}, kInSge, "a\n") == How::kIfAlive);
  CHECK(wish_of({"-n", "2", "-H", "h", "--launcher", "ssh", "t"}, kInSlurm, "n1\n") == How::kNone);
}

TEST_CASE("placement: inside an allocation neither -n nor -H is needed", "[placement]") {
  CHECK_THAT(parse({"t"}, {}).error().message, Contains("-n is missing"));
  CHECK_THAT(parse({"-H", "h", "t"}, kInSlurm).error().message, Contains("-n is missing"));
  CHECK_THAT(parse({"--launcher", "slurm", "t"}, {}).error().message,
             Contains("--launcher slurm: this is no Slurm job: run it inside of salloc"));
  CHECK_THAT(parse({"--launcher", "local", "t"}, kInSlurm).error().message,
             Contains("-n is missing"));
  const Options options = good({"t"}, kInSlurm);
  CHECK(workers_of(plan(options, "", slurm())) == "n1 n2");
  CHECK(workers_of(plan(options, "", slurm(2))) == "n1 n1 n2 n2");
  CHECK(workers_of(plan(good({"-n", "3", "t"}, kInSlurm), "", slurm())) == "n1 n1 n2");
  CHECK(workers_of(plan(good({"-n", "3", "t"}, kInSlurm), "", slurm(2))) == "n1 n1 n2");
  CHECK(workers_of(plan(good({"-n", "5", "t"}, kInSlurm), "", slurm(2))) ==
        "-n 5: Slurm job 41 has 4 slots (--ntasks of the Slurm job): ask for fewer workers here, "
        "or for more when the allocation is made");
  CHECK_THAT(workers_of(plan(good({"--min-workers", "3", "t"}, kInSlurm), "", slurm())),
             Contains("--min-workers 3: the job starts with -n 2"));
  const auto spec = plan(options, "", slurm(),
                         {{.name = "n2", .address = "10.0.0.2", .state = "IDLE", .reason = ""}});
  REQUIRE(spec);
  CHECK_FALSE(io::is_local(*spec));
  REQUIRE(spec->allocation);
  CHECK(spec->allocation->job == "41");
  CHECK(spec->allocation->nodes.at(0).address.empty());
  CHECK(spec->allocation->nodes.at(1).address == "10.0.0.2");
  CHECK(placement_line(options, *spec, slurm()) ==
        "Slurm job 41: n[1-2], 2 nodes, 2 workers, by srun (--launcher local: this machine only)");
}

TEST_CASE("placement: a starter that knows names alone gets no user and no port", "[placement]") {
  const Options by_pods = good({"-n", "1", "-H", "h", "--launcher", "kubernetes", "t"}, {});
  CHECK(plan(by_pods, "pod-0\n"));
  CHECK(workers_of(plan(by_pods, "u@pod-0\n")) ==
        "h: u@pod-0 has a user, and --launcher kubernetes reaches a host by its name alone");
  CHECK_THAT(workers_of(plan(by_pods, "pod-0\npod-1:22\n")), Contains("pod-1:22 has a port"));
  CHECK(plan(by_pods, "pod-0\nu@a:22 via=ssh\n"));
}

TEST_CASE("placement: nodes of the allocation go by its starter, others by ssh", "[placement]") {
  const Options options = good({"-n", "4", "-H", "h", "t"}, kInSlurm);
  const auto spec = plan(options, "a\nn2\nn1 via=ssh\nn3 via=mpi\n", slurm());
  REQUIRE(spec);
  CHECK(way_of(*spec, {"", "a", 0}) == "ssh");
  CHECK(way_of(*spec, {"", "n2", 0}) == "slurm");
  CHECK(way_of(*spec, {"u", "n2", 0}) == "ssh");
  CHECK(way_of(*spec, spec->known_hosts.at(2)) == "ssh");
  CHECK(way_of(*spec, spec->known_hosts.at(3)) == "mpi");
  CHECK(placement_line(options, *spec, slurm()) ==
        "Slurm job 41: 1 host of h by srun, 1 other by ssh, 2 by via=");
  const auto none = plan(options, "a\nb\n", slurm());
  REQUIRE(none);
  CHECK(placement_line(options, *none, slurm()).empty());
  // By ssh also within the allocation.
  const Options by_ssh = good({"--launcher", "ssh", "t"}, kInSlurm);
  const auto within = plan(by_ssh, "", slurm());
  REQUIRE(within);
  CHECK(workers_of(within) == "n1 n2");
  CHECK_FALSE(within->allocation);
  CHECK_FALSE(io::is_local(*within));
  CHECK_THAT(placement_line(by_ssh, *within, slurm()), Contains("2 workers, by ssh"));
}

TEST_CASE("placement: a node that was taken out is named with its state", "[placement]") {
  const std::vector<NodeFacts> nodes = {
      {.name = "n1", .address = "n1", .state = "MIXED", .reason = ""},
      {.name = "n2", .address = "n2", .state = "DOWN*+DRAIN", .reason = "bad fan"}};
  const auto both = plan(good({"t"}, kInSlurm), "", slurm(), nodes);
  REQUIRE(both);
  const auto checked = check_nodes(*both, slurm(), nodes);
  REQUIRE_FALSE(checked);
  CHECK(checked.error().kind == ErrorKind::kUnavailable);
  CHECK_THAT(checked.error().message,
             Contains("n2 of Slurm job 41 is DOWN*+DRAIN (bad fan): begin without it"));
  const auto one = plan(good({"-n", "1", "t"}, kInSlurm), "", slurm(), nodes);
  REQUIRE(one);
  CHECK(check_nodes(*one, slurm(), nodes));
}

TEST_CASE("placement: a job remembers its allocation and how its hosts are reached",
          "[placement]") {
  auto spec = plan(good({"-n", "2", "-H", "h", "t"}, kInSlurm), "n2\na gpus=0,2 via=mpi\n", slurm(),
                   {{.name = "n1", .address = "10.0.0.1", .state = "", .reason = ""}});
  REQUIRE(spec);
  const auto back = io::spec_from_json(io::to_json(*spec));
  REQUIRE(back);
  REQUIRE(back->allocation);
  CHECK(back->allocation->kind == StarterKind::kSlurm);
  CHECK(back->allocation->job == "41");
  CHECK(back->allocation->nodes.at(0).name == "n1");
  CHECK(back->allocation->nodes.at(0).address == "10.0.0.1");
  CHECK(back->workers.at(1).via == StarterKind::kMpi);
  CHECK(back->workers.at(1).gpus == "0,2");
  CHECK_FALSE(back->workers.at(0).via);
}

TEST_CASE("placement: variables of the dmlc launchers are honoured", "[placement]") {
  const Variables variables = {{"PS_VERBOSE", "1"}, {"DMLC_INTERFACE", "eth"}};
  CHECK(good({"-n", "1", "t"}, variables).spec.ps_verbose == "1");
  CHECK(good({"-n", "1", "t"}, variables).spec.data.interface == "eth");
  CHECK(good({"-n", "1", "--interface", "ib0", "t"}, variables).spec.data.interface == "ib0");
  CHECK(good({"-n", "1", "t"}, {}).spec.ps_verbose.empty());
  const auto back = io::spec_from_json(io::to_json(good({"-n", "1", "t"}, variables).spec));
  REQUIRE(back);
  CHECK(back->ps_verbose == "1");
}
