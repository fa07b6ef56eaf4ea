#include "core/job/server_group.h"

#include "test/core/job/machines.h"

using namespace dt;
using namespace dt::test;

namespace {

JobOptions rolls_back() {
  JobOptions options = job_on({kHostA, kHostB}, {kHostA, kHostB});
  options.rolls_back = true;
  return options;
}

/// Two servers, epoch 0, and its checkpoint.
struct Saved0 : Machines {
  explicit Saved0(const JobOptions& options = rolls_back()) : Machines(options) {
    run();
    job.record(CheckpointTaken{Epoch(0), job.boundary.generation()});
    at(1s);
  }
};

}  // namespace

TEST_CASE("servers: all are replaced by new ones that begin with the checkpoint",
          "[server_group]") {
  Saved0 m;
  m.servers.ended(m.server_ends(1));
  const auto effects = m.job.take();
  std::vector<std::uint32_t> stopped;
  std::vector<std::uint32_t> started;
  for (const Effect& effect : effects) {
    if (const auto* stop = std::get_if<Stop>(&effect)) stopped.push_back(stop->process.id);
    if (const auto* start = std::get_if<StartServer>(&effect)) {
      started.push_back(start->server.value);
      CHECK(start->checkpoint == Epoch(0));
    }
  }
  CHECK(stopped == std::vector<std::uint32_t>{0, 1});
  CHECK(started == std::vector<std::uint32_t>{2, 3});
  CHECK_FALSE(m.servers.has(ServerId(0)));
  CHECK_FALSE(m.servers.all_listen());
  CHECK(m.job.boundary.returns_to() == Epoch(0));
  CHECK(m.servers.since() == m.job.boundary.generation());
}

TEST_CASE("servers: without a checkpoint a loss ends the job", "[server_group]") {
  Machines m(rolls_back());
  m.run();
  m.servers.ended(m.server_ends(0));
  CHECK(m.code() == 67);
}

TEST_CASE("servers: a device that is missing ends the job, whatever checkpoint there is",
          "[server_group]") {
  Saved0 m;
  m.servers.ended(m.server_ends(0, {72, 0}));
  CHECK(m.code() == 72);
}

TEST_CASE("servers: retired ones are stopped where they show up, until their end",
          "[server_group]") {
  Saved0 m;
  m.servers.ended(m.server_ends(1));
  const auto stops_on_a = [&m] {
    m.at(2s);
    m.servers.attached(kHostA, {{{Role::kServer, 0}, 7, {}, {}}});
    return m.took<Stop>().size();
  };
  CHECK(stops_on_a() == 1);
  CHECK(stops_on_a() == 1);
  m.servers.ended(m.server_ends(0));
  CHECK(m.took<Acknowledge>().size() == 1);
  CHECK(m.servers.has(ServerId(2)));  // its end is no loss
  CHECK(stops_on_a() == 0);
}

TEST_CASE("servers: those of a lost host move to another base host, if one is heard",
          "[server_group]") {
  Saved0 m;
  m.hosts.lost(kHostB);
  m.servers.host_lost(kHostB, "no sign of life", {kHostB});
  CHECK(m.servers.hosts() == std::set<Host>{kHostA});
  m.job.record(CheckpointTaken{Epoch(0), m.job.boundary.generation()});
  m.hosts.lost(kHostA);
  m.servers.host_lost(kHostA, "no sign of life", {kHostA});
  CHECK(m.code() == 67);
}

TEST_CASE("servers: those of hosts lost at once move once, and to none of these hosts",
          "[server_group]") {
  JobOptions options = job_on({kHostA, kHostB, kHostC}, {kHostB, kHostC});
  options.rolls_back = true;
  Saved0 m(options);
  const std::set<Host> gone{kHostB, kHostC};
  for (const Host& host : gone) m.hosts.lost(host);
  for (const Host& host : gone) m.servers.host_lost(host, "no sign of life", gone);
  CHECK(m.servers.hosts() == std::set<Host>{kHostA});
  CHECK(m.job.futile.rollbacks() == 1);
}

TEST_CASE("servers: a commit is known when each of them has acknowledged it", "[server_group]") {
  Machines m(rolls_back());
  m.run();
  m.servers.acked({ServerId(0), {Generation(1)}});
  CHECK(m.servers.all_acked());
  m.job.boundary.commit({Generation(2), false, Epoch(0), {}, {WorkerId(0)}, {}, {}});
  m.servers.acked({ServerId(0), {Generation(2)}});
  m.servers.acked({ServerId(9), {Generation(2)}});
  CHECK_FALSE(m.servers.all_acked());
  m.servers.acked({ServerId(1), {Generation(2)}});
  CHECK(m.servers.all_acked());
}
