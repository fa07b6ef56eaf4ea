#include "supervisor/hosts/checkpoint_keeper.h"

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "core/job/checkpoints.h"
#include "core/job/job.h"
#include "io/asio.h"
#include "io/clock.h"
#include "io/job/checkpoint_manifest.h"
#include "supervisor/hosts/links.h"
#include "supervisor/hosts/prepare_runs.h"
#include "supervisor/volume/checkpoint_folder.h"
#include "supervisor/volume/volume_client.h"

namespace dt::supervisor {

using io::awaitable;

awaitable<void> CheckpointKeeper::seal(SealCheckpoint what) {
  constexpr int kTries = 6;
  const std::string folder = io::checkpoints_dir(context_.spec);
  io::Manifest manifest;
  manifest.job = context_.spec.job;
  manifest.epoch = what.epoch;
  manifest.generation = what.generation;
  manifest.wall_ns = io::wall_now();
  std::uint32_t index = 0;  // every server's file is there
  for (const auto& [server, file] : what.files) {
    manifest.step = std::max(manifest.step, file.step);
    manifest.files.push_back({io::checkpoint_file(index++), file.bytes, file.header_crc});
  }
  // An older seal that is late finds the newer checkpoint whole, and leaves it.
  const io::Semaphore::Permit turn = co_await turn_->acquire();
  Result<void> done;
  for (int i = 1; i <= kTries; ++i) {
    done = co_await seal_checkpoint(context_.volume, folder, manifest);
    if (done || i == kTries) break;
    co_await io::sleep_for(std::chrono::seconds(i));
  }
  context_.post(CheckpointSealed{what.generation, done ? "" : done.error().message});
  // The job may have gone back meanwhile: then it needs an older one.
  if (!done || context_.job->checkpoints().newest() != what.epoch) co_return;
  auto pruned = co_await prune_checkpoints(context_.volume, folder,
                                           context_.spec.rules.keep_checkpoints, what.epoch);
  if (!pruned) context_.log.warn("old checkpoints stay for now: {}", pruned.error().message);
}

awaitable<void> CheckpointKeeper::watch_place() {
  constexpr Duration kLook = std::chrono::milliseconds(100);
  constexpr Duration kNextLook = std::chrono::seconds(30);
  const io::JobSpec& spec = context_.spec;
  std::random_device random;
  std::set<Host> hosts(spec.workers.begin(), spec.workers.end());
  hosts.insert(spec.servers.begin(), spec.servers.end());
  place_.emplace(fmt::format("{}/place.{}", io::job_files_dir(spec), context_.term),
                 fmt::format("{:08x}{:08x}", random(), random()), std::move(hosts),
                 io::is_local(spec));
  std::optional<std::string> reported;
  for (Time next = io::steady_now();; co_await io::sleep_for(kLook)) {
    if (io::steady_now() >= next) {
      next = io::steady_now() + kNextLook;
      co_await look();
    }
    const auto why_not = place_->why_not();
    if (!why_not || why_not == reported) continue;
    reported = why_not;
    context_.post(CheckpointPlaceSeen{*why_not});
  }
}

awaitable<void> CheckpointKeeper::look() {
  if (!place_->is_written()) {
    const auto written = co_await context_.volume.replace(place_->file(), place_->word());
    place_->written(written ? "" : written.error().message);
    for (const auto& [host, link] : links_.all())
      if (link.is_attached()) look_on(host, {});
  }
  for (const Host& host : place_->look_again())
    if (links_.at(host).is_attached()) look_on(host, {});
  auto free = co_await context_.volume.room(io::job_files_dir(context_.spec));
  const Checkpoints& known = context_.job->checkpoints();
  const std::uint64_t keep = context_.spec.rules.keep_checkpoints;
  const std::uint64_t copies = keep + 1 - std::min<std::uint64_t>(known.count(), keep);
  if (free) place_->room(*free, known.bytes() * copies);
}

void CheckpointKeeper::look_on(const Host& host, const std::vector<ProcessReport>& known) {
  if (!place_) return;
  const auto start = place_->ask(host, prepares_.next_id(), known);
  if (!start) return;
  prepares_.take_id();
  links_.send(host, *start);
}

void CheckpointKeeper::ended(ProcessId process, ExitStatus status, const std::string& why) {
  const Host host = place_->ended(process, status, why);
  links_.send(host, AckExit{process});
}

}  // namespace dt::supervisor
