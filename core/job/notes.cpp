#include "core/job/notes.h"

#include <fmt/format.h>

namespace dt {

namespace {

Note change_note(std::string what, std::string text, WorkerId worker, const LogLine& line) {
  Note note{Note::kCommit, std::move(what), std::move(text), worker, line.host};
  note.line = line;
  return note;
}

}  // namespace

std::vector<Note> change_notes(const Record& record) {
  std::vector<Note> notes;
  if (const auto* c = std::get_if<Committed>(&record); c && c->log.size() <= c->members.size()) {
    // Who joins comes last, in the order of the lines.
    std::size_t rank = c->members.size() - c->log.size();
    for (const LogLine& line : c->log) {
      const WorkerId id = c->members[rank];
      notes.push_back(change_note("worker_added",
                                  fmt::format("worker {} on {} is a member, rank {} of {}", id,
                                              line.host, rank, c->members.size()),
                                  id, line));
      ++rank;
    }
  } else if (const auto* g = std::get_if<WorkerGone>(&record)) {
    for (const LogLine& line : g->log)
      notes.push_back(change_note(
          "worker_removed",
          fmt::format("worker {} on {} is removed ({})", g->worker, line.host, g->reason()),
          g->worker, line));
  } else if (const auto* l = std::get_if<MemberLeft>(&record)) {
    for (const LogLine& line : l->log)
      notes.push_back(change_note(
          "worker_removed",
          fmt::format("worker {} on {} is removed (exited: exit code 0 while others go on)",
                      l->worker, line.host),
          l->worker, line));
  }
  return notes;
}

}  // namespace dt
