#include "launcher/placement/placement.h"

#include <fstream>
#include <map>

#include "launcher/cli/launch_options.h"
#include "test/support/catch.h"

using namespace dt;
using namespace dt::launcher;
using Catch::Matchers::Contains;

namespace {

using Variables = std::map<std::string, std::string>;

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

std::string workers_of(const Result<io::JobSpec>& spec) {
  if (!spec) return spec.error().message;
  return fmt::format("{}", fmt::join(spec->workers, " "));
}

std::string way_of(const io::JobSpec& spec, const Host& host) {
  return std::string(to_text(way_to(host, StarterKind::kSsh, spec.allocation)));
}

/// What the environment of a launch says, and what its scheduler answers.
struct Around {
  const char* name;
  Variables variables;
  Answer squeue, hostfile;
  std::vector<NodeFacts> nodes;
};

Result<Placement> placement_in(const Around& around, const Options& options,
                               std::string_view hosts) {
  const VariableOf variable = of(around.variables);
  const auto allocation = [&](std::optional<StarterKind> kind) {
    std::vector<Result<Allocation>> found;
    if (slurm_job(variable) && kind.value_or(StarterKind::kSlurm) == StarterKind::kSlurm)
      found.push_back(slurm_allocation(variable, around.squeue));
    if (sge_hostfile(variable) && kind.value_or(StarterKind::kSge) == StarterKind::kSge)
      found.push_back(sge_allocation(variable, around.hostfile));
    return only_one(found);
  };
  const auto nodes = [&](const Allocation&) { return around.nodes; };
  return find_placement({options.launcher, options.hostfile, *parse_hosts(hosts, options.hostfile)},
                        {variable, allocation, nodes});
}

/// On the nodes of slurm().
Placement on_slurm(const Options& options, std::string_view hosts = "",
                   std::optional<std::uint32_t> tasks = {}, std::vector<NodeFacts> nodes = {}) {
  const auto allocation = [&](std::optional<StarterKind>) { return std::optional(slurm(tasks)); };
  const auto placement =
      find_placement({options.launcher, options.hostfile, *parse_hosts(hosts, options.hostfile)},
                     {of(kInSlurm), allocation, [&](const Allocation&) { return nodes; }});
  REQUIRE(placement);
  return *placement;
}

Result<io::JobSpec> plan_on_slurm(const Options& options, std::string_view hosts = "",
                                  std::optional<std::uint32_t> tasks = {},
                                  std::vector<NodeFacts> nodes = {}) {
  return plan(options, on_slurm(options, hosts, tasks, std::move(nodes)));
}

Result<io::JobSpec> plan_by_ssh(const Options& options, std::string_view hosts) {
  return plan(options, *placement_in({}, options, hosts));
}

std::vector<Around> surroundings_of_matrix() {
  const Answer runs{true, "RUNNING|2027-01-01T00:00:00|n[1-2]\n"};
  const Answer pe{true, "n1 2 all.q@n1 UNDEFINED\nn2 1 all.q@n2 UNDEFINED\n"};
  const std::vector<NodeFacts> good = {{"n1", "10.0.0.1", "MIXED", ""},
                                       {"n2", "10.0.0.2", "IDLE", ""}};
  const std::vector<NodeFacts> drained = {{"n1", "n1", "MIXED", ""},
                                          {"n2", "n2", "DOWN*+DRAIN", "bad fan"}};
  const auto with = [](Variables all, const Variables& more) {
    all.insert(more.begin(), more.end());
    return all;
  };
  return {{"nothing", {}, {}, {}, {}},
          {"slurm", kInSlurm, runs, {}, good},
          {"slurm-tasks",
           with(kInSlurm, {{"SLURM_NTASKS", "3"}, {"SLURM_TASKS_PER_NODE", "2,1"}}),
           runs,
           {},
           good},
          {"slurm-drained", kInSlurm, runs, {}, drained},
          {"slurm-over", kInSlurm, {true, ""}, {}, {}},
          {"slurm-silent", kInSlurm, {false, "Unable to contact"}, {}, {}},
          {"slurm-shrunk", kInSlurm, {true, "RUNNING|NONE|n1\n"}, {}, {}},
          {"sge", kInSge, {}, pe, {}},
          {"sge-over", kInSge, {}, {false, "No such file or directory"}, {}},
          {"both", with(kInSlurm, kInSge), runs, pe, good},
          {"slurm-over-sge", with(kInSlurm, kInSge), {true, ""}, pe, {}}};
}

Result<io::JobSpec> place(const Options& options, const Around& around, std::string_view hosts,
                          std::string& line) {
  const auto placement = placement_in(around, options, hosts);
  if (!placement) return tl::unexpected(placement.error());
  auto spec = plan(options, *placement);
  if (!spec) return spec;
  line = placement_line(*placement, *spec);
  if (auto usable = check_nodes(*placement, *spec); !usable) return tl::unexpected(usable.error());
  return spec;
}

std::string outcome(const Options& options, const Around& around, std::string_view hosts) {
  std::string line;
  const auto spec = place(options, around, hosts, line);
  if (!spec)
    return fmt::format("error {}: {}", static_cast<int>(spec.error().kind), spec.error().message);
  std::string out =
      fmt::format("workers {}, {}; known", fmt::join(spec->workers, " "), to_text(spec->launcher));
  for (const Host& host : spec->known_hosts)
    out += fmt::format(" {}={}", host, to_text(io::way_to(*spec, host)));
  if (spec->allocation) {
    out += fmt::format("; remembers {}", spec->allocation->job);
    for (const auto& node : spec->allocation->nodes)
      out += fmt::format(" {}@{}", node.name, node.address);
  }
  return line.empty() ? out : out + "; " + line;
}

}  // namespace

