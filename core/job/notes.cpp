#include "core/job/notes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace dt {

std::vector<Note> change_notes(const Record& record) {
  std::vector<Note> notes;
  const auto add = [&](const char* what, WorkerId worker, const LogLine& line,
                       std::string_view is) {
    std::string text = fmt::format("worker {} on {} is {}", worker, line.host, is);
    notes.push_back({Note::kCommit, what, std::move(text), worker, line.host, {}, line});
  };
  const auto added = [&](WorkerId worker, const LogLine& line, std::size_t rank, std::size_t of) {
    add("worker_added", worker, line, fmt::format("a member, rank {} of {}", rank, of));
  };
  const auto removed = [&](WorkerId worker, const LogLine& line, std::string_view why) {
    add("worker_removed", worker, line, fmt::format("no member any more ({})", why));
  };
  if (const auto* c = std::get_if<Committed>(&record); c && c->log.size() <= c->members.size()) {
    // Who joins comes last, in the order of the lines.
    std::size_t rank = c->members.size() - c->log.size();
    for (const LogLine& line : c->log) {
      added(c->members[rank], line, rank, c->members.size());
      ++rank;
    }
  } else if (const auto* b = std::get_if<GroupBegan>(&record);
             b && b->log.size() == b->changed.size()) {
    for (std::size_t i = 0; i < b->log.size(); ++i) {
      const WorkerId id = b->changed[i];
      if (b->log[i].added)
        added(id, b->log[i], id.value - b->first.value, b->workers.size());
      else
        removed(id, b->log[i], "the group began again without it");
    }
  } else if (const auto* g = std::get_if<WorkerGone>(&record)) {
    for (const LogLine& line : g->log) removed(g->worker, line, g->reason());
  } else if (const auto* l = std::get_if<MemberLeft>(&record)) {
    for (const LogLine& line : l->log)
      removed(l->worker, line, "exited: exit code 0 while others go on");
  }
  return notes;
}

std::string workers_text(const std::vector<WorkerId>& ids) {
  return fmt::format("worker{} {}", ids.size() == 1 ? "" : "s", fmt::join(ids, ", "));
}

}  // namespace dt
