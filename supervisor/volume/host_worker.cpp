#include "supervisor/volume/host_worker.h"

#include "io/clock.h"

namespace dt::supervisor {

using io::awaitable;
using io::tok;

namespace {

constexpr std::size_t kMostBytes = std::size_t{4} << 20;

}  // namespace

HostWorker::HostWorker(VolumeClient& volume, Options options,
                       std::function<void(FileWatchResult)> decided)
    : volume_(volume),
      path_(options.folder + "/" + options.watch.name),
      machine_(std::move(options.accepted), options.watch),
      decided_(std::move(decided)),
      wake_(volume.executor()) {
  volume_.on_hint = [this] { nudge(); };
  volume_.watch(options.folder, options.watch.name);
}

void HostWorker::nudge() {
  nudged_ = true;
  wake_.cancel();
}

void HostWorker::stop() {
  stopped_ = true;
  wake_.cancel();
}

awaitable<Observation> HostWorker::look() {
  auto content = co_await volume_.read(path_, kMostBytes);
  if (!content) co_return Observation{Observation::Kind::kUnreadable, content.error().message};
  if (!*content) co_return Observation{Observation::Kind::kAbsent, ""};
  co_return Observation{Observation::Kind::kContent, std::move(**content)};
}

awaitable<void> HostWorker::run() {
  while (!stopped_) {
    nudged_ = false;
    auto seen = co_await look();
    if (stopped_) break;
    const Time now = io::steady_now();
    auto result = machine_.observe(std::move(seen), now);
    if (!std::holds_alternative<std::monostate>(result)) decided_(std::move(result));
    if (nudged_ || stopped_) continue;
    wake_.expires_after(machine_.next_look(now) - now);
    co_await wake_.async_wait(tok);
  }
}

}  // namespace dt::supervisor