TEST_CASE("placement: inside an allocation neither -n nor -H is needed", "[placement]") {
  CHECK_THAT(parse({"t"}, {}).error().message, Contains("-n is missing"));
  CHECK_THAT(parse({"-H", "h", "t"}, kInSlurm).error().message, Contains("-n is missing"));
  CHECK_THAT(parse({"--launcher", "slurm", "t"}, {}).error().message,
             Contains("--launcher slurm: this is no Slurm job: run it inside of salloc"));
  CHECK_THAT(parse({"--launcher", "local", "t"}, kInSlurm).error().message,
             Contains("-n is missing"));
  const Options options = good({"t"}, kInSlurm);
  CHECK(workers_of(plan_on_slurm(options)) == "n1 n2");
  CHECK(workers_of(plan_on_slurm(options, "", 2)) == "n1 n1 n2 n2");
  CHECK(workers_of(plan_on_slurm(good({"-n", "3", "t"}, kInSlurm))) == "n1 n1 n2");
  CHECK(workers_of(plan_on_slurm(good({"-n", "3", "t"}, kInSlurm), "", 2)) == "n1 n1 n2");
  CHECK(workers_of(plan_on_slurm(good({"-n", "5", "t"}, kInSlurm), "", 2)) ==
        "-n 5: Slurm job 41 has 4 slots (--ntasks of the Slurm job): ask for fewer workers here, "
        "or for more when the allocation is made");
  CHECK_THAT(workers_of(plan_on_slurm(good({"--min-workers", "3", "t"}, kInSlurm))),
             Contains("--min-workers 3: the job starts with -n 2"));
  const auto spec = plan_on_slurm(
      options, "", {}, {{.name = "n2", .address = "10.0.0.2", .state = "IDLE", .reason = ""}});
  REQUIRE(spec);
  CHECK_FALSE(io::is_local(*spec));
  REQUIRE(spec->allocation);
  CHECK(spec->allocation->job == "41");
  CHECK(spec->allocation->nodes.at(0).address.empty());
  CHECK(spec->allocation->nodes.at(1).address == "10.0.0.2");
  CHECK(placement_line(on_slurm(options), *spec) ==
        "Slurm job 41: n[1-2], 2 nodes, 2 workers, by srun (--launcher local: this machine only)");
}

TEST_CASE("placement: a starter that knows names alone gets no user and no port", "[placement]") {
  const Options by_pods = good({"-n", "1", "-H", "h", "--launcher", "kubernetes", "t"}, {});
  CHECK(plan_by_ssh(by_pods, "pod-0\n"));
  CHECK(workers_of(plan_by_ssh(by_pods, "u@pod-0\n")) ==
        "h: u@pod-0 has a user, and --launcher kubernetes reaches a host by its name alone");
  CHECK_THAT(workers_of(plan_by_ssh(by_pods, "pod-0\npod-1:22\n")),
             Contains("pod-1:22 has a port"));
  CHECK(plan_by_ssh(by_pods, "pod-0\nu@a:22 via=ssh\n"));
}

