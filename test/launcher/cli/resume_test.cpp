#include "launcher/cli/resume.h"

#include <catch2/catch.hpp>
#include <cstdlib>

namespace dt {
namespace {

io::JobSpec in_allocation(StarterKind kind, std::string job) {
  io::JobSpec spec;
  spec.allocation = AllocatedNodes{kind, std::move(job), {}};
  return spec;
}

VariableOf of(std::string name, std::string value) {
  return
      [=](const std::string& asked) { return asked == name ? std::optional(value) : std::nullopt; };
}

}  // namespace

TEST_CASE("resume: a scheduler that starts its job again has ended the run before", "[resume]") {
  const auto slurm = in_allocation(StarterKind::kSlurm, "7");
  const auto ended = [&](const io::JobSpec& past, const io::JobSpec& next, const char* count) {
    return launcher::was_ended_by_scheduler(past, next, of("SLURM_RESTART_COUNT", count));
  };
  CHECK(ended(slurm, slurm, "1"));
  CHECK_FALSE(ended(slurm, slurm, "0"));
  CHECK_FALSE(ended(slurm, slurm, ""));
  // Other jobs, and jobs of other machines, may live.
  CHECK_FALSE(ended(in_allocation(StarterKind::kSlurm, "6"), slurm, "1"));
  CHECK_FALSE(ended(io::JobSpec(), slurm, "1"));
  CHECK_FALSE(ended(slurm, io::JobSpec(), "1"));
  const auto sge = in_allocation(StarterKind::kSge, "7");
  CHECK_FALSE(ended(slurm, sge, "1"));
  CHECK(launcher::was_ended_by_scheduler(sge, sge, of("RESTARTED", "1")));
  CHECK_FALSE(launcher::was_ended_by_scheduler(sge, sge, of("RESTARTED", "0")));
}

TEST_CASE("spec: the host that this machine is", "[resume]") {
  io::JobSpec spec;
  spec.workers = {Host{"", "n1"}, Host{"", "n2"}};
  spec.servers = {Host{"", "n3.cluster"}};
  const auto here = [&](const char* name) {
    ::setenv("SLURMD_NODENAME", name, 1);
    const auto host = io::host_here(spec);
    ::unsetenv("SLURMD_NODENAME");
    return host ? host->name : "none";
  };
  CHECK(here("n2") == "n2");
  CHECK(here("n2.cluster") == "n2");
  CHECK(here("n3") == "n3.cluster");
  CHECK(here("n") == "none");
  CHECK(here("n4") == "none");
}

}  // namespace dt
