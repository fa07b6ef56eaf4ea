#include "core/launch/allocation.h"

#include <map>

#include "core/files/host_names.h"
#include "test/support/catch.h"

using namespace dt;

namespace {

using Variables = std::map<std::string, std::string>;

VariableOf of(Variables variables) {
  return [all = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = all.find(name);
    return found == all.end() ? std::nullopt : std::optional(found->second);
  };
}

std::string expanded(std::string_view list) {
  const auto names = host_names::expand_list(list);
  if (!names) return fmt::format("{}: {}", names.error().at + 1, names.error().why);
  return fmt::format("{}", fmt::join(*names, " "));
}

std::string text_of(const Result<Allocation>& found) {
  if (!found) return found.error().message;
  std::string out = name_of(*found) + ":";
  for (const HostLine& line : found->hosts) {
    out += " " + to_string(line.host);
    if (line.slots) out += fmt::format("*{}", *line.slots);
  }
  return out;
}

Variables slurm(std::string nodes, Variables more = {}) {
  more["SLURM_JOB_ID"] = "41";
  more["SLURM_JOB_NODELIST"] = std::move(nodes);
  return more;
}

Answer running(const std::string& nodes) {
  return {true, "RUNNING|2026-11-25T09:00:00|" + nodes + "\n"};
}

std::string slurm_of(const std::string& nodes, Variables more = {}) {
  return text_of(slurm_allocation(of(slurm(nodes, std::move(more))), running(nodes)));
}

std::string tasks_of(const std::string& nodes, const std::string& tasks) {
  return slurm_of(nodes, {{"SLURM_NTASKS", "9"}, {"SLURM_TASKS_PER_NODE", tasks}});
}

std::string sge_of(const std::string& hostfile) {
  return text_of(
      sge_allocation(of({{"PE_HOSTFILE", "/spool/7/pe"}, {"JOB_ID", "7"}}), {true, hostfile}));
}

}  // namespace

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

TEST_CASE("allocation: a node list names each of its nodes, in order", "[allocation]") {
  CHECK(expanded("n1") == "n1");
  CHECK(expanded("n[1-2,7]") == "n1 n2 n7");
  CHECK(expanded("rack[0-1]n[01-04]") ==
        "rack0n01 rack0n02 rack0n03 rack0n04 rack1n01 rack1n02 rack1n03 rack1n04");
  CHECK(expanded("a,b[3-4]") == "a b3 b4");
  CHECK(expanded("n[1-2]-ib,m") == "n1-ib n2-ib m");
}

TEST_CASE("allocation: an unreadable node list is an error at its column", "[allocation]") {
  CHECK(expanded("").empty());
  CHECK_THAT(slurm_of(""), Contains("SLURM_JOB_NODELIST is not set"));
  CHECK_THAT(expanded("a,"), StartsWith("3: a host's name was expected"));
  CHECK_THAT(expanded(",a"), StartsWith("1: a host's name was expected"));
  CHECK_THAT(expanded("a,,b"), StartsWith("3: a host's name was expected"));
  CHECK_THAT(expanded("n[1-2"), StartsWith("2: \"[\" has no matching"));
  CHECK_THAT(expanded("a,n[2-1]"), StartsWith("5: the range \"2-1\" runs backwards"));
  CHECK_THAT(expanded("n[1-2]]"), StartsWith("7: \"]\" may not stand"));
  CHECK_THAT(expanded("a b"), StartsWith("2: \" \" may not stand"));
  CHECK_THAT(expanded(std::string_view("a\0b", 3)), StartsWith("2: \"\\x00\" may not stand"));
  CHECK_THAT(expanded(std::string(1 << 20, '[')), Contains("has no matching"));
  CHECK_THAT(expanded(std::string(1 << 20, ']')), Contains("may not stand"));
  CHECK_THAT(expanded("n[1-99999999]"), Contains("more than 65536 hosts"));
  CHECK_THAT(expanded("n[1-60000],m[1-60000]"), Contains("more than 65536 hosts"));
  CHECK_THAT(slurm_of("n[1-2,,7]"), StartsWith("SLURM_JOB_NODELIST:7: \"\" is no range"));
  CHECK_THAT(slurm_of("n[1-2,,7]"), Contains("--launcher local"));
}

