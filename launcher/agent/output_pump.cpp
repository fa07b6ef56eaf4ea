#include "launcher/agent/output_pump.h"

namespace dt::launcher {
namespace {

using Clock = std::chrono::steady_clock;
using io::awaitable;
using io::tok;

/// While the supervisor takes output, a spool fuller than this makes its process wait. After
/// kStalledLink without progress the oldest output is dropped instead: output never stops training.
constexpr std::size_t kEnough = kSpoolBytes / 2;
constexpr auto kStalledLink = std::chrono::milliseconds(500);
/// Output waiting in the link's queue; small, so that a Beat behind it is not late.
constexpr std::size_t kLinkWindow = std::size_t{256} << 10;

}  // namespace

awaitable<void> OutputPump::read(ProcessPtr process, bool is_stderr) {
  auto& pipe = process->output.pipes[is_stderr];
  std::string buffer(Spool::kPieceSize, '\0');
  for (;;) {
    auto [ec, n] = co_await pipe.async_read_some(io::asio::buffer(buffer), tok);
    if (ec) break;
    process->output.push(is_stderr, std::string_view(buffer).substr(0, n));
    wake();
    co_await wait_for_room(process, is_stderr);
  }
  --process->output.open_pipes;
  process->stream_ended();
}

awaitable<void> OutputPump::wait_for_room(ProcessPtr process, bool is_stderr) {
  while (link_->is_attached() && process->output.spool.bytes() > kEnough && !process->is_reaped() &&
         Clock::now() < link_moved_ + kStalledLink) {
    auto& room = process->output.room[is_stderr];
    room.expires_at(link_moved_ + kStalledLink);
    co_await room.async_wait(tok);
  }
}

awaitable<void> OutputPump::run() {
  for (;;) {
    const Channel link = link_->channel();
    const bool sent = link && send_from_each(link);
    const bool is_full = link && link->queued_bytes() >= kLinkWindow;
    if (link && !is_full) link_moved_ = Clock::now();
    if (is_full)
      co_await link->flush();
    else if (!sent)
      co_await wake_.async_wait(tok);
  }
}

bool OutputPump::send_from_each(const Channel& link) {
  bool sent = false;
  auto next = processes_->after(last_served_);
  for (std::size_t n = processes_->size(); n > 0; --n, ++next) {
    if (link->queued_bytes() >= kLinkWindow) break;
    if (next == processes_->end()) next = processes_->begin();
    last_served_ = next->first;
    sent |= send_piece(*next->second);
  }
  return sent;
}

bool OutputPump::send_piece(Process& process) {
  // ProcessStarted comes before its output.
  if (!process.is_running() && !process.exit()) return false;
  if (!process.output.spool.empty()) {
    send_output(process);
    return true;
  }
  if (!process.exit() || process.exit_sent) return false;
  send_exit(process);
  return true;
}

void OutputPump::send_output(Process& process) {
  auto piece = process.output.spool.pop();
  link_->send(Output{process.id(), piece.is_stderr, std::move(piece.bytes), piece.lost_before,
                     piece.offset});
  process.output.wake_readers();
}

void OutputPump::send_exit(Process& process) {
  process.exit_sent = true;
  if (process.failure().empty())
    link_->send(ProcessExited{process.id(), *process.exit()});
  else
    link_->send(ProcessFailed{process.id(), process.failure()});
}

}  // namespace dt::launcher
