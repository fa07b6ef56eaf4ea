/// fleet_sim: runs a fleet's plan through seeded faults. See README.md.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <iterator>
#include <memory>
#include <random>
#include <set>
#include <string_view>
#include <vector>

#include "core/fleet/fleet_memory.h"
#include "core/fleet/look_pace.h"
#include "core/launch/holders.h"
#include "test/sim/fleet/cloud.h"
#include "test/sim/fleet/job_model.h"

namespace dt::sim {
namespace {

constexpr ProviderKind kKinds[] = {
    {.name = "slurm", .rules = kHolderRules, .replaces_kept = true, .reuses_hosts = true},
    {.name = "cloud", .holds_back = true},
    {.name = "group", .rules = {.returns_at_end = true}, .holds_back = true},
    {.name = "pods", .reuses_hosts = true},
    {.name = "script", .may_let_go = false, .reuses_hosts = true},
};

/// A wrong plan, each of which some seeds must find.
enum class Planted { kNone, kRunning, kAsked, kBase, kLink, kMarks, kConfirm, kAdd, kDrop, kPace };
constexpr std::pair<const char*, Planted> kPlanted[] = {
    {"running", Planted::kRunning},  // workers are not looked for before a machine is let go
    {"asked", Planted::kAsked},      // a machine is let go though nobody asked for it
    {"base", Planted::kBase},        // hosts of the launch are as any others
    {"link", Planted::kLink},        // two lists without a machine are believed
    {"marks", Planted::kMarks},      // marks are not read
    {"confirm", Planted::kConfirm},  // what leaves is confirmed before it has left
    {"add", Planted::kAdd},          // no machine joins
    {"drop", Planted::kDrop},        // lines of machines that are gone stay
    {"pace", Planted::kPace},        // each look finds news
};

// A tick is a second.
constexpr int kFaults = 150;  ///< Ticks with faults; afterwards everything must come right.
constexpr int kQuiet = 160;
constexpr int kEpoch = 5;
constexpr Duration kLongestPause = std::chrono::seconds(12);
constexpr std::size_t kMostLists = 30;  ///< Of a minute without news.

class Run {
 public:
  Run(std::uint64_t seed, Planted planted, bool is_traced)
      : random_(seed_of(seed)),
        planted_(planted),
        is_traced_(is_traced),
        kind_(kKinds[random_.between(0, std::size(kKinds) - 1)]),
        cloud_(kind_, random_),
        job_(random_.chance(0.4) ? static_cast<std::uint32_t>(random_.between(2, 6)) : 0),
        memory_(std::make_unique<FleetMemory>()),
        pace_(seed) {}

  /// What is wrong; empty: nothing.
  std::string run() {
    for (int i = 0; i < 2; ++i) {
      const std::string host = fmt::format("base{}", i);
      cloud_.begin(host, true, 0);
      job_.add(host, 1, 0, true);
    }
    for (now_ = 0; now_ < kFaults + kQuiet && wrong_.empty(); ++now_) {
      is_faulty_ = now_ < kFaults;
      if (!is_faulty_) cut_.clear();
      cloud_.pass(now_);
      job_.pass(now_, now_ % kEpoch == 0, [this](const auto& host) { return cloud_.on(host); });
      if (is_faulty_) happen();
      const bool is_due = is_news_of_job() || now_ >= next_look_;
      if (is_due && (!is_faulty_ || random_.chance(0.9))) look_at_pace();
      script_forgets();
    }
    if (wrong_.empty()) check_end();
    return wrong_.empty() ? wrong_ : fmt::format("{} (tick {}): {}", kind_.name, now_, wrong_);
  }

 private:
  // What people, the provider and bad luck do.
  void happen() {
    if (random_.chance(0.08)) grow();
    if (random_.chance(0.04)) edit_out();
    if (random_.chance(0.02)) edit_in();
    if (random_.chance(0.04)) ask_for_one();
    if (random_.chance(0.04)) take_one();
    if (random_.chance(0.05)) cut_[any_host()] = now_ + static_cast<int>(random_.between(1, 15));
    if (random_.chance(0.05)) job_.crash(any_host());
    if (random_.chance(0.03)) restart("between two looks");
    if (random_.chance(0.002)) job_.end();
    std::erase_if(cut_, [this](const auto& cut) { return cut.second <= now_; });
  }

