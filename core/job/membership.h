/// The wanted workers, the present ones, and the next change of the view. Pure; core/job/views.h
/// commits what plan() returns.
///
/// Rules:
///  1. Wanted workers of a host = its slots in the last accepted file, never less than its base
///     workers. Their sum is bounded by the limit: base workers count first, then hosts in the
///     order in which the file first names them.
///  2. A host with too many loses newcomers first (those furthest from ready), then the member with
///     the highest rank.
///  3. Members change at boundaries only; an unwanted newcomer is stopped at once. An edit that
///  both adds and removes commits as one: it is
///     held until each of its newcomers is ready or has failed once, at most kSwapWait.
///     No other change waits for it.
///  4. A member stays if the view would fall below its least number of members.
///  5. A host that goes away wants no workers, base workers included, and no swap holds that back.
///     When no other host wants any, its members stay until it is gone.
///  6. Where another host is to have the base workers of a host, these stay, and those of the other
///     do not join, until as many of the other are ready: then all change at one boundary. A host
///     that has no member holds nobody back.
///
/// A row per host counts its workers wherever one changes its state, so that no question about a
/// host walks over the workers of others. Each change of a row adds its host to the agenda.
#pragma once

#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/base/id.h"
#include "core/base/lookup.h"
#include "core/base/time.h"
#include "core/files/hosts.h"
#include "core/job/agenda.h"
#include "core/job/worker_life.h"

namespace dt {

/// How long an edit that swaps hosts may hold its removals back for its additions.
inline constexpr Duration kSwapWait = std::chrono::seconds(60);

/// Limits on the number of members at a boundary; 0: none.
struct WorkerLimits {
  std::uint32_t least = 0;
  std::uint32_t most = 0;
};

struct Worker {
  WorkerId id;
  Host host;
  /// The lowest number that no other worker of the host had that was not gone. Its own for life: it
  /// follows from the journal's order.
  std::uint32_t slot = 0;
  bool base = false;        ///< Part of the initial launch.
  bool was_member = false;  ///< Its exit is a REMOVED line.
  Edit edit;                ///< The edit that asked for it; 0 for base workers and restarts.
  WorkerLife state;
  Time since{};         ///< When the state was entered.
  Time active{};        ///< When a server last saw it do something.
  bool opened = false;  ///< It opened a distributed kvstore.
  /// Known from the journal only: an earlier term may have started it.
  bool maybe_started = false;
  bool greeted = false;         ///< Released once as a member.
  bool has_failed = false;      ///< Its host could not be reached or prepared.
  bool left_with_host = false;  ///< It is gone, and that is no failure: its host goes away.
  std::string why;              ///< Its last failure or state, for status.
};

/// What a boundary would change.
struct Plan {
  std::vector<WorkerId> joins;   ///< In id order.
  std::vector<WorkerId> leaves;  ///< In rank order.
  std::string reason;            ///< Why changes are held back; for status.
};

class Membership {
 public:
  /// `agenda`: gets the host of every change; may be null.
  explicit Membership(WorkerLimits limits = {}, Agenda* agenda = nullptr)
      : limits_(limits), agenda_(agenda) {}

  /// Base workers get ids 0..n-1.
  void begin(const std::vector<Host>& base, Time now);
  /// The wanted list of an accepted file. Ids of edits rise.
  void take_file(Edit edit, const std::vector<HostSlots>& hosts, Time now);
  /// The base workers of `from` are to be those of `to`, which has none and is no other's heir:
  /// from the boundary on at which as many of its workers are members; `at_once`: from now on.
  /// Lines of `from` in the present file do not count then.
  void replace_base(const Host& from, const Host& to, bool at_once, Time now);
  /// Why `to` cannot have the base workers of `from`; empty: it can.
  [[nodiscard]] std::string replace_objection(const Host& from, const Host& to) const;
  /// Which host is to have a host's base workers.
  [[nodiscard]] const std::map<Host, Host>& heirs() const { return heirs_; }
  Worker& add_worker(WorkerId id, const Host& host, Edit edit, Time now);
  /// A member of this host has left by itself: its place stays empty until the host's lines in the
  /// file become more, or fill_places().
  void empty_place(const Host& host) { ++row(host).empty; }
  void fill_places(const Host& host, std::uint32_t count);
  [[nodiscard]] std::uint32_t empty_places(const Host& host) const { return at(host).empty; }
  /// The host goes away, or stays after all.
  void set_leaving(const Host& host, bool leaves) { row(host).leaves = leaves; }
  /// The host has gone away: its places stay empty.
  void departed(const Host& host);
  /// The host has gone away, and some of its places are still empty.
  [[nodiscard]] bool has_departed(const Host& host) const { return at(host).departed; }
  [[nodiscard]] bool has_anyone_departed() const { return has_anyone_departed_; }
  /// Hosts go away, and no other one wants a worker.
  [[nodiscard]] bool nobody_stays() const;
  /// Workers that are gone, and not in `view`, are not kept any longer, unless a swap waits for
  /// them; ids are never given again.
  void forget_gone(const std::vector<WorkerId>& view, Time now);
  /// A view began: edits whose changes it brought need not be held together any more, and heirs
  /// whose workers are in it have their base workers.
  void view_began(const std::vector<WorkerId>& members, const std::vector<WorkerId>& leavers,
                  Time now);

  /// Applies an event to a worker's life at `now`; false if it means nothing in its state.
  bool advance(WorkerId id, WorkerEvent event, Time now);