TEST_CASE("placement: nodes of the allocation go by its starter, others by ssh", "[placement]") {
  const Options options = good({"-n", "4", "-H", "h", "t"}, kInSlurm);
  const auto spec = plan_on_slurm(options, "a\nn2\nn1 via=ssh\nn3 via=mpi\n");
  REQUIRE(spec);
  CHECK(way_of(*spec, {"", "a", 0}) == "ssh");
  CHECK(way_of(*spec, {"", "n2", 0}) == "slurm");
  CHECK(way_of(*spec, {"u", "n2", 0}) == "ssh");
  CHECK(way_of(*spec, spec->known_hosts.at(2)) == "ssh");
  CHECK(way_of(*spec, spec->known_hosts.at(3)) == "mpi");
  CHECK(placement_line(on_slurm(options, "n2\n"), *spec) ==
        "Slurm job 41: 1 host of h by srun, 1 other by ssh, 2 by via=");
  // By ssh also within the allocation.
  const Options by_ssh = good({"--launcher", "ssh", "t"}, kInSlurm);
  const auto within = plan_on_slurm(by_ssh);
  REQUIRE(within);
  CHECK(workers_of(within) == "n1 n2");
  CHECK_FALSE(within->allocation);
  CHECK_FALSE(io::is_local(*within));
  CHECK_THAT(placement_line(on_slurm(by_ssh), *within), Contains("2 workers, by ssh"));
}

TEST_CASE("placement: a node that was taken out is named with its state", "[placement]") {
  const std::vector<NodeFacts> nodes = {
      {.name = "n1", .address = "n1", .state = "MIXED", .reason = ""},
      {.name = "n2", .address = "n2", .state = "DOWN*+DRAIN", .reason = "bad fan"}};
  const auto both = plan_on_slurm(good({"t"}, kInSlurm), "", {}, nodes);
  REQUIRE(both);
  const auto checked = check_nodes(on_slurm(good({"t"}, kInSlurm), "", {}, nodes), *both);
  REQUIRE_FALSE(checked);
  CHECK(checked.error().kind == ErrorKind::kUnavailable);
  CHECK_THAT(checked.error().message,
             Contains("n2 of Slurm job 41 is DOWN*+DRAIN (bad fan): begin without it"));
  const auto one = plan_on_slurm(good({"-n", "1", "t"}, kInSlurm), "", {}, nodes);
  REQUIRE(one);
  CHECK(check_nodes(on_slurm(good({"t"}, kInSlurm), "", {}, nodes), *one));
}

TEST_CASE("placement: a job remembers its allocation and how its hosts are reached",
          "[placement]") {
  auto spec = plan_on_slurm(good({"-n", "2", "-H", "h", "t"}, kInSlurm), "n2\na gpus=0,2 via=mpi\n",
                            {}, {{.name = "n1", .address = "10.0.0.1", .state = "", .reason = ""}});
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

TEST_CASE("placement: every launcher x hosts file x surroundings is decided as ever",
          "[placement]") {
  const std::vector<std::pair<const char*, const char*>> files = {{"", ""},
                                                                  {"others", "a\nb\n"},
                                                                  {"nodes", "n1\nn2\n"},
                                                                  {"mixed", "a\nn2\n"},
                                                                  {"node-by-ssh", "n1 via=ssh\n"},
                                                                  {"user", "u@n1\nn2:22\n"}};
  std::string text;
  for (const char* launcher : {"", "ssh", "local", "slurm", "sge", "mpi"})
    for (const auto& [file, hosts] : files)
      for (const char* workers : {"", "2"}) {
        io::Words words;
        for (const auto& [flag, value] :
             {std::pair("--launcher", launcher), std::pair("-H", file), std::pair("-n", workers)})
          if (*value) words.insert(words.end(), {flag, value});
        words.emplace_back("t");
        std::map<std::string, std::string> outcomes;
        for (const Around& around : surroundings_of_matrix())
          if (const auto options = parse(words, around.variables))
            outcomes[outcome(*options, around, hosts)] += fmt::format(" {}", around.name);
        for (const auto& [what, where] : outcomes)
          text += fmt::format("{} |{} | {}\n", fmt::join(words, " "), where, what);
      }
  std::ifstream file(DT_PLACEMENT_MATRIX);
  const std::string expected((std::istreambuf_iterator<char>(file)), {});
  std::ofstream("placement_matrix.txt") << text;
  INFO("what came out is in placement_matrix.txt");
  CHECK(text == expected);
}