  void grow() {
    std::string host = fmt::format("h{}", cloud_.all().size());
    if (kind_.reuses_hosts && random_.chance(0.5)) {
      host = any_host();
      for (const CloudMachine& machine : cloud_.all())
        if (!machine.is_gone && machine.is.host == host) return;
    }
    CloudMachine& machine = cloud_.begin(host, host.starts_with("base"), now_ + 1);
    if (kind_.replaces_kept && random_.chance(0.5))
      machine.is.kept = std::vector<std::string>{"-p"};
    tell("{} is asked for, on {}", machine.is.id, host);
  }

  void edit_out() {
    const std::string host = any_host();
    if (job_.at(host).slots == 0 || !job_.remove(host)) return;
    tell("a person removes {}", host);
    if (CloudMachine* machine = cloud_.on(host)) machine->has_lost_line = true;
  }

  void edit_in() {
    const std::string host = any_host();
    CloudMachine* machine = cloud_.on(host);
    if (!machine || machine->is_base || machine->is.state != MachineState::kReady) return;
    if (job_.at(host).slots > 0) return;
    tell("a person adds {}", host);
    machine->has_lost_line = false;
    job_.add(host, 1);
    if (machine->is.mark != Mark::kNone) known_.insert(host);
  }

  void ask_for_one() {
    CloudMachine& machine = cloud_.all()[random_.between(0, cloud_.all().size() - 1)];
    if (machine.is_gone || kind_.rules.returns_idle) return;
    if (machine.is_base || machine.is.state == MachineState::kEnding) return;
    if (kind_.holds_back && machine.is.state == MachineState::kReady && random_.chance(0.5)) {
      machine.is.state = MachineState::kEnding;
      machine.is.is_held_back = true;
      machine.gone_at = now_ + 30;
      machine.is.deadline = *machine.gone_at;
    }
    machine.is.is_asked = true;
    tell("the end of {} is asked for", machine.is.id);
  }

  void take_one() {
    CloudMachine& machine = cloud_.all()[random_.between(0, cloud_.all().size() - 1)];
    if (machine.is_gone || machine.is.state != MachineState::kReady) return;
    if (machine.is_base && kind_.name != std::string_view("pods")) return;
    tell("{} ({}) is taken", machine.is.id, machine.is.host);
    if (random_.chance(0.3)) {
      machine.is_gone = true;
      return;
    }
    machine.is.state = MachineState::kEnding;
    machine.gone_at = now_ + static_cast<int>(random_.between(3, 25));
    if (kind_.rules.returns_idle)
      job_.leave(machine.is.host, *machine.gone_at);  // as the holder's agent says it
    else
      machine.is.deadline = *machine.gone_at;
  }

  /// A script names a host no more once its workers have left.
  void script_forgets() {
    if (kind_.may_let_go) return;
    for (CloudMachine& machine : cloud_.all())
      if (machine.is.is_asked && job_.at(machine.is.host).running() == 0) machine.is_gone = true;
  }

  void restart(const char* when) {
    tell("dtfleet is killed {}", when);
    memory_ = std::make_unique<FleetMemory>();
    confirmed_.clear();
    replaced_.clear();
    cloud_.forget_past();
  }

  // What dtfleet does.
  bool is_news_of_job() {
    const auto is_same =
        job_.lines() == seen_ && job_.has_ended() == seen_end_ && cut_ == seen_cut_;
    seen_ = job_.lines();
    seen_end_ = job_.has_ended();
    seen_cut_ = cut_;
    if (!is_same) found_ = Look::kNews;
    return !is_same;
  }

  void look_at_pace() {
    look();
    if (planted_ == Planted::kPace) found_ = Look::kNews;
    next_look_ = now_ + static_cast<int>(std::ceil(seconds(pace_.after(found_, kLongestPause))));
    if (found_ == Look::kNews && planted_ != Planted::kPace) last_news_ = now_;
    found_ = Look::kQuiet;
    lists_.push_back(now_);
    std::erase_if(lists_, [this](int at) { return at <= now_ - 60; });
    if (now_ - last_news_ >= 60 && lists_.size() > kMostLists)
      fail_with("8: {} lists in a minute without news", lists_.size());
  }