TEST_CASE("allocation: Slurm's tasks are slots when they were asked for", "[allocation]") {
  CHECK(slurm_of("n[1-2]") == "Slurm job 41: n1 n2");
  CHECK(slurm_of("n[1-2]", {{"SLURM_TASKS_PER_NODE", "4(x2)"}}) == "Slurm job 41: n1 n2");
  CHECK(tasks_of("n[1-4]", "5(x3),2") == "Slurm job 41: n1*5 n2*5 n3*5 n4*2");
  CHECK(tasks_of("n1", "1") == "Slurm job 41: n1*1");
  // A step's within the job: its tasks say nothing of the job's.
  CHECK(slurm_of("n[1-2]", {{"SLURM_NTASKS", "1"},
                            {"SLURM_TASKS_PER_NODE", "1"},
                            {"SLURM_STEP_ID", "0"},
                            {"SLURM_STEP_TASKS_PER_NODE", "1"}}) == "Slurm job 41: n1 n2");
  const auto found = slurm_allocation(
      of(slurm("n[1-2]", {{"SLURM_NTASKS", "5"}, {"SLURM_TASKS_PER_NODE", "3,2"}})),
      running("n[1-2]"));
  REQUIRE(found);
  CHECK(usual_workers(*found) == 5);
  CHECK(found->nodes == "n[1-2]");
  CHECK(found->ends == "2026-11-25T09:00:00");
}

TEST_CASE("allocation: unreadable task counts are an error at their column", "[allocation]") {
  CHECK_THAT(tasks_of("n[1-2]", "2(x100000000)"),
             StartsWith("SLURM_TASKS_PER_NODE:1: it counts more nodes than SLURM_JOB_NODELIST has, "
                        "2"));
  CHECK_THAT(tasks_of("n[1-2]", "2(x18446744073709551617)"),
             StartsWith("SLURM_TASKS_PER_NODE:2: \"(x18446744073709551617)\" is no repetition"));
  CHECK_THAT(tasks_of("n[1-3]", "2"), Contains("it counts 1 nodes, SLURM_JOB_NODELIST has 3"));
  CHECK_THAT(tasks_of("n[1-3]", "2,,2"), StartsWith("SLURM_TASKS_PER_NODE:3: \"\" is no number"));
  CHECK_THAT(tasks_of("n1", "0"), Contains("is no number of tasks"));
  CHECK_THAT(tasks_of("n1", "2(y1)"), Contains("is no number of tasks"));
  CHECK_THAT(tasks_of("n1", "2(x1"), Contains("is no repetition"));
  CHECK_THAT(tasks_of("n1", "2(x0)"), Contains("is no repetition"));
  CHECK_THAT(tasks_of("n1", "99999999999"), Contains("is no number of tasks"));
}

TEST_CASE("allocation: a Slurm job is over if Slurm says so, not if it does not answer",
          "[allocation]") {
  CHECK(is_over({true, ""}));
  CHECK(is_over({false, "slurm_load_jobs error: Invalid job id specified"}));
  CHECK(is_over({true, "CANCELLED|2026-11-20T10:00:00|n[1-2]\nTIMEOUT|N/A|n3\n"}));
  CHECK_FALSE(is_over({true, "CANCELLED|N/A|\nRUNNING|2026-11-20T10:00:00|n[1-2]\n"}));
  CHECK_FALSE(is_over({true, "COMPLETING|2026-11-20T10:00:00|n1\n"}));
  CHECK_FALSE(is_over({false, "Unable to contact slurm controller (connect failure)"}));
  CHECK_FALSE(is_over({false, "squeue is not in PATH"}));
}

