#include "launcher/agent/output_pump.h"

#include <algorithm>

namespace dt::launcher {
namespace {

using Clock = std::chrono::steady_clock;
using io::awaitable;
using io::tok;

/// While the supervisor takes output, a spool fuller than this makes its process wait. Without a
/// sign of that for kStill the oldest output is dropped instead: it never stops training.
constexpr std::size_t kEnough = kSpoolBytes / 2;
constexpr auto kStill = std::chrono::seconds(3);
/// An exit comes before the rest of its process's output if that takes longer to be sent.
constexpr auto kExitWaits = std::chrono::seconds(1);
constexpr auto kHeldLong = std::chrono::seconds(10);
/// Output waiting in the link's queue; small, so that a Beat behind it is not late.
constexpr std::size_t kLinkWindow = std::size_t{256} << 10;

}  // namespace

awaitable<void> OutputPump::read(ProcessPtr process, bool is_stderr) {
  auto& pipe = process->output.pipes[is_stderr];
  std::string buffer(Spool::kPieceSize, '\0');
  for (;;) {
    auto [ec, n] = co_await pipe.async_read_some(io::asio::buffer(buffer), tok);
    if (ec) break;
    process->output.push(is_stderr, std::string_view(buffer).substr(0, n), why_lost());
    wake();
    co_await wait_for_room(process, is_stderr);
  }
  --process->output.open_pipes;
  process->stream_ended();
}

awaitable<void> OutputPump::wait_for_room(ProcessPtr process, bool is_stderr) {
  ProcessOutput& output = process->output;
  while (is_moving() && output.spool.bytes() > kEnough && !process->is_reaped()) {
    if (!output.held_since) output.held_since = Clock::now();
    auto& room = output.room[is_stderr];
    room.expires_at(moved_at_ + kStill);
    co_await room.async_wait(tok);
  }
}

void OutputPump::attached(bool is_new_supervisor) {
  room_ = {kFirstOutputRoom};
  sent_ = 0;
  moved_at_ = Clock::now();
  for (const auto& [id, process] : *processes_)
    if (is_new_supervisor) process->output.spool.link_was_down(OutputLoss::kSupervisor);
  wake();
}

void OutputPump::take(const OutputRoom& room) {
  room_ = room;
  if (!room.is_stalled) moved_at_ = Clock::now();
  for (const auto& [id, process] : *processes_)
    if (room.is_stalled) process->output.wake_readers();
  wake();
}

bool OutputPump::is_moving() const {
  return !room_.is_stalled && Clock::now() < moved_at_ + kStill;
}

OutputLoss OutputPump::why_lost() const {
  if (!link_->is_attached()) return OutputLoss::kLink;
  if (room_.is_stalled) return OutputLoss::kVolume;
  return sent_ < room_.bytes ? OutputLoss::kLink : OutputLoss::kSupervisor;
}

std::vector<ProcessId> OutputPump::held() const {
  std::vector<ProcessId> out;
  for (const auto& [id, process] : *processes_)
    if (const auto since = process->output.held_since; since && Clock::now() - *since >= kHeldLong)
      out.push_back(id);
  return out;
}

awaitable<void> OutputPump::run() {
  for (;;) {
    const Channel link = link_->channel();
    const bool sent = link && send_from_each(link);
    const bool is_full = link && link->queued_bytes() >= kLinkWindow;
    if (is_full) {
      co_await link->flush();
    } else if (!sent) {
      wake_.expires_after(kExitWaits);
      co_await wake_.async_wait(tok);
    }
  }
}

bool OutputPump::send_from_each(const Channel& link) {
  bool sent = false;
  for (std::size_t n = processes_->size(); n > 0; --n) {
    if (link->queued_bytes() >= kLinkWindow) break;
    const ProcessPtr next =
        processes_->after(last_served_)->second;  // it may be the last word of it
    last_served_ = next->id();
    sent |= send_piece(*next);
  }
  return sent;
}

bool OutputPump::send_piece(Process& process) {
  // ProcessStarted comes before its output.
  if (!process.is_running() && !process.exit()) return false;
  ProcessOutput& output = process.output;
  const bool has_more = !output.spool.empty();
  if (has_more && sent_ < room_.bytes)
    send_output(process);
  else if (process.exit() && !process.exit_sent &&
           (!has_more || Clock::now() > process.ended_at() + kExitWaits))
    send_exit(process);
  else if (output.comes_after_exit && !has_more)
    send_output_end(process);
  else
    return false;
  return true;
}

void OutputPump::give_up(bool is_killed) {
  for (const auto& [id, process] : *processes_) {
    if (process->output.spool.empty()) continue;
    Spool::Piece end = process->output.spool.drop();
    end.why_lost = is_killed ? OutputLoss::kKilled : why_lost();
    send(*process, std::move(end));
  }
  wake();
}

void OutputPump::send(const Process& process, Spool::Piece piece) {
  link_->send(Output{process.id(), piece.is_stderr, std::move(piece.bytes), piece.lost_before,
                     piece.offset, piece.why_lost});
}

void OutputPump::send_output(Process& process) {
  ProcessOutput& output = process.output;
  auto piece = output.spool.pop(std::min<std::uint64_t>(Spool::kPieceSize, room_.bytes - sent_));
  sent_ += piece.bytes.size();
  moved_at_ = Clock::now();
  send(process, std::move(piece));
  if (output.spool.bytes() < kEnough / 2) output.held_since.reset();
  output.wake_readers();
}

void OutputPump::send_exit(Process& process) {
  process.exit_sent = true;
  process.output.comes_after_exit = !process.output.spool.empty();
  if (process.failure().empty())
    link_->send(ProcessExited{process.id(), *process.exit(), process.output.comes_after_exit});
  else
    link_->send(ProcessFailed{process.id(), process.failure()});
}

void OutputPump::send_output_end(Process& process) {
  process.output.comes_after_exit = false;
  link_->send(OutputEnded{process.id()});
  processes_->output_ended(process.id());
}

}  // namespace dt::launcher
