/// Notices: a host goes away at a known time, or all of the job's hosts do. Its workers leave at
/// the next boundary if that comes in time; else they get TERM --notice-margin before the host is
/// gone. They count as left, not as failed. Pure.
///
///     stays --NoticeGiven--> leaving --workers and servers have gone--> left: places stay empty
///       ^---- cancelled -------'
///
/// A notice is kept by the steady clock: it counts while the job's clock stands, and no step of the
/// wall clock moves it. A later term estimates its deadline by the wall clock, until its source
/// says it again. A later deadline never takes the place of an earlier one otherwise. The file's
/// protection of base workers does not count here: it is against people, and a host that goes away
/// does not ask.
///
/// Values of a server are lost with its host: the next boundary saves a checkpoint. When all hosts
/// go away, the last boundary in time saves one, and the job ends with kExitHostsGone once that is
/// valid, or at its deadline.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "core/base/id.h"
#include "core/base/time.h"
#include "core/files/hosts.h"
#include "core/job/checkpoints.h"
#include "core/job/context.h"
#include "core/job/epoch_clock.h"
#include "core/job/host_table.h"
#include "core/job/server_group.h"
#include "core/job/workers.h"

namespace dt {

class Notices {
 public:
  struct Notice {
    Time deadline = Time::max();  ///< By the steady clock; max(): none.
    std::string why;
    bool is_estimated = false;    ///< From an earlier term: see JobContext::deadline_of().
    std::optional<Epoch> saving;  ///< The first checkpoint that was begun after the notice.
    bool is_saved = false;        ///< That one, or a later one, is valid.
  };

  Notices(JobContext& job, HostTable& hosts, const ServerGroup& servers, Checkpoints& checkpoints,
          Workers& workers)
      : job_(job), hosts_(hosts), servers_(servers), checkpoints_(checkpoints), workers_(workers) {}

  /// A term begins: the begin of the present epoch is not known.
  void begin() {
    clock_.forget_begin();
    began_at_ = job_.steady();
    each([](Notice& notice) { notice.is_estimated = true; });
  }

  // Events.
  void given(const NoticeGiven& e);
  void cancelled(const NoticeCancelled& e);
  void progress(const FromWorker<Progress>& e);
  void figures(const FromWorker<Figures>& e) { clock_.announced(e.message.steps_in_epoch); }

  /// Stops workers whose time is over, ends notices and, if it has to be, the job.
  void decide();
  /// Ends the job at its deadline, or before that with its last checkpoint. A boundary may have
  /// been crossed since decide().
  void end_if_due();

  void apply(const NoticeTaken& r);
  void apply(const NoticeOver& r);
  void apply(const Committed& r);
  void apply(const EpochBegan&) { clock_.epoch_begins(job_.now()); }
  void apply(const CheckpointTaken& r);
  void apply(const RolledBack& r);

  [[nodiscard]] const std::map<Host, Notice>& of_hosts() const { return of_hosts_; }
  /// The notice by which the job ends, since no host stays; null: it goes on.
  [[nodiscard]] const Notice* of_job() const;
  /// Until the deadline, zero once it is over; nothing: it has none.
  [[nodiscard]] std::optional<Duration> left(const Notice& notice) const;
  /// What becomes of the host's workers and servers, in words.
  [[nodiscard]] std::string outlook(const Host& host) const;
  /// What becomes of the job; empty: it goes on.
  [[nodiscard]] std::string outlook() const;
  /// Why no notice of this host can be taken, or cancelled; empty: it can.
  [[nodiscard]] std::string objection(const Host& host) const;
  [[nodiscard]] std::string cancel_objection(const std::optional<Host>& host) const;

 private:
  [[nodiscard]] const Notice* find(const std::optional<Host>& host) const;
  template <class F>
  void each(F f) {
    for (auto& [host, notice] : of_hosts_) f(notice);
    if (of_all_) f(*of_all_);
  }
  /// Until workers are stopped; not above zero: now.
  [[nodiscard]] Duration until_stop(const Notice& notice) const;
  /// The next boundary comes before workers are stopped, as far as that is known.
  [[nodiscard]] bool comes_in_time(const Notice& notice, Duration later = {}) const;
  /// From TERM to KILL.
  [[nodiscard]] Duration grace(const Notice& notice) const;
  /// The host stays as long as the job: nobody leaves it before.
  [[nodiscard]] bool ends_with_job(const Notice& notice) const;
  void set_leaving();
  /// None of the host's workers stays: its places are not filled again.
  [[nodiscard]] bool have_all_left(const Host& host) const;
  void end_past();
  void stop_due();
  void end_job(const Notice& notice, const std::string& what);
  [[nodiscard]] bool wants_checkpoint() const;
  [[nodiscard]] std::string workers_outlook(const Notice& notice, std::size_t count) const;
  [[nodiscard]] std::string servers_outlook(const Host& host, const Notice& notice) const;

  JobContext& job_;
  HostTable& hosts_;
  const ServerGroup& servers_;
  Checkpoints& checkpoints_;
  Workers& workers_;
  std::map<Host, Notice> of_hosts_;
  std::optional<Notice> of_all_;
  /// Deadlines of cancelled notices: their sources may repeat them.
  std::map<std::optional<Host>, Time> cancelled_;
  EpochClock clock_;
  Time began_at_{};  ///< The term, by the steady clock.
};

}  // namespace dt
