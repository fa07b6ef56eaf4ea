/// The machines of a job, built in Job's order, for tests that call one of them directly. Records
/// reach them as in Job; nothing else happens by itself.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/job/host_watch.h"
#include "core/job/newcomers.h"
#include "core/job/stragglers.h"
#include "core/job/views.h"
#include "test/support/catch.h"

namespace dt::test {

using namespace std::chrono_literals;

inline const Host kHostA{"", "a", 0};
inline const Host kHostB{"", "b", 0};
inline const Host kHostC{"", "c", 0};

inline JobOptions job_on(std::vector<Host> workers, std::vector<Host> servers = {}) {
  JobOptions options;
  options.workers = std::move(workers);
  options.servers = std::move(servers);
  return options;
}

struct Machines {
  explicit Machines(JobOptions options = job_on({kHostA, kHostB}))
      : job(std::move(options), [this](const Record& r) {
          std::visit(
              [this](const auto& one) {
                apply_to(one, job, hosts, checkpoints, servers, views, stragglers, workers,
                         lost_time);
              },
              r);
        }) {
    at(0s);
    job.record(JobBegan{job.options.workers, job.options.servers});
  }
  /// A step begins, with no effects.
  void at(Duration then) { job.begin({Time{} + then, then.count(), Time{} + then}); }
  /// The step's effects of one type so far; the others are dropped.
  template <typename E>
  std::vector<E> took() {
    std::vector<E> out;
    for (Effect& effect : job.take())
      if (E* one = std::get_if<E>(&effect)) out.push_back(std::move(*one));
    return out;
  }
  /// The names of the step's notes for people so far; other effects are dropped.
  std::vector<std::string> noted() {
    std::vector<std::string> out;
    for (const Note& note : took<Note>())
      if (note.kind != Note::Kind::kMeasure) out.push_back(note.what);
    return out;
  }
  /// The job's exit code; -1: it goes on.
  int code() const { return job.ending ? job.ending->exit_code : -1; }

  void attach(const Host& host) {
    hosts.reach(host);
    hosts.attached({host, "boot", 1, {}});
  }
  void listen() {
    for (const auto& [id, s] : servers.all())
      static_cast<void>(servers.listening({id, {"10.0.0.1", 7000, "", ""}}));
  }
  void ack() {
    for (const auto& [id, s] : servers.all()) servers.acked({id, {job.boundary.generation()}});
  }
  bool arrive(std::uint32_t id, std::uint32_t epoch, bool join = false) {
    return workers.arrived({WorkerId(id), {Epoch(epoch), join, servers.since()}});
  }
  /// Its process is started, and it has joined.
  void join(std::uint32_t id, std::uint32_t epoch = 0) {
    workers.advance(WorkerId(id), WorkerEvent::kHostChosen);
    workers.advance(WorkerId(id), WorkerEvent::kStartSent);
    CHECK_FALSE(arrive(id, epoch, true));
  }
  /// All base workers and servers run on attached hosts, and epoch 0 has begun.
  Machines& run() {
    for (const Host& host : job.options.workers) attach(host);
    for (const Host& host : servers.hosts()) {
      attach(host);
      servers.attached(host, {});
    }
    listen();
    for (const WorkerId id : job.boundary.members()) join(id.value);
    views.cross_boundary();
    ack();
    views.release();
    return *this;
  }
  /// A pass over all hosts, in which this step alone decides.
  void decide(void (Newcomers::*step)()) {
    for (const Host& host : {kHostA, kHostB, kHostC}) job.agenda.add(host);
    job.agenda.begin_pass(job.now());
    (newcomers.*step)();
    job.agenda.end_pass();
  }
  ProcessEnded worker_ends(std::uint32_t id, ExitStatus status = {0, 9}) const {
    return {{Role::kWorker, id}, status, ""};
  }
  ProcessEnded server_ends(std::uint32_t id, ExitStatus status = {0, 9}) const {
    return {{Role::kServer, id}, status, ""};
  }
  WorkerState state(std::uint32_t id) const { return workers.find(WorkerId(id))->state; }

  JobContext job;
  LostTime lost_time{job};
  HostTable hosts{job};
  Checkpoints checkpoints{job};
  ServerGroup servers{job, hosts, checkpoints, lost_time};
  Workers workers{job, hosts, servers, lost_time};
  HostWatch host_watch{job, hosts, servers, workers};
  Newcomers newcomers{job, hosts, servers, workers};
  Stragglers stragglers{job, hosts, servers, workers, lost_time};
  Views views{job, hosts, servers, workers, lost_time};
};

}  // namespace dt::test
