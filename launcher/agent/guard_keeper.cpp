#include "launcher/agent/guard_keeper.h"

#include <sys/wait.h>

#include <boost/asio/posix/stream_descriptor.hpp>

namespace dt::launcher {
namespace {

constexpr auto kGuardRetry = std::chrono::seconds(1);

}  // namespace

GuardKeeper::GuardKeeper(GuardPlan plan, Guard guard, io::Log& log)
    : plan_(std::move(plan)), guard_(std::move(guard)), log_(&log) {}

void GuardKeeper::group_started(pid_t group) {
  groups_.insert(group);
  guard_.group_started(group);
}

void GuardKeeper::group_ended(pid_t group) {
  groups_.erase(group);
  guard_.group_ended(group);
}

io::awaitable<void> GuardKeeper::run() {
  using Descriptor = io::asio::posix::stream_descriptor;
  for (;;) {
    Descriptor ended(co_await io::asio::this_coro::executor, guard_.take_pidfd().release());
    auto [ec] = co_await ended.async_wait(Descriptor::wait_read, io::tok);
    if (ec) co_return;
    ::waitpid(guard_.pid(), nullptr, WNOHANG);  // a replacement was our child
    auto guard = fork_new_guard(plan_);
    if (!guard) log_->error("no guard, trying again: {}", guard.error().message);
    while (!guard) {
      co_await io::sleep_for(kGuardRetry);
      guard = fork_new_guard(plan_);
    }
    guard_ = std::move(*guard);
    for (const pid_t group : groups_) guard_.group_started(group);
    log_->warn("the guard was gone; process {} guards now", guard_.pid());
  }
}

}  // namespace dt::launcher
