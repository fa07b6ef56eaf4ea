#include "core/job/notices.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/lookup.h"
#include "core/protocol/exit_code.h"

namespace dt {
namespace {

/// Repetitions of one notice differ by the time that they take on their way.
constexpr Duration kSame = std::chrono::seconds(1);
/// A host's agent says its notice again when it is attached.
constexpr Duration kSourceSpeaks = std::chrono::seconds(3);
/// The last boundary in time saves a checkpoint, and so do those before it that would be the last
/// if epochs took that many times as long.
constexpr int kSlowdown = 2;

std::string in_text(Duration left) { return fmt::format("in {}", duration_text(seconds(left))); }

}  // namespace

// ---------------------------------------------------------------- events

void Notices::given(const NoticeGiven& e) {
  if (e.host && !objection(*e.host).empty()) return;
  // Without a deadline it is the workers that are to leave, and the machine stays.
  const bool is_masters = e.host && e.host == job_.options.master && e.left;
  const std::optional<Host> host = is_masters ? std::nullopt : e.host;
  const Duration in_time = std::max(Duration{}, e.left.value_or(Duration{}));
  const NoticeTaken r{
      host, e.left ? job_.wall_ns() + in_time.count() : kNoDeadline,
      host == e.host ? e.why : fmt::format("{}, on the master's host {}", e.why, *e.host),
      in_time.count()};
  const Time deadline = job_.deadline_of(r);
  const Notice* known = find(host);
  // Its source knows better than the estimate, either way.
  const bool corrects = known && known->is_estimated && e.is_repeated && known->why == r.why &&
                        deadline - kSame > known->deadline;
  if (known && deadline >= known->deadline - kSame && !corrects) return;
  const auto cancelled = cancelled_.find(host);
  if (e.is_repeated && cancelled != cancelled_.end() && deadline >= cancelled->second - kSame)
    return;
  job_.record(r);
  const std::string who = host ? to_string(*host) : "every host of the job";
  const auto in = left(*find(host));
  const std::string when = in ? fmt::format("goes away {}", in_text(*in)) : "is to leave";
  job_.note(Note::kInfo, "host_leaves",
            fmt::format("{} {} ({}): {}", who, when, r.why, host ? outlook(*host) : outlook()),
            host);
}

void Notices::cancelled(const NoticeCancelled& e) {
  if (!cancel_objection(e.host).empty()) return;
  const std::optional<Host> host = find(e.host) ? e.host : std::nullopt;
  job_.record(NoticeOver{host, true});
  job_.note(Note::kInfo, "leave_cancelled",
            fmt::format("{} after all", host ? fmt::format("{} stays", *host)
                                             : std::string("the job's hosts stay")),
            host);
}

void Notices::progress(const FromWorker<Progress>& e) {
  if (job_.boundary.epoch() == e.message.epoch && job_.boundary.contributes(e.worker))
    clock_.at_step(e.message.step, job_.now());
}

// ---------------------------------------------------------------- decisions

void Notices::decide() {
  if (job_.ending) return;
  if (of_hosts_.empty() && !of_all_) return checkpoints_.want(false);
  end_past();
  end_if_due();
  if (job_.ending) return;
  stop_due();
  checkpoints_.want(wants_checkpoint());
}

void Notices::end_past() {
  std::vector<Host> past;
  for (const auto& [host, notice] : of_hosts_)
    if (!servers_.serves(host) && !workers_.membership().anyone_runs_on(host)) past.push_back(host);
  for (const Host& host : past) {
    const std::string why = of_hosts_.at(host).why;
    job_.record(NoticeOver{host, false});
    job_.note(Note::kInfo, "host_left",
              fmt::format("no worker is left on {} ({}): its places stay empty until dtctl add "
                          "names it",
                          host, why),
              host);
  }
}

void Notices::stop_due() {
  if (job_.group_stops) return;  // all have got TERM
  for (const auto& [host, notice] : of_hosts_) {
    if (until_stop(notice) > Duration{} || ends_with_job(notice)) continue;
    for (const WorkerId id : workers_.membership().workers_on(host)) {
      const Worker& w = *workers_.find(id);
      const bool runs = w.state == WorkerState::kMember || w.state == WorkerState::kLeaving;
      const bool starts_in_group = job_.restarts_group() && w.state == WorkerState::kStarting;
      if (!(runs || starts_in_group) || workers_.is_sent_away(id)) continue;
      job_.note(Note::kInfo, "worker_sent_away",
                fmt::format("worker {} on {} gets TERM: its host goes away {} ({})", id, host,
                            in_text(left(notice).value_or(Duration{})), notice.why),
                host, id);
      workers_.send_away(id, grace(notice));
    }
  }
}

void Notices::end_if_due() {
  if (job_.ending) return;
  if (job_.initial() && !job_.restarts_group()) {
    // Without an epoch there is no boundary to leave at, and a death ends the job.
    for (const auto& [host, notice] : of_hosts_) {
      const bool is_needed = workers_.membership().base_count(host) > 0 || servers_.serves(host);
      if (is_needed && until_stop(notice) <= Duration{})
        return end_job(notice, fmt::format("{} goes away {}", host,
                                           job_.opened ? "before the first epoch"
                                                       : "and no worker has opened a kvstore, so "
                                                         "that none can leave"));
    }
  }
  const Notice* notice = of_job();
  if (!notice) return;
  const auto newest = checkpoints_.newest();
  const bool is_last =
      notice->is_saved && newest && !checkpoints_.saving() && !comes_in_time(*notice);
  if (until_stop(*notice) > Duration{} && (!is_last || job_.finishing())) return;
  end_job(
      *notice,
      newest ? fmt::format("every host goes away, and the checkpoint of epoch {} is there", *newest)
             : "every host goes away, and there is no checkpoint");
}

void Notices::end_job(const Notice& notice, const std::string& what) {
  job_.end(kExitHostsGone, fmt::format("{} ({}): start the job again", what, notice.why),
           grace(notice));
}

bool Notices::wants_checkpoint() const {
  if (const Notice* notice = of_job()) {
    if (!notice->is_saved) return true;
    return !clock_.last() ||
           !comes_in_time(*notice, kSlowdown * *clock_.last() + checkpoints_.took());
  }
  return std::ranges::any_of(of_hosts_, [this](const auto& one) {
    return !one.second.is_saved && servers_.serves(one.first);
  });
}

// ---------------------------------------------------------------- records

void Notices::apply(const NoticeTaken& r) {
  Notice notice;
  notice.deadline = job_.deadline_of(r);
  notice.why = r.why;
  if (const Notice* known = find(r.host); known && known->is_estimated && known->why == r.why) {
    notice.saving = known->saving;
    notice.is_saved = known->is_saved;
  }
  if (r.host)
    of_hosts_[*r.host] = std::move(notice);
  else
    of_all_ = std::move(notice);
  set_leaving();
}

void Notices::set_leaving() {
  for (const auto& [host, notice] : of_hosts_)
    workers_.set_leaving(host, !ends_with_job(notice) || have_all_left(host));
}

bool Notices::have_all_left(const Host& host) const {
  return std::ranges::all_of(workers_.membership().workers_on(host), [this](WorkerId id) {
    const WorkerState state = workers_.find(id)->state;
    return state == WorkerState::kLeaving || state == WorkerState::kGone;
  });
}

void Notices::apply(const NoticeOver& r) {
  const Notice* known = find(r.host);
  if (!known) return;
  const Notice notice = *known;
  if (r.is_cancelled) cancelled_[r.host] = notice.deadline;
  if (!r.host) {
    of_all_.reset();
    return set_leaving();
  }
  of_hosts_.erase(*r.host);
  if (r.is_cancelled) return workers_.set_leaving(*r.host, false);
  workers_.departed(*r.host);
  hosts_.member_left(*r.host, fmt::format("it went away: {}", notice.why));
}

void Notices::apply(const Committed& r) {
  if (!r.boundary) return;
  clock_.epoch_begins(job_.now());
  if (!r.saves) return;
  each([&r](Notice& notice) {
    if (!notice.saving) notice.saving = r.epoch;
  });
}

void Notices::apply(const CheckpointTaken& r) {
  each([&r](Notice& notice) {
    notice.is_saved = notice.is_saved || (notice.saving && r.epoch >= *notice.saving);
  });
}

void Notices::apply(const RolledBack&) {
  clock_.forget_begin();
  each([](Notice& notice) {
    if (!notice.is_saved) notice.saving.reset();
  });
}

// ---------------------------------------------------------------- questions

const Notices::Notice* Notices::find(const std::optional<Host>& host) const {
  if (!host) return of_all_ ? &*of_all_ : nullptr;
  return find_in(of_hosts_, *host);
}

std::optional<Duration> Notices::left(const Notice& notice) const {
  if (notice.deadline == Time::max()) return std::nullopt;
  return std::max(Duration{}, notice.deadline - job_.steady());
}

Duration Notices::until_stop(const Notice& notice) const {
  const auto until_deadline = left(notice);
  if (!until_deadline) return Duration::max();
  const Duration until = *until_deadline - job_.options.notice_margin;
  const bool may_be_corrected = notice.is_estimated && job_.steady() - began_at_ < kSourceSpeaks;
  return may_be_corrected ? std::max(until, Duration(1)) : until;
}

bool Notices::comes_in_time(const Notice& notice, Duration later) const {
  const auto next = clock_.left(job_.now());
  return next && *next + later < until_stop(notice);
}

Duration Notices::grace(const Notice& notice) const {
  const Duration grace = job_.options.stop_grace;
  const Duration until_deadline = left(notice).value_or(grace);
  return until_deadline > Duration{} ? std::min(grace, until_deadline) : grace;
}

bool Notices::ends_with_job(const Notice& notice) const {
  return of_all_ && notice.deadline >= of_all_->deadline - kSame;
}

const Notices::Notice* Notices::of_job() const {
  const Notice* out = of_all_ ? &*of_all_ : nullptr;
  if (!workers_.membership().nobody_stays()) return out;
  const Notice* last = nullptr;
  for (const auto& [host, notice] : of_hosts_)
    if (!last || notice.deadline > last->deadline) last = &notice;
  if (!last || last->deadline == Time::max()) return out;
  return out && out->deadline <= last->deadline ? out : last;
}

std::string Notices::objection(const Host& host) const {
  const Membership& membership = workers_.membership();
  if (membership.wanted(host) > 0 || membership.anyone_runs_on(host) || servers_.serves(host) ||
      find(host))
    return "";
  return fmt::format("{} has no worker and no server of this job", host);
}

std::string Notices::cancel_objection(const std::optional<Host>& given) const {
  const bool is_masters = given && given == job_.options.master && !find(given);
  const std::optional<Host> host = is_masters ? std::nullopt : given;
  const Notice* notice = find(host);
  if (!notice && is_masters) return fmt::format("{} is not leaving", *given);
  if (!notice) return host ? fmt::format("{} is not leaving", *host) : "no notice of all hosts";
  const bool stops = until_stop(*notice) <= Duration{};
  if (stops && (!host || workers_.membership().anyone_runs_on(*host)))
    return fmt::format("it is too late: workers{} are being stopped",
                       host ? fmt::format(" on {}", *host) : "");
  return "";
}

std::string Notices::outlook(const Host& host) const {
  const Notice* notice = find(host);
  if (!notice) return "";
  std::string out;
  const Membership& membership = workers_.membership();
  if (const std::size_t present = membership.present(host); present > 0)
    out = workers_outlook(*notice, present);
  else if (membership.anyone_runs_on(host))
    out = "what runs there is leaving";
  if (!servers_.serves(host)) return out;
  return out + (out.empty() ? "" : "; ") + servers_outlook(host, *notice);
}

std::string Notices::workers_outlook(const Notice& notice, std::size_t count) const {
  const Duration stop = until_stop(notice);
  const std::string who = count == 1 ? "its worker" : fmt::format("its {} workers", count);
  if (stop <= Duration{}) return who + " will have ended soon: TERM has been sent";
  if (ends_with_job(notice)) return who + " will go on until the job ends";
  const bool ever = stop != Duration::max();
  if (workers_.membership().nobody_stays())
    return fmt::format("no other host has a worker: {} will go on until another has{}", who,
                       ever ? fmt::format(", or be stopped {}", in_text(stop)) : "");
  if (job_.restarts_group()) return "the group restarts without it";
  const auto next = clock_.left(job_.now());
  if (!next || !ever)
    return fmt::format("{} will leave at the next epoch{}", who,
                       ever ? fmt::format(", or be stopped {}", in_text(stop)) : "");
  if (*next < stop)
    return fmt::format("{} will leave at the next epoch, in about {}", who,
                       duration_text(seconds(*next)));
  return fmt::format("the next epoch is too far away (about {}): {} will be stopped {}",
                     duration_text(seconds(*next)), who, in_text(stop));
}

std::string Notices::servers_outlook(const Host& host, const Notice& notice) const {
  if (notice.is_saved)
    return fmt::format("the loss of its server takes the job back to epoch {}",
                       checkpoints_.newest().value_or(Epoch(0)));
  const std::string none = checkpoints_.no_checkpoints({host});
  if (!none.empty()) return none;
  if (!checkpoints_.can_save()) return "its server's values are lost with it: no checkpoints";
  return "the next epoch's begin saves what its server has";
}

std::string Notices::outlook() const {
  const Notice* notice = of_job();
  if (!notice) return "";
  const std::string end =
      left(*notice)
          ? fmt::format("the job ends {}", in_text(std::max(Duration{}, until_stop(*notice))))
          : std::string("the job goes on");
  if (job_.restarts_group() || !checkpoints_.can_save() || servers_.all().empty())
    return fmt::format("{}, with exit code {}", end, static_cast<int>(kExitHostsGone));
  return fmt::format("{}, or with the checkpoint of the last epoch in time, with exit code {}", end,
                     static_cast<int>(kExitHostsGone));
}

}  // namespace dt