  void look() {
    auto listed = cloud_.list(is_faulty_);
    if (!listed) {
      found_ = Look::kTrouble;
      return;
    }
    JobWish wish = job_.wish(
        [this](const auto& host) { return kind_.rules.returns_idle || known_.contains(host); },
        [this](const auto& host) { return is_linked(host); });
    spoil(*listed, wish);
    auto actions = memory_->look(std::move(*listed), wish, kind_.rules);
    if (memory_->is_changed()) found_ = Look::kNews;
    for (std::size_t i = 0; i < actions.size(); ++i) {
      const FleetAction action = actions[i];
      if (planted_ == Planted::kDrop && std::holds_alternative<DropHost>(action)) continue;
      if (is_faulty_ && random_.chance(0.02)) return restart("before an action");
      if (is_faulty_ && random_.chance(0.05)) continue;
      std::visit([this](const auto& what) { act(what); }, action);
      if (!wrong_.empty()) return;
      if (is_faulty_ && random_.chance(0.02)) return restart("after an action");
      if (!memory_->is_repeated(action)) found_ = Look::kNews;
      memory_->note_done(action);
      const auto* add = std::get_if<AddHost>(&action);
      if (add && job_.at(add->host).slots > 0)
        actions.emplace_back(SetMark{add->id, Mark::kAddQueued});
    }
  }

  void spoil(std::vector<Machine>& listed, JobWish& wish) {
    for (Machine& machine : listed) {
      if (planted_ == Planted::kAsked) machine.is_asked = true;
      if (planted_ == Planted::kMarks) machine.mark = Mark::kNone;
      if (planted_ == Planted::kAdd && machine.slots == 1) machine.state = MachineState::kPending;
    }
    for (auto& [name, host] : wish.hosts) {
      if (planted_ == Planted::kRunning) host.is_running = false;
      if (planted_ == Planted::kBase) host.is_own = false;
      if (planted_ == Planted::kLink) host.is_linked = false;
      if (planted_ == Planted::kConfirm && host.is_leaving) {
        host.is_running = false;
        host.empty = host.in_file;
      }
    }
  }

  void act(const AddHost& add) {
    tell("add {}", add.host);
    CloudMachine* machine = cloud_.on(add.host);
    if (machine && machine->has_lost_line && machine->is.mark >= Mark::kAddQueued)
      return fail_with("7: {} is put back, which a person took out", add.host);
    // Without its mark nobody can know that it was there.
    if (machine) machine->has_lost_line = false;
    const int late =
        is_faulty_ && random_.chance(0.2) ? static_cast<int>(random_.between(1, 4)) : 0;
    if (!job_.has_ended()) job_.add(add.host, add.slots, late);
    known_.insert(add.host);
  }

  void act(const DropHost& drop) {
    tell("drop {}", drop.host);
    const JobModel::Line line = job_.at(drop.host);
    if (line.is_base) return fail_with("2: {} of the launch is dropped", drop.host);
    if (line.running() > 0 && is_linked(drop.host))
      return fail_with("3: {} is dropped, whose agent answers", drop.host);
    job_.remove(drop.host);
    if (CloudMachine* machine = cloud_.on(drop.host)) machine->has_lost_line = true;
  }

  void act(const Leave& leave) {
    tell("leave {}", leave.host);
    const CloudMachine* machine = cloud_.on(leave.host);
    if (machine && machine->is_base && machine->is.state != MachineState::kEnding)
      return fail_with("2: {} of the launch is to leave", leave.host);
    if (machine && machine->is.state != MachineState::kEnding && !machine->is.is_asked)
      return fail_with("1: {} is to leave, for which nobody asked", leave.host);
    job_.leave(leave.host, leave.deadline);
  }

  void act(const SetMark& set) {
    CloudMachine* machine = cloud_.find(set.id);
    tell("mark {} {}", set.id, static_cast<int>(set.mark));
    if (!machine || machine->is_gone) return;
    if (!kind_.rules.keeps_marks) {
      if (machine->is.state != MachineState::kEnding) machine->is.mark = Mark::kAdded;
      return;
    }
    if (set.mark < machine->is.mark) return fail_with("4: the mark of {} goes back", set.id);
    const JobModel::Line line = job_.at(machine->is.host);
    const bool may_go = machine->is.is_asked || machine->has_lost_line || line.is_leaving ||
                        line.is_given_up || line.is_base || line.empty > 0 ||
                        machine->is.state != MachineState::kReady || job_.has_ended();
    if (set.mark >= Mark::kRemovalQueued && !may_go)
      return fail_with("5: {} is used no more, and nobody wanted that", set.id);
    machine->is.mark = set.mark;
  }

