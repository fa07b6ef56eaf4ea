#include "launcher/last_job.h"

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

TEST_CASE("resume: hosts that replaced others of the launch have their places, also the next time",
          "[resume]") {
  const Host a{"", "a", 0}, b{"", "b", 0}, c{"", "c", 0};
  launcher::LastJob last;
  last.spec.workers = {a, b, b};
  last.spec.servers = {a, b};
  last.spec.added = {c, c, c};
  last.spec.replaced = {b, c};
  io::JobSpec next = last.spec;
  launcher::take_hosts(last, next);
  CHECK(next.workers == std::vector<Host>{a, c, c});
  CHECK(next.servers == std::vector<Host>{a, c});
  CHECK(next.added == std::vector<Host>{c});
  CHECK(next.known_hosts == std::vector<Host>{c});
  // The hosts file still has the one that was replaced.
  io::JobSpec third = last.spec;
  last.spec = next;
  launcher::take_hosts(last, third);
  CHECK(third.workers == next.workers);
  // It was replaced in its turn, by the first one.
  last.spec.replaced.insert(last.spec.replaced.end(), {c, b});
  launcher::take_hosts(last, third);
  CHECK(third.workers == std::vector<Host>{a, b, b});
}

TEST_CASE("resume: --auto-resume compares the specs and names what changed", "[resume]") {
  launcher::LastJob last;
  last.spec.job = "j1";
  last.spec.command = {"python3", "train.py"};
  last.spec.cwd = "/work";
  last.spec.env = {{"LR", "0.1"}, {"OLD", "1"}};
  last.spec.env_worker = {{"SEED", "1"}};
  io::JobSpec next = last.spec;
  const auto decide = [&] { return launcher::auto_resume(last, next); };
  CHECK(decide().goes_on);
  CHECK(decide().why == "the last job here, j1, did not come to its end");
  next.env = {{"LR", "0.2"}, {"NEW", "1"}};
  next.env_worker.clear();
  next.cwd = "/v2";
  CHECK(decide().goes_on);
  CHECK(decide().why ==
        "the last job here, j1, did not come to its end, changed since: --env LR, --env NEW, --env "
        "OLD, --env-worker SEED, the working directory");
  // Its values are on the former master: nothing is known of them.
  next = last.spec;
  last.spec.is_env_elsewhere = true;
  last.spec.env[0].second.clear();
  CHECK(decide().why == "the last job here, j1, did not come to its end");
  last.pointer.ended = io::JobPointer::Ended{.exit_code = 75, .message = "its hosts go away"};
  CHECK(decide().why == "the last job here, j1, ended with exit code 75 (its hosts go away)");
  last.pointer.ended->exit_code = 0;
  CHECK_FALSE(decide().goes_on);
  last.pointer.ended->exit_code = 75;
  next.command.emplace_back("--epochs=9");
  CHECK_FALSE(decide().goes_on);
  CHECK_FALSE(launcher::auto_resume(fail(ErrorKind::kInvalid, "no job"), next).goes_on);
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