TEST_CASE("allocation: a Slurm job counts only while squeue says it runs on these nodes",
          "[allocation]") {
  const auto asked = [](Answer squeue) {
    return text_of(slurm_allocation(of(slurm("n[1-2]")), squeue));
  };
  CHECK(asked(running("n[1-2]")) == "Slurm job 41: n1 n2");
  CHECK(asked(running("n2,n1")) == "Slurm job 41: n1 n2");
  // An array lists its other jobs, too.
  CHECK(asked({true, "PENDING|N/A|\nRUNNING|N/A|n7\nRUNNING|N/A|n[1-2]\n"}) ==
        "Slurm job 41: n1 n2");
  CHECK_THAT(asked({true, ""}), Contains("a Slurm job that is not running any more: unset "
                                         "SLURM_JOB_ID in this shell, or --launcher local"));
  CHECK_THAT(
      asked({false, "slurm_load_jobs error: Invalid job id specified"}),
      Contains("does not say whether that job lives: slurm_load_jobs error: Invalid job id"));
  CHECK_THAT(asked({true, "COMPLETING|N/A|n[1-2]\n"}),
             StartsWith("Slurm job 41 is COMPLETING, not RUNNING: unset"));
  CHECK_THAT(asked(running("n[1-3]")), Contains("runs on n[1-3], and SLURM_JOB_NODELIST"));
  // A job of --no-kill outlives its node.
  CHECK_THAT(asked(running("n2")),
             Contains("has lost nodes: it runs on n2, and") &&
                 Contains("has more: export SLURM_JOB_NODELIST=n2; unset SLURM_TASKS_PER_NODE"));
  CHECK_THAT(asked(running("n[1-")), Contains("has other nodes"));
  CHECK_THAT(text_of(slurm_allocation(of({{"SLURM_JOB_ID", "41"}}), running("n1"))),
             Contains("SLURM_JOB_NODELIST is not set"));
  CHECK_THAT(text_of(slurm_allocation(of({{"SLURM_JOB_ID", "41"}, {"SLURM_HET_SIZE", "2"}}),
                                      running("n1"))),
             StartsWith("Slurm job 41 is heterogeneous, of 2 components"));
  CHECK_THAT(text_of(slurm_allocation(of({{"SLURM_JOB_ID", "4;1"}, {"SLURM_JOB_NODELIST", "n1"}}),
                                      running("n1"))),
             Contains("\"4;1\": a number was expected"));
}

TEST_CASE("allocation: SGE's hosts and slots are the first two columns of PE_HOSTFILE",
          "[allocation]") {
  CHECK(sge_of("n1 4 all.q@n1 UNDEFINED\nn2.example.com 2 all.q@n2 <NULL>\n") ==
        "SGE job 7: n1*4 n2.example.com*2");
  CHECK(sge_of("n1 4\r\n\n  n1\t1 other.q\n") == "SGE job 7: n1*5");
  CHECK_THAT(sge_of(""), Contains("/spool/7/pe names no host"));
  CHECK_THAT(sge_of("n1 4\nn2 UNDEFINED\n"),
             StartsWith("/spool/7/pe:2:4: \"UNDEFINED\" is no number of slots"));
  CHECK_THAT(sge_of("n1\n"), StartsWith("/spool/7/pe:1:3: \"\" is no number of slots"));
  CHECK_THAT(sge_of("n1 -4\n"), Contains("is no number of slots"));
  CHECK_THAT(sge_of("n[1-2] 4\n"), Contains("more than"));
  CHECK_THAT(sge_of(std::string("a\0b 1\n", 6)), StartsWith("/spool/7/pe:1:2: \"\\x00\""));
  CHECK_THAT(text_of(sge_allocation(of({{"PE_HOSTFILE", "/spool/7/pe"}}),
                                    {false, "No such file or directory"})),
             Contains("which cannot be read: No such file or directory; its SGE job is over"));
}

TEST_CASE("allocation: an SGE job that may start nothing on its other hosts is refused",
          "[allocation]") {
  const auto job = [](const char* hosts) {
    return *sge_allocation(of({{"PE_HOSTFILE", "f"}, {"JOB_ID", "7"}}), {true, hosts});
  };
  const auto environment = [](const std::string& slaves) {
    return Answer{true, "pe_name            loose\ncontrol_slaves     " + slaves +
                            "\njob_is_first_task  FALSE\n"};
  };
  const auto refused = check_sge_environment(job("n1 1\nn2 1\n"), "loose", environment("FALSE"));
  REQUIRE_FALSE(refused);
  CHECK_THAT(refused.error().message,
             StartsWith("SGE job 7: its parallel environment loose has control_slaves FALSE") &&
                 Contains("qconf -mp loose"));
  CHECK(check_sge_environment(job("n1 1\nn2 1\n"), "mpi", environment("TRUE")));
  CHECK(check_sge_environment(job("n1 2\n"), "loose", environment("FALSE")));
  CHECK(check_sge_environment(job("n1 1\nn2 1\n"), "loose", {false, "denied"}));
}

