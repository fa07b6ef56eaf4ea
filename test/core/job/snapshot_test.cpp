#include "core/job/snapshot.h"

#include <algorithm>
#include <random>

#include "test/core/job/job_state.h"
#include "test/support/catch.h"

using namespace dt;

namespace {

/// Writes the journal of a job in which all kinds of things happen.
class JournalWriter {
 public:
  explicit JournalWriter(unsigned seed) : random_(seed) {
    std::vector<Host> base;
    for (int i = 0; i < 4; ++i) base.push_back(host(i));
    add(JobBegan{base, {host(0)}});
    add(TermBegan{Term(1)});
    for (std::uint32_t i = 0; i < 4; ++i) view_.push_back(WorkerId(i));
    live_ = view_;
    for (int i = 0; i < 4; ++i) add(AgentKnown{host(i), "boot", 7});
  }

  std::vector<Record> write(int boundaries) {
    for (int i = 0; i < boundaries; ++i) {
      between();
      boundary();
    }
    if (chance(20)) add(JobEnding{1, "over"});
    return records_;
  }

 private:
  static Host host(int i) { return {"", fmt::format("h{}", i), 0}; }
  Host any_host() { return host(static_cast<int>(draw(6))); }
  std::uint32_t draw(std::uint32_t below) { return static_cast<std::uint32_t>(random_()) % below; }
  bool chance(std::uint32_t percent) { return draw(100) < percent; }
  void add(Record record) { records_.push_back(std::move(record)); }
  LogLine line(bool added) { return {seq_++, added, any_host(), wall_ns_ += 1'000'000'000}; }

  void between() {
    if (chance(10)) add(TermBegan{Term(++term_)});
    if (chance(30)) add(TimeSpent{++spent_, {{"boundary", spent_ / 2}}});
    if (chance(10)) add(AgentKnown{any_host(), "boot", draw(3)});
    if (chance(10)) add(AgentPlaced{any_host(), {fmt::format("/run/{}", draw(9)), 1, 2}});
    if (chance(5)) add(HostPrepared{any_host()});
    if (epoch_ && chance(4)) edit();
    if (epoch_ && chance(4)) roll_back();
    if (epoch_ && chance(4) && live_.size() > 1) leave_alone();
    while (chance(25) && !live_.empty()) die();
    while (chance(30)) {
      newcomers_.push_back(next_);
      add(WorkerAllotted{next_, any_host(), chance(50) ? edit_ : Edit{}});
      next_ = next_.next();
    }
    if (chance(10) && !newcomers_.empty()) {
      add(WorkerGone{newcomers_.back(), {0, 9}, "ended before it joined", {}});
      newcomers_.pop_back();
    }
    if (chance(30) && !leavers_.empty()) {
      add(WorkerGone{leavers_.back(), {}, "", {line(false)}});
      leavers_.pop_back();
    }
  }

  void die() {
    const auto who =
        live_.begin() + static_cast<std::ptrdiff_t>(draw(static_cast<std::uint32_t>(live_.size())));
    std::vector<LogLine> log;
    if (epoch_) log.push_back(line(false));
    add(WorkerGone{*who, {1, 0}, "", log});
    live_.erase(who);
    if (epoch_ && chance(80)) shrink();
  }

  void shrink() {
    generation_ = generation_.next();
    add(Committed{generation_, false, *epoch_, view_, live_, {}, {}, false});
  }

  void edit() {
    edit_ = edit_.next();
    std::vector<HostSlots> hosts;
    for (int i = 0; i < 6; ++i)
      if (i < 4 || chance(50)) hosts.push_back({host(i), 1 + draw(3)});
    add(FileTaken{edit_, hosts});
  }

  void roll_back() {
    generation_ = generation_.next();
    const Epoch back(epoch_->value - std::min(epoch_->value, draw(3)));
    add(RolledBack{generation_, back, chance(50), servers_, {host(0)}, "lost", std::nullopt});
    servers_ = servers_.next();
    returns_to_ = back;
  }

  void leave_alone() {
    const WorkerId id = live_.back();
    live_.pop_back();
    add(WorkerGone{id, {}, "", {}});
    add(MemberLeft{id, any_host(), chance(50), {line(false)}});
    if (chance(30)) add(PlacesWanted{any_host(), 1});
    if (chance(20)) add(BaseReplaced{any_host(), any_host()});
    shrink();
  }

  void boundary() {
    const bool nobody = live_.empty() && epoch_ && !returns_to_;
    Committed c;
    c.boundary = true;
    c.epoch = returns_to_ ? *returns_to_ : !epoch_ ? Epoch(0) : nobody ? *epoch_ : epoch_->next();
    std::vector<WorkerId> stay = live_;
    if (epoch_ && chance(8) && stay.size() > 1) {
      c.leavers.push_back(stay.back());
      leavers_.push_back(stay.back());
      stay.pop_back();
    }
    c.members = stay;
    while (epoch_ && !newcomers_.empty() && (chance(60) || c.members.empty())) {
      c.members.push_back(newcomers_.back());
      newcomers_.pop_back();
      c.log.push_back(line(true));
    }
    if (c.members.empty()) return;
    c.contributors = c.members;
    c.saves = epoch_ && chance(15);
    returns_to_.reset();
    epoch_ = c.epoch;
    if (c.members == view_ && !c.saves) return add(EpochBegan{c.epoch});
    c.generation = generation_ = generation_.next();
    view_ = live_ = c.members;
    add(c);
    if (!c.saves || !chance(80)) return;
    add(CheckpointTaken{c.epoch, c.generation});
    if (chance(80)) add(CheckpointTimed{c.epoch, wall_ns_, draw(1000), draw(1000)});
  }

  std::mt19937 random_;
  std::vector<Record> records_;
  std::vector<WorkerId> view_;
  std::vector<WorkerId> live_;
  std::vector<WorkerId> newcomers_;
  std::vector<WorkerId> leavers_;
  WorkerId next_{4};
  Edit edit_;
  ServerId servers_{1};
  Generation generation_{1};
  std::optional<Epoch> epoch_;
  std::optional<Epoch> returns_to_;
  std::uint64_t term_ = 1;
  std::uint64_t spent_ = 0;
  std::uint64_t seq_ = 0;
  std::int64_t wall_ns_ = 1'700'000'000'000'000'000;
};

/// All that a job does and shows after its journal; without what is allowed to differ: the number
/// of records, and changes that were noted before.
std::string after(const std::vector<Record>& records, std::uint32_t limit) {
  JobOptions options;
  options.workers = {Host{"", "h0", 0}};
  options.max_restarts = 2;
  options.max_futile_restarts = limit;
  options.keep_checkpoints = 2;
  options.rolls_back = true;
  options.checkpoint_every = 3;
  std::string state = test::state_after(records, options);
  state.erase(0, state.find(' '));
  state.erase(state.find("line(s) of host_worker_log"));
  const Instant now{Time{} + std::chrono::hours(1), 1'800'000'000'000'000'000};
  dt::Job job(options, records, now);
  state += fmt::format("{} {}", job.log_lines(), job.phase());
  for (const Effect& effect : job.begin(Term(99), now)) {
    state += fmt::format("\n{}", effect.index());
    if (const auto* record = std::get_if<Append>(&effect))
      state += fmt::format(" {} {}", record->record.index(), to_frame(record->record).body);
    if (const auto* note = std::get_if<Note>(&effect)) state += " " + note->text;
    if (const auto* end = std::get_if<End>(&effect)) state += " " + end->message;
  }
  return state;
}

template <class R>
std::size_t count(const std::vector<Record>& records) {
  return static_cast<std::size_t>(std::ranges::count_if(
      records, [](const Record& record) { return std::holds_alternative<R>(record); }));
}

}  // namespace

TEST_CASE("snapshot: a cut journal gives the same job, and so it does with what follows",
          "[snapshot][property]") {
  std::size_t left_out = 0;
#ifdef DT_ALL_SEEDS
  constexpr unsigned kSeeds = 80;
#else
  constexpr unsigned kSeeds = 20;
#endif
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    CAPTURE(seed);
    const auto all = JournalWriter(seed).write(40);
    const auto job = after(all, 1 + seed % 5);
    const auto lines = log_lines(all);
    std::mt19937 random(seed);
    const auto part = [&](std::size_t from, std::size_t to) {
      return std::vector<Record>(all.begin() + static_cast<std::ptrdiff_t>(from),
                                 all.begin() + static_cast<std::ptrdiff_t>(to));
    };
    for (int n = 0; n < 5; ++n) {
      const std::size_t first = 1 + random() % all.size();
      const std::size_t second = first + random() % (all.size() - first + 1);
      auto cut = snapshot(part(0, first));
      REQUIRE(after(cut, 1 + seed % 5) == after(part(0, first), 1 + seed % 5));
      for (const Record& record : part(first, second)) cut.push_back(record);
      cut = snapshot(cut);
      for (const Record& record : part(second, all.size())) cut.push_back(record);
      REQUIRE(after(cut, 1 + seed % 5) == job);
      REQUIRE(log_lines(cut) == lines);
      left_out += all.size() - std::min(all.size(), cut.size());
    }
  }
  CHECK(left_out > kSeeds * 5 * 20);
}

TEST_CASE("snapshot: boundaries at which nothing changed leave two", "[snapshot]") {
  std::vector<Record> records{JobBegan{{Host{"", "a", 0}}, {}}};
  for (std::uint32_t epoch = 0; epoch < 100; ++epoch) {
    records.push_back(EpochBegan{Epoch(epoch)});
    records.push_back(TimeSpent{epoch, {}});
  }
  const auto cut = snapshot(records);
  CHECK(cut.size() == 5);
  CHECK(std::get<Snapshot>(cut.front()).records == records.size() - 4);
  CHECK(snapshot(cut).size() == 5);
  CHECK(std::get<Snapshot>(snapshot(cut).front()).records == records.size() - 4);
}

TEST_CASE("snapshot: deaths that were made good leave no commits of all members", "[snapshot]") {
  const Host host{"", "a", 0};
  std::vector<Record> records{JobBegan{{host, host, host}, {}}, EpochBegan{Epoch(0)}};
  std::uint64_t seq = 0;
  std::uint64_t generation = 1;
  std::vector<WorkerId> view{WorkerId(0), WorkerId(1), WorkerId(2)};
  for (std::uint32_t i = 0; i < 50; ++i) {
    const std::vector<WorkerId> live(view.begin() + 1, view.end());
    const WorkerId next(3 + i);
    records.push_back(WorkerGone{view.front(), {1, 0}, "", {{seq++, false, host, 1}}});
    records.push_back(Committed{Generation(++generation), false, Epoch(i), view, live, {}, {}});
    records.push_back(WorkerAllotted{next, host, {}});
    view = live;
    view.push_back(next);
    records.push_back(Committed{
        Generation(++generation), true, Epoch(i + 1), view, view, {}, {{seq++, true, host, 1}}});
  }
  const auto cut = snapshot(records);
  CHECK(count<Committed>(records) == 100);
  // One stays for each time that a worker which came meanwhile is gone: here every third.
  CHECK(count<Committed>(cut) <= 18);
  CHECK(log_lines(cut) == log_lines(records));
  CHECK(after(cut, 9) == after(records, 9));
}
