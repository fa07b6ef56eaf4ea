/// The state of a job in words, to compare what different journals give.
#pragma once

#include <string>
#include <vector>

#include "core/job/goodput.h"
#include "core/job/host_table.h"
#include "core/job/job.h"
#include "core/job/membership.h"
#include "core/job/notes.h"
#include "core/job/server_group.h"

namespace dt::test {

/// What a supervisor knows after the journal, before any agent is reached.
inline std::string state_after(const std::vector<Record>& records, const JobOptions& options = {}) {
  const dt::Job job(options, records, {Time{} + std::chrono::hours(1), 1'800'000'000'000'000'000});
  std::string out = fmt::format("{} record(s), {}{}\n", records.size(), job.phase(),
                                job.opened() ? ", opened" : "");
  const Boundary& view = job.boundary();
  out += fmt::format("generation {}, epoch {}, returns to {}, members [{}], contributors [{}]\n",
                     view.generation(), view.epoch() ? fmt::format("{}", *view.epoch()) : "none",
                     view.returns_to() ? fmt::format("{}", *view.returns_to()) : "none",
                     fmt::join(view.members(), ","), fmt::join(view.contributors(), ","));
  for (const auto& [id, w] : job.membership().workers())
    if (w.state != WorkerState::kGone)
      out += fmt::format("worker {} on {}: {}{}{}, edit {}\n", id, w.host, name(w.state),
                         w.base ? ", base" : "", w.was_member ? ", was a member" : "", w.edit);
  out += fmt::format("next worker {}, last edit {}\n", job.membership().next_id(),
                     job.membership().last_edit());
  for (const auto& [host, h] : job.hosts().all())
    out += fmt::format("host {}: wanted {}, agent {}{}, restarts {}{}\n", host,
                       job.membership().wanted(host), h.incarnation, h.prepared ? ", prepared" : "",
                       h.restarts.count(), h.given_up ? ", given up" : "");
  for (const auto& [id, s] : job.servers().all())
    out += fmt::format("server {} on {}, index {}\n", id, s.host, s.index);
  out += fmt::format("newest checkpoint {}\n", job.checkpoints().newest()
                                                   ? fmt::format("{}", *job.checkpoints().newest())
                                                   : "none");
  if (job.goodput().total() > Duration{}) out += job.goodput().summary() + "\n";
  for (const Host& host : job.membership().hosts())
    if (const auto places = job.membership().empty_places(host); places != 0)
      out += fmt::format("host {}: {} empty place(s)\n", host, places);
  out += fmt::format("{} line(s) of host_worker_log\n", job.log_lines());
  for (const PastChange& past : job.past_changes())
    out += fmt::format("{}: {}\n", past.note.line->seq, past.note.text);
  return out;
}

}  // namespace dt::test