TEST_CASE("allocation: SGE's folder of a job is its script's, or the one above qrsh's",
          "[allocation]") {
  const auto folder = [](std::string job, std::string given) {
    return sge_job_folder(of({{"JOB_ID", job}, {"SGE_JOB_SPOOL_DIR", given}})).value_or("none");
  };
  CHECK(folder("41", "/var/spool/n1/active_jobs/41.1") == "/var/spool/n1/active_jobs/41.1");
  CHECK(folder("41", "/var/spool/n2/active_jobs/41.1/1.n2") == "/var/spool/n2/active_jobs/41.1");
  CHECK(folder("1", "/var/spool/n2/active_jobs/1.7/1.n2") == "/var/spool/n2/active_jobs/1.7");
  CHECK(folder("1", "/var/spool/n1/active_jobs/1.7") == "/var/spool/n1/active_jobs/1.7");
  CHECK(folder("41", "41.1") == "none");
  CHECK(folder("41", "/") == "/");
  CHECK(folder("", "/var/41.1") == "none");
  CHECK_FALSE(sge_job_folder(of({{"JOB_ID", "41"}})));
}

TEST_CASE("allocation: of two that live none is chosen", "[allocation]") {
  const Result<Allocation> slurm_job = slurm_allocation(of(slurm("n1")), running("n1"));
  const Result<Allocation> sge_job =
      sge_allocation(of({{"PE_HOSTFILE", "f"}, {"JOB_ID", "7"}}), {true, "n1 1\n"});
  const Result<Allocation> ended = slurm_allocation(of(slurm("n1")), {true, ""});
  const auto both = only_one({slurm_job, sge_job});
  REQUIRE_FALSE(both);
  CHECK(both.error().message ==
        "this is inside of Slurm job 41 and of SGE job 7: say with --launcher slurm, --launcher "
        "sge or --launcher local whose hosts are meant");
  REQUIRE(only_one({ended, sge_job}));
  CHECK(only_one({ended, sge_job}).value()->job == "7");
  CHECK_FALSE(only_one({ended}));
  REQUIRE(only_one({}));
  CHECK_FALSE(only_one({})->has_value());
}

TEST_CASE("allocation: one task of several is refused, and the first of them speaks",
          "[allocation]") {
  const auto step = [](Variables variables) {
    const auto found = larger_step(of(std::move(variables)));
    return !found ? "none" : found->is_speaker ? "speaks" : "silent";
  };
  CHECK(step({}) == std::string("none"));
  CHECK(step({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}}) == std::string("speaks"));
  CHECK(step({{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "4"}}) == std::string("silent"));
  CHECK(step({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}) == std::string("none"));
  // A batch script of a job of four tasks.
  CHECK(step({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}) == std::string("none"));
  CHECK(step({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}) ==
        std::string("silent"));
  CHECK(step({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}}) ==
        std::string("speaks"));
  CHECK(step({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}) == std::string("speaks"));
  CHECK(step({{"SLURM_PROCID", "x"}, {"SLURM_STEP_NUM_TASKS", "4"}}) == std::string("none"));
  CHECK_THAT(larger_step(of({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}}))->why,
             StartsWith("srun has started dtlaunch 4 times, and each would start the whole job: "
                        "start it once, without srun"));
}

TEST_CASE("allocation: scontrol's lines give each node's address and state", "[allocation]") {
  const auto nodes = parse_nodes(
      "NodeName=n1 Arch=x86_64 CoresPerSocket=1 NodeAddr=10.0.0.1 NodeHostName=n1 State=MIXED "
      "ThreadsPerCore=1 Partitions=p\n"
      "NodeName=n2 NodeAddr=n2-ib State=DOWN+DRAIN Partitions=p Reason=bad fan State=IDLE "
      "[root@x]\n"
      "nonsense\n");
  REQUIRE(nodes.size() == 2);
  CHECK(nodes[0].address == "10.0.0.1");
  CHECK(nodes[0].is_usable());
  CHECK(nodes[1].name == "n2");
  CHECK(nodes[1].address == "n2-ib");
  CHECK(nodes[1].state == "DOWN+DRAIN");
  CHECK(nodes[1].reason == "bad fan State=IDLE [root@x]");
  CHECK_FALSE(nodes[1].is_usable());
}