  /// The state changes by advance() alone.
  [[nodiscard]] Worker* find(WorkerId id) { return find_in(workers_, id); }
  [[nodiscard]] const Worker* find(WorkerId id) const { return find_in(workers_, id); }
  [[nodiscard]] const std::map<WorkerId, Worker>& workers() const { return workers_; }
  /// The host's workers, gone ones too.
  [[nodiscard]] const std::set<WorkerId>& workers_on(const Host& host) const {
    return at(host).workers;
  }
  /// How many workers are in this state.
  [[nodiscard]] std::size_t count(WorkerState state) const {
    return by_state_[static_cast<std::size_t>(state)];
  }
  /// Any worker is not gone.
  [[nodiscard]] bool anyone_runs() const { return workers_.size() > count(WorkerState::kGone); }
  /// A worker of this host is not gone.
  [[nodiscard]] bool anyone_runs_on(const Host& host) const { return !at(host).slots.empty(); }
  [[nodiscard]] WorkerId next_id() const { return next_id_; }
  [[nodiscard]] Edit last_edit() const { return last_edit_; }
  [[nodiscard]] const std::vector<HostSlots>& file() const { return file_; }

  /// Without its empty places.
  [[nodiscard]] std::uint32_t wanted(const Host& host) const { return at(host).wanted(); }
  /// Of all hosts.
  [[nodiscard]] std::uint32_t wanted() const;
  /// Workers that the file asks for beyond the limit, in the file's order.
  [[nodiscard]] const std::vector<HostSlots>& beyond_limit() const { return beyond_limit_; }
  [[nodiscard]] const WorkerLimits& limits() const { return limits_; }
  [[nodiscard]] std::uint32_t base_count(const Host& host) const { return at(host).base; }
  /// Those with base workers.
  [[nodiscard]] std::vector<Host> base_hosts() const;
  /// Workers of the host that are members or on the way.
  [[nodiscard]] std::uint32_t present(const Host& host) const { return at(host).present; }
  /// Every host that is wanted or has a worker that is not gone.
  [[nodiscard]] std::vector<Host> hosts() const;
  /// The edit that last raised the host's wanted count; 0 if only base workers are wanted.
  [[nodiscard]] Edit added_by(const Host& host) const { return at(host).added_by; }
  /// Base hosts that `hosts` gives fewer workers than they keep; not those that go or went away,
  /// or that are being replaced.
  [[nodiscard]] std::vector<Host> refused_removals(const std::vector<HostSlots>& hosts) const;

  /// Newcomers of a host that wants fewer workers: to be stopped now.
  [[nodiscard]] std::vector<WorkerId> unwanted_newcomers(const Host& host) const;
  /// For tests: the counts agree with the workers.
  [[nodiscard]] bool index_holds() const;
  /// What a boundary at `now` changes, given the live members in rank order. Newcomers on
  /// `unreachable` hosts count as not ready: their release could not be sent.
  [[nodiscard]] Plan plan(const std::vector<WorkerId>& members, Time now,
                          const std::set<Host>& unreachable = {}) const;

 private:
  /// What the file wants of a host, and who is there.
  struct Row {
    std::uint32_t base = 0;
    std::uint32_t asked = 0;  ///< By the file, within the limit; never less than `base`.
    std::uint32_t empty = 0;  ///< Places that stay empty.
    bool leaves = false;      ///< The host goes away.
    bool departed = false;    ///< It went away and left `empty` places.
    Edit added_by;            ///< 0: no edit has.
    Edit removed_by;          ///< The edit that last lowered the wanted count; 0: none.
    std::set<WorkerId> workers;
    std::uint32_t present = 0;      ///< Members and those on the way.
    std::set<std::uint32_t> slots;  ///< Workers that are not gone have them.

    [[nodiscard]] std::uint32_t wanted() const {
      return !leaves && asked > empty ? asked - empty : 0;
    }
  };

  /// The host's row, to be changed.
  Row& row(const Host& host);
  /// A default row for a host that is not known.
  [[nodiscard]] const Row& at(const Host& host) const { return value_in(rows_, host); }
  /// Adds the worker to the counts of its host and state, or takes it out.
  void count_in(const Worker& worker);
  void count_out(const Worker& worker);
  /// Workers beyond the wanted number of the host, the ones to go first in front.
  [[nodiscard]] std::vector<WorkerId> surplus(const Row& row,
                                              const std::vector<WorkerId>& members) const;
  /// Fewer lines take empty places away, more lines fill them.
  void adjust_empty_places(const std::map<Host, std::uint32_t>& slots,
                           const std::map<Host, std::uint32_t>& next);
  void take_over_base(std::map<Host, Host>::iterator heir);
  [[nodiscard]] bool held(Edit edit, Time now, const std::set<Host>& unreachable) const;

  /// What the file wants of each host, within the limit; sets beyond_limit_.
  [[nodiscard]] std::map<Host, std::uint32_t> within_limit(const std::vector<HostSlots>& hosts);
  /// Takes leaves back until enough stay.
  void keep_least(Plan& plan, std::size_t members, Time now) const;

  WorkerLimits limits_;
  Agenda* agenda_;
  std::map<WorkerId, Worker> workers_;
  std::map<Host, Row> rows_;
  std::array<std::size_t, kWorkerStates> by_state_{};
  std::vector<HostSlots> file_;
  std::vector<HostSlots> beyond_limit_;
  std::map<Host, Host> heirs_;
  std::map<Edit, Time> swaps_;  ///< Edits that both add and remove, and when they were taken.
  WorkerId next_id_;
  Edit last_edit_;
  bool has_anyone_departed_ = false;
};

}  // namespace dt
