#include <algorithm>
#include <iterator>
#include <random>
#include <set>

#include "core/files/journal.h"
#include "core/protocol/exit_code.h"
#include "io/clock.h"
#include "io/job/checkpoint_manifest.h"
#include "io/job/control_protocol.h"
#include "supervisor/supervisor.h"
#include "supervisor/volume/checkpoint_folder.h"

namespace dt::supervisor {

// ---------------------------------------------------------------- the machine

Instant Supervisor::now() const {
  return {journal_room_.job_time(io::steady_now()), io::wall_now()};
}

void Supervisor::post(JobEvent event) {
  if (journal_room_.is_out() && !JournalRoom::matters(event)) return;
  events_.push_back(std::move(event));
  if (!pumping_ && job_) pump();
}

void Supervisor::pump() {
  pumping_ = true;
  while (!events_.empty() && !journal_room_.is_out()) {
    const JobEvent event = std::move(events_.front());
    events_.pop_front();
    const Instant then = now();
    const std::vector<Effect> effects = job_->step(event, then);
    carry_out(effects);
    pulse_.look(*job_, io::steady_now());
    // A tick without an effect changes nothing that anybody can wait for.
    if (!effects.empty() || !std::holds_alternative<Tick>(event)) changes_.note();
    if (journal_failed_) events_.clear();
  }
  pumping_ = false;
}

void Supervisor::carry_out(std::vector<Effect> effects) {
  for (auto e = effects.begin(); e != effects.end(); ++e) {
    if (journal_failed_) return;
    const auto* record = std::get_if<Append>(&*e);
    if (!record) {
      const auto carry = [this]<class E>(const E& one) {
        if constexpr (!std::is_same_v<E, Append>) act(one);
      };
      std::visit(carry, *e);
      continue;
    }
    const auto appended = append(*record);
    // An end needs no room: who takes the job up again finds nothing alive.
    if (appended || journal_failed_ || std::holds_alternative<JobEnding>(record->record)) continue;
    if (stopped_why_) return end_unwritten(kExitInterrupted, *stopped_why_);
    std::vector<Effect> rest(std::make_move_iterator(e), std::make_move_iterator(effects.end()));
    journal_room_.hold(std::move(rest), appended.error().message, io::steady_now());
    act(Note{Note::Kind::kFailure, "journal_full",
             fmt::format("{}: nothing is decided until it can be written; training goes on to the "
                         "next boundary and waits there",
                         appended.error().message)});
    return;
  }
}

Result<void> Supervisor::append(const Append& e) {
  const wire::Frame frame = to_frame(e.record);
  auto appended = store_->append(frame.type, frame.body);
  if (!appended && store_->is_full()) return appended;
  if (!appended) {
    console_->error("{}: the journal cannot be written, the job stops", appended.error().message);
    end_unwritten(kExitFailure, appended.error().message);
    return appended;
  }
  journal_copy_->add(journal::append_bytes(frame.type, frame.body));
  if (spec_.elastic) change_log_->add(log_lines({e.record}));
  return {};
}

void Supervisor::look_at_journal_room() {
  const Time at = io::steady_now();
  if (const std::string little = journal_room_.news(store_->shortage()); !little.empty())
    act(Note{Note::Kind::kFailure, "journal_room_low",
             fmt::format("{}: when that is used up, the job waits at its next boundary", little)});
  if (!journal_room_.is_due(at)) return;
  const auto appended = append(journal_room_.first());
  if (journal_failed_) return;
  if (!appended) return journal_room_.put_off(appended.error().message, at);
  act(Note{Note::Kind::kInfo, "journal_written",
           fmt::format("the journal can be written again, after {:.0f} s: the job goes on",
                       seconds(journal_room_.waited(at)))});
  pumping_ = true;
  carry_out(journal_room_.let_go(at));
  pump();
}

void Supervisor::end_unwritten(int exit_code, std::string why) {
  // Nothing may happen that is not journalled: this supervisor carries nothing out any more.
  journal_failed_ = true;
  journal_room_.drop();
  events_.clear();
  if (end_) return;
  Note ended{Note::Kind::kMeasure, "job_ended", why};
  ended.numbers.emplace_back("code", exit_code);
  act(ended);
  act(End{exit_code, std::move(why), spec_.rules.stop_grace});
}

void Supervisor::act(const Attach& e) {
  if (e.start) return group_.spawn(reach(e.host));
  // Counted at once: an end that is carried out next has to know of it.
  ++reattaching_;
  group_.spawn(reattach(e.host));
}

void Supervisor::act(const ReleaseHost& e) {
  HostShell& h = shell(e.host);
  if (h.link) h.link->shut_down(milliseconds(spec_.rules.stop_grace));
  h.leaving = true;
  forget_prepares(e.host);
}

void Supervisor::act(const Prepare& e) { group_.spawn(prepare(e.host)); }

void Supervisor::act(const StartWorker& e) {
  const ProcessId process{Role::kWorker, e.worker.value};
  launcher::ProcessFacts facts = facts_for(process, e.host);
  facts.rank = e.rank;
  facts.num_workers = e.world_size;
  facts.epoch = e.epoch;
  facts.newcomer = e.newcomer;
  StartProcess start;
  start.process = process;
  start.argv = spec_.command;
  if (e.rank == Rank(0)) start.ports = spec_.dmlc_roles ? Port::kMaster : Port::kBoth;
  start.env = launcher::environment(spec_, facts);
  start.cwd = spec_.sync_dst_dir.empty() ? spec_.cwd : spec_.sync_dst_dir;
  output_->open(process, e.host);
  send(e.host, start);
}

void Supervisor::act(const StartServer& e) {
  const ProcessId process{Role::kServer, e.server.value};
  StartProcess start;
  start.process = process;
  start.argv = {"dtserver"};
  launcher::ProcessFacts facts = facts_for(process, e.host);
  facts.index = e.index;
  if (spec_.dmlc_roles) {
    facts.is_scheduler = e.index == spec_.servers.size();
    start.argv = spec_.command;
    if (facts.is_scheduler) start.ports = Port::kRoot;
  }
  facts.checkpoint = e.checkpoint;
  start.env = launcher::environment(spec_, facts);
  start.cwd = spec_.dmlc_roles && !spec_.sync_dst_dir.empty() ? spec_.sync_dst_dir : spec_.cwd;
  output_->open(process, e.host);
  send(e.host, start);
}

void Supervisor::act(const Stop& e) {
  const auto grace = std::chrono::duration_cast<std::chrono::milliseconds>(e.grace).count();
  send(e.host, StopProcess{e.process, static_cast<std::uint32_t>(grace)});
}

void Supervisor::act(const Inspect& e) { send(e.host, AskProcess{e.process}); }

void Supervisor::act(const Acknowledge& e) {
  processes_.erase(e.process);
  send(e.host, AckExit{e.process});
}

void Supervisor::act(const TellServers& e) {
  send_to(e.host, {Role::kWorker, e.worker.value}, e.message);
}
void Supervisor::act(const TellRelease& e) {
  send_to(e.host, {Role::kWorker, e.worker.value}, e.message);
}
void Supervisor::act(const TellShrunk& e) {
  send_to(e.host, {Role::kWorker, e.worker.value}, e.message);
}
void Supervisor::act(const TellCommit& e) {
  send_to(e.host, {Role::kServer, e.server.value}, e.message);
}

void Supervisor::act(const SealCheckpoint& e) { group_.spawn(seal(e.what)); }

io::awaitable<void> Supervisor::seal(Checkpoints::Saving what) {
  constexpr int kTries = 6;
  const std::string folder = io::checkpoints_dir(spec_);
  io::Manifest manifest;
  manifest.job = spec_.job;
  manifest.epoch = what.epoch;
  manifest.generation = what.generation;
  manifest.wall_ns = io::wall_now();
  std::uint32_t index = 0;  // every server's file is there
  for (const auto& [server, file] : what.files) {
    manifest.step = std::max(manifest.step, file.step);
    manifest.files.push_back({io::checkpoint_file(index++), file.bytes, file.header_crc});
  }
  Result<void> done;
  for (int i = 1; i <= kTries; ++i) {
    done = co_await seal_checkpoint(volume_, folder, manifest);
    if (done || i == kTries) break;
    co_await io::sleep_for(std::chrono::seconds(i));
  }
  post(CheckpointSealed{what.generation, done ? "" : done.error().message});
  // The job may have gone back meanwhile: then it needs an older one.
  if (!done || job_->checkpoints().newest() != what.epoch) co_return;
  auto pruned =
      co_await prune_checkpoints(volume_, folder, spec_.rules.keep_checkpoints, what.epoch);
  if (!pruned) own_log_.warn("old checkpoints stay for now: {}", pruned.error().message);
}

io::awaitable<void> Supervisor::watch_checkpoint_place() {
  constexpr Duration kLook = std::chrono::milliseconds(100);
  constexpr Duration kNextLook = std::chrono::seconds(30);
  std::random_device random;
  std::set<Host> hosts(spec_.workers.begin(), spec_.workers.end());
  hosts.insert(spec_.servers.begin(), spec_.servers.end());
  checkpoint_place_.emplace(fmt::format("{}/place.{}", io::job_files_dir(spec_), term_),
                            fmt::format("{:08x}{:08x}", random(), random()), std::move(hosts),
                            spec_.local);
  std::optional<std::string> reported;
  for (Time next = io::steady_now();; co_await io::sleep_for(kLook)) {
    if (io::steady_now() >= next) {
      next = io::steady_now() + kNextLook;
      if (!checkpoint_place_->is_written()) {
        const auto written =
            co_await volume_.replace(checkpoint_place_->file(), checkpoint_place_->word());
        checkpoint_place_->written(written ? "" : written.error().message);
        std::vector<Host> attached;
        for (const auto& [host, h] : hosts_)
          if (h.is_attached()) attached.push_back(host);
        for (const Host& host : attached) look_for_place(host, {});
      }
      for (const Host& host : checkpoint_place_->look_again())
        if (shell(host).is_attached()) look_for_place(host, {});
      auto free = co_await volume_.room(io::job_files_dir(spec_));
      const Checkpoints& known = job_->checkpoints();
      const std::uint64_t copies =
          spec_.rules.keep_checkpoints + 1 -
          std::min<std::uint64_t>(known.count(), spec_.rules.keep_checkpoints);
      if (free) checkpoint_place_->room(*free, known.bytes() * copies);
    }
    const auto why_not = checkpoint_place_->why_not();
    if (!why_not || why_not == reported) continue;
    reported = why_not;
    post(CheckpointPlaceSeen{*why_not});
  }
}

void Supervisor::look_for_place(const Host& host, const std::vector<ProcessReport>& known) {
  if (!checkpoint_place_) return;
  const auto start = checkpoint_place_->ask(host, next_prepare_, known);
  if (!start) return;
  ++next_prepare_;
  send(host, *start);
}

void Supervisor::act(const Note& e) {
  Story::Place place;
  place.wall_ns = e.line ? e.line->wall_ns : io::wall_now();
  if (job_) {
    const Boundary& view = job_->boundary();
    place.generation = view.generation().value;
    if (view.epoch()) place.epoch = view.epoch()->value;
    if (const auto rank = e.worker ? view.rank_of(*e.worker) : std::nullopt)
      place.rank = rank->value;
  }
  pulse_.told(e);
  story_->tell(e, place);
  changes_.note();
}

void Supervisor::act(const End& e) {
  if (end_) return;
  end_ = e;
  done_.cancel();
}

}  // namespace dt::supervisor
