#include "core/launch/starter.h"

#include "test/support/catch.h"

namespace dt {
namespace {

Starter of(StarterKind kind) {
  Starter starter;
  starter.kind = kind;
  return starter;
}

std::string words(const Starter& starter) {
  const auto command = starter_command(starter, "h1");
  return command ? fmt::format("{}", fmt::join(command->argv, " ")) : command.error().message;
}

Starter rsh(std::string text) {
  Starter starter = of(StarterKind::kCommand);
  starter.rsh = std::move(text);
  return starter;
}

TEST_CASE("starter: every kind has a name, and a name one kind", "[starter]") {
  for (const StarterKind kind : kStarterKinds) CHECK(starter_kind(to_text(kind)) == kind);
  CHECK_FALSE(starter_kind("srun"));
}

TEST_CASE("starter: the words of each row", "[starter]") {
  Starter slurm = of(StarterKind::kSlurm);
  CHECK(words(slurm) ==
        "srun --overlap --nodes=1 --ntasks=1 --nodelist=h1 --cpu-bind=none --mem=0 --mpi=none "
        "--kill-on-bad-exit=0 --export=ALL -- /bin/sh");
  slurm.job = "41";
  CHECK(words(slurm).starts_with("srun --jobid=41 --overlap "));
  Starter sge = of(StarterKind::kSge);
  CHECK(words(sge) == "qrsh -inherit -noshell -V h1 /bin/sh");
  sge.here = "h2";
  CHECK(words(sge) == "qrsh -inherit -noshell -V h1 /bin/sh");
  sge.here = "h1";
  CHECK(words(sge) == "/bin/sh");
  CHECK(words(of(StarterKind::kMpi)) == "mpirun -np 1 --host h1 --bind-to none /bin/sh");
  CHECK(starter_command(of(StarterKind::kMpi), "h1")->with ==
        std::vector<std::string>{"SLURM_OVERLAP=1"});
  Starter pods = of(StarterKind::kKubernetes);
  CHECK(words(pods) == "kubectl exec -i h1 -- /bin/sh");
  pods.pod_namespace = "train";
  pods.container = "main";
  CHECK(words(pods) == "kubectl exec -i -n train h1 -c main -- /bin/sh");
}

TEST_CASE("starter: srun's options for the user's own steps do not reach ours", "[starter]") {
  const auto command = starter_command(of(StarterKind::kSlurm), "h1");
  REQUIRE(command);
  for (const char* name : {"SLURM_NTASKS_PER_NODE", "SLURM_CPUS_PER_TASK", "SLURM_MEM_PER_CPU",
                           "SLURM_CPU_BIND", "SLURM_CPU_BIND_TYPE", "SLURM_EXACT", "SLURM_LABELIO",
                           "SLURM_STDOUTMODE", "SSH_CONNECTION"})
    CHECK(is_without(*command, name));
  for (const char* name : {"SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_CONF", "PATH", ""})
    CHECK_FALSE(is_without(*command, name));
}

TEST_CASE("starter: a template's words", "[starter]") {
  CHECK(words(rsh("docker exec -i {host} {command}")) == "docker exec -i h1 /bin/sh");
  CHECK(words(rsh("  ssh\t-o 'User x' u@{host} \"exec {command}\" a\\ b '' ")) ==
        "ssh -o User x u@h1 exec /bin/sh a b ");
  const auto split = rsh_words("a 'b c'\\'\"d \\\" e\" {host}{command}");
  REQUIRE(split);
  CHECK(*split == std::vector<std::string>{"a", "b c'd \" e", "{host}{command}"});
}

TEST_CASE("starter: a template that cannot be used says what is missing", "[starter]") {
  CHECK_THAT(words(rsh("docker exec -i {command}")),
             Catch::Matchers::Contains("{host} is missing"));
  CHECK_THAT(words(rsh("docker exec -i {host} sh")),
             Catch::Matchers::Contains("{command} is missing"));
  CHECK_THAT(words(rsh("")), Catch::Matchers::Contains("{host} is missing"));
  CHECK_THAT(words(rsh("a '{host} {command}")), Catch::Matchers::Contains("a ' has no end"));
}

TEST_CASE("starter: mpirun is Open MPI's or is refused", "[starter]") {
  CHECK(check_mpirun("mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/\n"));
  CHECK(check_mpirun("mpirun.real (OpenRTE) 5.0.2\n"));
  const auto refused = [](const char* text) { return check_mpirun(text).error().message; };
  CHECK_THAT(refused("HYDRA build details:\n    Version:  4.0.2\n"),
             Catch::Matchers::Contains("MPICH's") && Catch::Matchers::Contains("stdin"));
  CHECK_THAT(refused("Intel(R) MPI Library for Linux* OS, Version 2021.6 Build 20220227\n"),
             Catch::Matchers::Contains("Intel MPI's"));
  CHECK_THAT(refused("prun 3\nx"), Catch::Matchers::Contains("\"prun 3\""));
}

TEST_CASE("starter: what srun waits for is known, and what to do about it", "[starter]") {
  constexpr const char* kBusy =
      "srun: Job 1 step creation temporarily disabled, retrying (Requested nodes are busy)";
  CHECK(waits_for_host(StarterKind::kSlurm, kBusy));
  CHECK_FALSE(waits_for_host(StarterKind::kMpi, kBusy));
  CHECK_THAT(remedy(StarterKind::kSlurm, kBusy), Catch::Matchers::Contains("--overlap"));
  CHECK_FALSE(
      remedy(StarterKind::kSlurm,
             "srun: error: Unable to confirm allocation for job 7: Invalid job id specified")
          .empty());
  CHECK(remedy(StarterKind::kSlurm, "Killed").empty());
  constexpr const char* kRefused =
      "error: executing task of job 1 failed: execution daemon on host \"g1\" didn't accept task";
  CHECK_THAT(remedy(StarterKind::kSge, kRefused), Catch::Matchers::Contains("control_slaves"));
  CHECK(remedy(StarterKind::kMpi, kRefused).empty());
}

}  // namespace
}  // namespace dt