  void act(const LetGo& go) {
    tell("let go {}: {}", go.id, go.why);
    CloudMachine* machine = cloud_.find(go.id);
    if (!machine || machine->is_gone || !kind_.may_let_go) return;
    if (machine->is_base) return fail_with("2: {} of the launch is let go", go.id);
    const bool has_host = cloud_.on(machine->is.host) == machine;
    const JobModel::Line line = job_.at(machine->is.host);
    const bool is_end = kind_.rules.returns_at_end && job_.has_ended();
    if (has_host && line.running() > 0 && !is_end)
      return fail_with("1: {} is let go, and a worker runs there", go.id);
    const bool is_full =
        job_.max_workers() > 0 && job_.wanted() + machine->is.slots > job_.max_workers();
    const bool is_idle = !has_host || machine->has_lost_line || line.is_base || line.is_given_up ||
                         line.empty == line.slots || is_full;
    if (!is_end && !machine->is.is_asked && !(kind_.rules.returns_idle && is_idle))
      return fail_with("1: {} is let go, for which nobody asked", go.id);
    if (machine->is.state == MachineState::kPending) machine->is_gone = true;
    machine->is.state = MachineState::kEnding;
    machine->gone_at = now_ + static_cast<int>(random_.between(0, 3));
  }

  void act(const Confirm& confirm) {
    tell("confirm {}", confirm.id);
    CloudMachine* machine = cloud_.find(confirm.id);
    if (!confirmed_.insert(confirm.id).second)
      return fail_with("6: {} is confirmed twice", confirm.id);
    if (!machine || machine->is_gone) return;
    if (job_.at(machine->is.host).running() > 0)
      return fail_with("6: {} is confirmed before its workers have left", confirm.id);
    machine->is.is_held_back = false;
    machine->gone_at = now_ + 1;
  }

  void act(const Replace& replace) {
    CloudMachine* machine = cloud_.find(replace.id);
    if (!machine || replace.is_asked_for) return;
    tell("replace {}", replace.id);
    if (!replaced_.insert(replace.id).second) return fail_with("{} is replaced twice", replace.id);
    CloudMachine& other = cloud_.begin(fmt::format("h{}", cloud_.all().size()), false, now_ + 1);
    other.is.kept = std::vector<std::string>{"-p"};
    other.is.replaces = replace.id;
  }

  /// I5: once faults have stopped, members are those that are wanted.
  void check_end() {
    for (const CloudMachine& machine : cloud_.all()) {
      if (machine.is_gone || machine.is_base) continue;
      const JobModel::Line line = job_.at(machine.is.host);
      const auto& id = machine.is.id;
      if (job_.has_ended()) {
        if (kind_.rules.returns_at_end) fail_with("5: {} is there after the job's end", id);
      } else if (machine.is.is_asked && kind_.may_let_go) {
        fail_with("5: {} was asked for, and is there", id);
      } else if (machine.has_lost_line) {
        if (kind_.rules.returns_idle) fail_with("5: {} has no line, and is there", id);
      } else if (machine.is.mark < Mark::kRemovalQueued && line.members == 0 && !line.is_given_up &&
                 !machine.is.is_asked && job_.has_room(machine.is.slots)) {
        fail_with("5: {} is ready, and no worker is there", id);
      }
    }
    for (const auto& [host, line] : job_.lines())
      if (line.slots > 0 && !line.is_base && known_.contains(host) && !cloud_.on(host) &&
          !job_.has_ended())
        fail_with("5: {} has no machine, and is in the file", host);
  }

