#include "core/job/notes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace dt {

std::vector<Note> change_notes(const Record& record) {
  std::vector<Note> notes;
  const auto add = [&](const char* what, WorkerId worker, const LogLine& line, std::string text) {
    notes.push_back({Note::kCommit, what, std::move(text), worker, line.host, {}, line});
  };
  if (const auto* c = std::get_if<Committed>(&record); c && c->log.size() <= c->members.size()) {
    // Who joins comes last, in the order of the lines.
    std::size_t rank = c->members.size() - c->log.size();
    for (const LogLine& line : c->log) {
      const WorkerId id = c->members[rank];
      add("worker_added", id, line,
          fmt::format("worker {} on {} is a member, rank {} of {}", id, line.host, rank,
                      c->members.size()));
      ++rank;
    }
  } else if (const auto* b = std::get_if<GroupBegan>(&record);
             b && b->log.size() == b->changed.size()) {
    for (std::size_t i = 0; i < b->log.size(); ++i) {
      const LogLine& line = b->log[i];
      const WorkerId id = b->changed[i];
      if (line.added)
        add("worker_added", id, line,
            fmt::format("worker {} on {} is a member, rank {} of {}", id, line.host,
                        id.value - b->first.value, b->workers.size()));
      else
        add("worker_removed", id, line,
            fmt::format("worker {} on {} is no member any more (the group began again without it)",
                        id, line.host));
    }
  } else if (const auto* g = std::get_if<WorkerGone>(&record)) {
    for (const LogLine& line : g->log)
      add("worker_removed", g->worker, line,
          fmt::format("worker {} on {} is no member any more ({})", g->worker, line.host,
                      g->reason()));
  } else if (const auto* l = std::get_if<MemberLeft>(&record)) {
    for (const LogLine& line : l->log)
      add("worker_removed", l->worker, line,
          fmt::format(
              "worker {} on {} is no member any more (exited: exit code 0 while others go on)",
              l->worker, line.host));
  }
  return notes;
}

std::string workers_text(const std::vector<WorkerId>& ids) {
  return fmt::format("worker{} {}", ids.size() == 1 ? "" : "s", fmt::join(ids, ", "));
}

}  // namespace dt
