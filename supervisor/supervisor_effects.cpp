#include "core/journal.h"
#include "io/checkpoint.h"
#include "io/control.h"
#include "supervisor/checkpoint_folder.h"
#include "supervisor/supervisor.h"

namespace dt::supervisor {

// ---------------------------------------------------------------- the machine

void Supervisor::post(JobEvent event) {
  events_.push_back(std::move(event));
  if (!pumping_ && job_) pump();
}

void Supervisor::pump() {
  pumping_ = true;
  while (!events_.empty()) {
    const JobEvent event = std::move(events_.front());
    events_.pop_front();
    const Instant now{steady_now(), wall_now()};
    carry_out(job_->step(event, now));
    pulse_.look(*job_, now.at);
    if (journal_failed_) events_.clear();
  }
  pumping_ = false;
}

void Supervisor::carry_out(const std::vector<Effect>& effects) {
  for (const Effect& effect : effects) {
    if (journal_failed_) return;
    std::visit([this](const auto& e) { act(e); }, effect);
  }
}

void Supervisor::act(const Append& e) {
  const wire::Frame frame = to_frame(e.record);
  auto appended = store_->append(frame.type, frame.body);
  if (!appended) {
    // Nothing may happen that is not journalled: this supervisor cannot go on.
    journal_failed_ = true;
    console_->error("{}: the journal cannot be written, the job stops", appended.error().message);
    if (!end_)
      act(End{io::kExitFailure, appended.error().message, from_seconds(spec_.stop_timeout_s)});
    return;
  }
  journal_copy_->add(journal::append_bytes(frame.type, frame.body));
  if (spec_.elastic) change_log_->add(log_lines({e.record}));
}

void Supervisor::act(const Attach& e) {
  if (e.start) return group_.spawn(reach(e.host));
  // Counted at once: an end that is carried out next has to know of it.
  ++reattaching_;
  group_.spawn(reattach(e.host));
}

void Supervisor::act(const ReleaseHost& e) {
  HostShell& h = shell(e.host);
  if (h.link) h.link->shut_down(milliseconds(spec_.stop_timeout_s));
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
  facts.checkpoint = e.checkpoint;
  start.env = launcher::environment(spec_, facts);
  start.cwd = spec_.cwd;
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
  manifest.wall_ns = wall_now();
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
  auto pruned = co_await prune_checkpoints(volume_, folder, spec_.keep_checkpoints, what.epoch);
  if (!pruned) own_log_.warn("old checkpoints stay for now: {}", pruned.error().message);
}

void Supervisor::act(const Note& e) {
  Story::Place place;
  place.wall_ns = e.line ? e.line->wall_ns : wall_now();
  if (job_) {
    const Boundary& view = job_->boundary();
    place.generation = view.generation().value;
    if (view.epoch()) place.epoch = view.epoch()->value;
    if (const auto rank = e.worker ? view.rank_of(*e.worker) : std::nullopt)
      place.rank = rank->value;
  }
  pulse_.told(e);
  story_->tell(e, place);
}

void Supervisor::act(const End& e) {
  if (end_) return;
  end_ = e;
  done_.cancel();
}

}  // namespace dt::supervisor
