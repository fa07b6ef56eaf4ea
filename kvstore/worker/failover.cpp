#include "kvstore/worker/failover.h"

#include <utility>

#include "kvstore/link/event_loop.h"
#include "kvstore/worker/dispatch.h"
#include "kvstore/worker/links/server_links.h"

namespace dt::kv {

namespace {

/// Calls `work` after `limit`, unless it is cancelled before.
io::awaitable<void> call_after(Duration limit, std::function<void()> work) {
  const auto deadline = deadline_after(limit);
  co_await io::sleep_for(limit);
  if (deadline && EventLoop::Clock::now() >= *deadline) work();
}

}  // namespace

void Failover::on_servers(const Servers& servers) {
  if (!links_.learn(servers)) return;
  error_ = {Code::kRollback,
            fmt::format("a server was lost, and the job goes back to the checkpoint "
                        "of epoch {}: call epoch_boundary to go on",
                        servers.epoch)};
  is_leaving_ = true;
  unanswered_ = links_.leave(error_);
  on_ended();
  if (!is_leaving_) return;
  auto work = [this, change = ++changes_] { end_if_held(change); };
  loop_.spawn(call_after(options_.let_go_limit, std::move(work)));
}

void Failover::end_if_held(unsigned change) {
  if (!is_leaving_ || change != changes_) return;
  const std::string whose = links_.held_by();
  options_.end_process(fmt::format(
      "worker {}: {} since the servers were replaced {:.0f} s ago, so the old values may "
      "be written over the new ones at any time: this process ends",
      options_.worker,
      whose.empty() ? "copies to or from a device have not ended"
                    : whose + " still has this worker's memory open",
      seconds(options_.let_go_limit)));
}

void Failover::on_ended() {
  if (!is_leaving_ || !links_.have_ended() || dispatch_.is_copying()) return;
  is_leaving_ = false;
  const auto unanswered = std::exchange(unanswered_, {});
  dispatch_.give_up(unanswered, error_);
}

Status Failover::reconnect() {
  for (;;) {
    auto done = begin_anew();
    const bool is_replaced = !done && done.error().code == Code::kRollback;
    if (!is_replaced) return done;
  }
}

Status Failover::begin_anew() {
  const auto has_left = [this] { return !is_leaving_; };
  (void)loop_.run_until(has_left, std::nullopt);
  bool has_begun = false;
  loop_.post([this, &has_begun] {
    links_.connect_again();
    has_begun = true;
  });
  (void)loop_.run_until([&has_begun] { return has_begun; }, std::nullopt);
  // The caller's earlier posts have run: nothing refers to the old chunks any more.
  keys_ = KeyTable(options_.chunk_bytes);
  memory_.forget_servers();
  auto done = connected_();
  if (done) done = memory_.share_again();
  if (done) done = key_init_.learn_all();
  return done;
}

}  // namespace dt::kv
