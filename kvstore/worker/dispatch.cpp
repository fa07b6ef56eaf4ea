#include "kvstore/worker/dispatch.h"

#include <algorithm>
#include <utility>

#include "kvstore/link/event_loop.h"
#include "kvstore/worker/chunk.h"

namespace dt::kv {

Dispatch::Dispatch(WorkerId worker, ServerLinks& links, EventLoop& loop,
                   cuda::LocalGroup::Options group, std::function<void()> on_copied,
                   GiveBack give_back)
    : links_(links),
      loop_(loop),
      on_copied_(std::move(on_copied)),
      give_back_(std::move(give_back)),
      copies_(worker, loop.context(), *this, std::move(group)) {}

// ---------------------------------------------------------------- the caller

StoreResult<Handle> Dispatch::hand_over(std::vector<Request> requests, Operations::Uses uses) {
  if (auto broken = links_.error()) return tl::unexpected(std::move(*broken));
  const Handle handle = operations_.begin(requests.size(), std::move(uses));
  loop_.post([this, handle, requests = std::move(requests)]() mutable {
    start(handle, std::move(requests));
  });
  return handle;
}

/// Runs the loop until `is_over`.
template <class Over>
Status Dispatch::run_until(Over is_over, double timeout_s) {
  const auto limit = from_seconds(timeout_s);
  if (is_over() || loop_.run_until(is_over, deadline_after(limit))) return {};
  return store_error(Code::kTimeout,
                     fmt::format("not done within {:.1f} s: other workers' contributions or a "
                                 "server's answer are missing",
                                 timeout_s));
}

Status Dispatch::wait(Handle handle, double timeout_s) {
  if (!operations_.contains(handle)) return {};  // waited for before
  const auto is_done = [&] { return operations_.is_done(handle); };
  if (auto done = run_until(is_done, timeout_s); !done) return done;
  auto taken = operations_.take(handle);
  give_back_(taken.staged);
  if (!taken.is_last) loop_.nudge();
  return std::move(taken.status);
}

Status Dispatch::wait_in_stream(Handle handle, double timeout_s) {
  if (!operations_.contains(handle)) return {};  // waited for before
  const auto is_over = [&] { return operations_.is_in_stream(handle); };
  if (auto over = run_until(is_over, timeout_s); !over) return over;
  if (operations_.is_done(handle)) return wait(handle, timeout_s);
  loop_.nudge();
  return copies_.make_wait(operations_.calls(handle));
}

Status Dispatch::wait_all(double timeout_s) {
  using Clock = EventLoop::Clock;
  const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_s);
  Status result;
  for (const Handle handle : operations_.all()) {
    double left = 0;
    if (timeout_s > 0)
      left = std::max(1e-3, std::chrono::duration<double>(deadline - Clock::now()).count());
    Status done = wait(handle, left);
    if (!done && result) result = std::move(done);
  }
  return result;
}

void Dispatch::break_store(const StoreError& error) {
  loop_.post([this, error] { give_up(links_.close(error), error); });
}

// ---------------------------------------------------------------- the loop

void Dispatch::start(Handle handle, std::vector<Request> requests) {
  const auto broken = links_.error();
  for (auto& request : requests) {
    if (broken) {
      operations_.finish_part(handle, broken);
      continue;
    }
    request.handle = handle;
    ChunkState& chunk = *request.chunk;
    if (contributes(request.header.type)) chunk.owner->announce_contribution();
    if (takes_turns(request.header.type))
      send(chunk.turns.submit(std::move(request)));
    else
      send(std::move(request));
  }
  links_.push_out();
}

void Dispatch::send(std::optional<Request> request) {
  if (!request) return;
  const DeviceEnds* ends = request->device.get();
  if (ends && (ends->in || !ends->all_from.empty() || (ends->out && !ends->into)))
    return copies_.bring_in(std::move(*request));
  ServerLink& owner = *request->chunk->owner;
  links_.send(owner, std::move(*request));
}

void Dispatch::on_answer(Request request, Outcome outcome) {
  if (request.query) {
    request.query->outcome = std::move(outcome);
    request.query->is_answered = true;
    return;
  }
  if (outcome.header.type == data::Type::kNeedValues && request.from) {
    // The worker that was to send the values is gone, and this one is the first contributor now.
    request.header.payload = static_cast<std::uint32_t>(request.header.samples *
                                                        data::element_bytes(request.header.dtype));
    return send(std::move(request));
  }
  if (outcome.header.type == data::Type::kNeedValues)
    outcome.error = StoreError{Code::kInternal, "its values are not in the servers' checkpoint"};
  if (request.header.type == data::Type::kInit && !outcome.error)
    request.chunk->turns.advance_to(outcome.header.round);
  const DeviceEnds* ends = request.device.get();
  const bool goes_out = outcome.header.type == data::Type::kValue && ends && ends->into;
  if (goes_out) return copies_.bring_out(std::move(request), std::move(outcome));
  finish(request, outcome, outcome.error, false);
}

/// `error` is the caller's result.
void Dispatch::finish(const Request& request, const Outcome& outcome,
                      std::optional<StoreError> error, bool was_in_stream) {
  if (takes_turns(request.header.type)) send(request.chunk->turns.answered(request, outcome));
  if (request.step && !error) *request.step = std::max(*request.step, outcome.header.step);
  if (error) error->message = fmt::format("key '{}': {}", *request.chunk->name, error->message);
  operations_.finish_part(request.handle, std::move(error), was_in_stream);
}

void Dispatch::give_up(const std::vector<Request>& unanswered, const StoreError& error) {
  for (const auto& request : unanswered) give_up_one(request, error, false);
}

void Dispatch::give_up_one(const Request& request, const StoreError& error, bool was_in_stream) {
  operations_.finish_part(request.handle, error, was_in_stream);
  for (const auto& waiting : request.chunk->turns.take_waiting())
    operations_.finish_part(waiting.handle, error);
}

// ---------------------------------------------------------------- arrays on devices

void Dispatch::on_in(Request request, std::optional<StoreError> error) {
  if (const auto broken = links_.error()) return give_up_one(request, *broken, false);
  ServerLink& owner = *request.chunk->owner;
  if (!error) return links_.send(owner, std::move(request));
  // The round is still open to this worker.
  if (contributes(request.header.type)) owner.retract_contribution();
  Outcome unsent;
  unsent.error = std::move(error);
  finish(request, unsent, unsent.error, false);
}

void Dispatch::on_out_started(const Request& request) {
  operations_.part_is_in_stream(request.handle);
}

void Dispatch::on_out(Request request, Outcome outcome, std::optional<StoreError> error) {
  if (const auto broken = links_.error()) return give_up_one(request, *broken, true);
  finish(request, outcome, std::move(error), true);
}

void Dispatch::on_looked() {
  links_.push_out();
  on_copied_();
}

}  // namespace dt::kv
