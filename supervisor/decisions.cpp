#include "supervisor/decisions.h"

#include <cstdlib>
#include <iterator>
#include <utility>
#include <variant>

#include "core/protocol/exit_code.h"
#include "io/clock.h"

namespace dt::supervisor {

void Decisions::replay(const JobOptions& options, const std::vector<Record>& records) {
  job_ = std::make_unique<Job>(options, records, now());
  context_.job = job_.get();
}

void Decisions::begin() {
  pumping_ = true;  // what is posted meanwhile comes after all that the beginning asks for
  carry_out(job_->begin(context_.term, now()));
  pump();
}

Instant Decisions::now() const {
  const Time steady = io::steady_now();
  return {room_.job_time(steady), io::wall_now(), steady};
}

void Decisions::post(JobEvent event) {
  if (room_.is_out() && !JournalRoom::matters(event)) return;
  events_.push_back(std::move(event));
  if (!pumping_ && job_) pump();
}

void Decisions::stop(std::string why) {
  if (stopped_why_) return;
  stopped_why_ = why;
  if (room_.is_out()) return end_unwritten(kExitInterrupted, std::move(why));
  post(StopAsked{std::move(why), kExitInterrupted});
}

void Decisions::released(const Host& host) {
  std::erase_if(events_,
                [&host](const JobEvent& event) { return JournalRoom::is_void(event, host); });
}

void Decisions::pump() {
  pumping_ = true;
  while (!events_.empty() && !room_.is_out()) {
    const JobEvent event = std::move(events_.front());
    events_.pop_front();
    const Instant then = now();
    std::vector<Effect> effects = job_->step(event, then);
    check_settled(then);
    // A tick without an effect changes nothing that a client can wait for.
    const bool is_change = !effects.empty() || !std::holds_alternative<Tick>(event);
    carry_out(std::move(effects));
    hooks_.decided(event, is_change);
    if (has_failed_) events_.clear();
  }
  pumping_ = false;
}

/// DT_CHECK_SETTLE: a step that left something undone ends this process, loudly.
void Decisions::check_settled(Instant then) {
  static const bool kChecks = std::getenv("DT_CHECK_SETTLE") != nullptr;
  if (!kChecks) return;
  const std::string undone = job_->unsettled(then);
  if (undone.empty()) return;
  context_.console.error("internal error: {}", undone);
  std::abort();
}

void Decisions::carry_out(std::vector<Effect> effects) {
  for (auto e = effects.begin(); e != effects.end() && !has_failed_; ++e) {
    const auto* record = std::get_if<Append>(&*e);
    if (!record) {
      has_ended_ |= std::holds_alternative<End>(*e);
      hooks_.carry_out(*e);
      continue;
    }
    const auto appended = append(*record);
    // An end needs no room: who takes the job up again finds nothing alive.
    if (appended || has_failed_ || std::holds_alternative<JobEnding>(record->record)) continue;
    if (stopped_why_) return end_unwritten(kExitInterrupted, *stopped_why_);
    std::vector<Effect> rest(std::make_move_iterator(e), std::make_move_iterator(effects.end()));
    room_.hold(std::move(rest), appended.error().message, io::steady_now());
    context_.note(Note::kFailure, "journal_full",
                  fmt::format("{}: nothing is decided until it can be written; training goes on "
                              "to the next boundary and waits there",
                              appended.error().message));
    return;
  }
}

Result<void> Decisions::append(const Append& e) {
  const wire::Frame frame = to_frame(e.record);
  auto appended = files_.journal().append(frame.type, frame.body);
  if (!appended && files_.journal().is_full()) return appended;
  if (!appended) {
    context_.console.error("{}: the journal cannot be written, the job stops",
                           appended.error().message);
    end_unwritten(kExitFailure, appended.error().message);
    return appended;
  }
  files_.journalled(e.record, frame);
  return {};
}

void Decisions::look_at_journal(bool is_doubtful) {
  look_at_room(is_doubtful);
  if (!room_.is_out() && !has_failed_) look_at_size();
}

void Decisions::look_at_room(bool is_doubtful) {
  const Time at = io::steady_now();
  if (const std::string little = room_.news(files_.journal().shortage()); !little.empty())
    context_.note(
        Note::kFailure, "journal_room_low",
        fmt::format("{}: when that is used up, the job waits at its next boundary", little));
  if (!room_.is_due(at) || is_doubtful) return;
  const auto appended = append(room_.first());
  if (has_failed_) return;
  if (!appended) return room_.put_off(appended.error().message, at);
  context_.note(Note::kInfo, "journal_written",
                fmt::format("the journal can be written again, after {:.0f} s: the job goes on",
                            seconds(room_.waited(at))));
  pumping_ = true;
  carry_out(room_.let_go(at));
  pump();
}

void Decisions::look_at_size() {
  const Time begun = io::steady_now();
  const auto cut = files_.cut_journal();
  if (!cut) return context_.log.warn("the journal stays long: {}", cut.error().message);
  if (!*cut) return;
  const double took = seconds(io::steady_now() - begun);
  context_.note(Note::kMeasure, "journal_cut",
                fmt::format("the journal had {:.1f} MB and has {:.1f} MB, after {:.2f} s",
                            static_cast<double>((*cut)->before) / 1e6,
                            static_cast<double>((*cut)->after) / 1e6, took),
                {}, {{"cut_s", took}});
}

void Decisions::end_unwritten(int exit_code, std::string why) {
  // Nothing may happen that is not journalled: this supervisor carries nothing out any more.
  has_failed_ = true;
  room_.drop();
  events_.clear();
  if (std::exchange(has_ended_, true)) return;
  context_.note(Note::kMeasure, "job_ended", why, {}, {{"code", exit_code}});
  hooks_.carry_out(End{exit_code, std::move(why), context_.spec.rules.stop_grace});
}

}  // namespace dt::supervisor