  [[nodiscard]] bool is_linked(const std::string& host) {
    return cloud_.on(host) && !cut_.contains(host);
  }
  [[nodiscard]] std::string any_host() {
    return cloud_.all()[random_.between(0, cloud_.all().size() - 1)].is.host;
  }
  template <class... Args>
  void tell(fmt::format_string<Args...> text, Args&&... args) {
    if (is_traced_) fmt::print("{:4} {}\n", now_, fmt::format(text, std::forward<Args>(args)...));
  }
  template <class... Args>
  void fail_with(fmt::format_string<Args...> text, Args&&... args) {
    if (wrong_.empty()) wrong_ = fmt::format(text, std::forward<Args>(args)...);
  }

  Random random_;
  Planted planted_;
  bool is_traced_;
  const ProviderKind& kind_;
  Cloud cloud_;
  JobModel job_;
  std::unique_ptr<FleetMemory> memory_;
  using Look = LookPace::Look;
  LookPace pace_;
  Look found_ = Look::kNews;  ///< By the look, or before it.
  int next_look_ = 0;
  int last_news_ = 0;
  std::deque<int> lists_;  ///< When, within the last minute.
  std::map<std::string, JobModel::Line> seen_;
  bool seen_end_ = false;
  std::map<std::string, int> seen_cut_;
  std::set<std::string> known_;      ///< Hosts that were the fleet's, as its file has them.
  std::set<std::string> confirmed_;  ///< In this life of dtfleet.
  std::set<std::string> replaced_;   ///< In this life of dtfleet.
  std::map<std::string, int> cut_;   ///< Hosts whose agent is not heard, until when.
  int now_ = 0;
  bool is_faulty_ = true;
  std::string wrong_;
};

[[noreturn]] void usage() {
  fmt::print(
      stderr,
      "usage: fleet_sim --seed N [--trace]  one run; --trace prints each event\n"
      "       fleet_sim --seeds COUNT [--from N | --fresh]\n"
      "       ... --planted NAME | --all-planted   a wrong plan, which must be found\n       ");
  for (const auto& [name, planted] : kPlanted) fmt::print(stderr, " {}", name);
  fmt::print(stderr, "\n");
  std::exit(2);
}

struct Range {
  std::uint64_t from = 1;
  std::uint64_t seeds = 1000;
  bool is_traced = false;
};

/// The number of seeds that fail; prints the first of them.
std::uint64_t failures(const Range& range, Planted planted, std::uint64_t most_told) {
  std::uint64_t failed = 0;
  for (std::uint64_t seed = range.from; seed < range.from + range.seeds; ++seed) {
    const std::string wrong = Run(seed, planted, range.is_traced).run();
    if (wrong.empty()) continue;
    if (++failed <= most_told) fmt::print("seed {}: {}\n", seed, wrong);
  }
  return failed;
}

int main_of(const std::vector<std::string_view>& words) {
  Range range;
  Planted planted = Planted::kNone;
  bool is_all = false;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto next = [&]() -> std::string {
      if (++i >= words.size()) usage();
      return std::string(words[i]);
    };
    if (words[i] == "--seed") {
      range.from = std::strtoull(next().c_str(), nullptr, 10);
      range.seeds = 1;
    } else if (words[i] == "--seeds") {
      range.seeds = std::strtoull(next().c_str(), nullptr, 10);
    } else if (words[i] == "--from") {
      range.from = std::strtoull(next().c_str(), nullptr, 10);
    } else if (words[i] == "--fresh") {
      range.from = std::random_device{}();
    } else if (words[i] == "--trace") {
      range.is_traced = true;
    } else if (words[i] == "--all-planted") {
      is_all = true;
    } else if (words[i] == "--planted") {
      const std::string name = next();
      for (const auto& [of, which] : kPlanted)
        if (name == of) planted = which;
      if (planted == Planted::kNone) usage();
    } else {
      usage();
    }
  }
  if (is_all) {
    int missed = 0;
    for (const auto& [name, which] : kPlanted) {
      const std::uint64_t failed = failures(range, which, 1);
      fmt::print("{}: {} of {} seeds fail\n", name, failed, range.seeds);
      missed += failed == 0;
    }
    return missed == 0 ? 0 : 1;
  }
  const std::uint64_t failed = failures(range, planted, 10);
  fmt::print("{} seeds from {}: {} failed\n", range.seeds, range.from, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace dt::sim

int main(int argc, char** argv) { return dt::sim::main_of({argv + 1, argv + argc}); }
