#include "supervisor/volume/output_queue.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/lookup.h"

namespace dt::supervisor {

namespace {

/// Nodes of the list and of the map, and what the allocator adds: measured, rounded up.
constexpr std::size_t kPerAppend = 256;
/// Appends that a full queue has at least: dropping one loses that share of it.
constexpr std::size_t kLeastAppends = 16;
/// Parts of a log file with a limit: it is set aside between two appends.
constexpr std::uint64_t kLimitParts = 8;

}  // namespace

std::size_t OutputQueue::memory_of(const Append& append) {
  // The path is also the key of its file.
  return kPerAppend + append.bytes.capacity() + 2 * append.path.capacity();
}

std::string missing_mark(std::uint64_t bytes, std::string_view why) {
  return fmt::format("\n[dtlaunch: {} bytes are missing here: {}]\n", bytes, why);
}

bool OutputQueue::can_merge(const Append& last, std::size_t more, std::uint64_t limit) const {
  std::uint64_t most = std::min(kMostMerged, most_ / kLeastAppends);
  if (limit > 0) most = std::min(most, limit / kLimitParts);
  return last.limit == limit && last.bytes.size() + more <= most;
}

std::vector<OutputQueue::Append> OutputQueue::add(const std::string& path, std::string bytes,
                                                  std::uint64_t limit, Time now) {
  bytes_ += bytes.size();
  auto& of_file = files_[path];
  if (!of_file.empty() && can_merge(*of_file.back(), bytes.size(), limit)) {
    Append& last = *of_file.back();
    memory_ -= memory_of(last);
    last.bytes += bytes;
    memory_ += memory_of(last);
  } else {
    appends_.push_back({path, std::move(bytes), limit, now});
    of_file.push_back(std::prev(appends_.end()));
    memory_ += memory_of(appends_.back());
  }
  std::vector<Append> dropped;
  while (memory_ > most_ && !appends_.empty()) {
    dropped.push_back(remove(files_.find(appends_.front().path)));
    lose(dropped.back().path, dropped.back().bytes.size(), "the shared volume did not take them");
  }
  return dropped;
}

void OutputQueue::lose(const std::string& path, std::size_t bytes, const std::string& why) {
  dropped_bytes_ += bytes;
  Lost& lost = lost_[path];
  lost.bytes += bytes;
  lost.why = why;
}

OutputQueue::Append OutputQueue::remove(Files::iterator file) {
  const Appends::iterator at = file->second.front();
  file->second.pop_front();
  if (file->second.empty()) files_.erase(file);
  bytes_ -= at->bytes.size();
  memory_ -= memory_of(*at);
  Append out = std::move(*at);
  appends_.erase(at);
  return out;
}

OutputQueue::Append OutputQueue::take() { return take(std::string(appends_.front().path)); }

OutputQueue::Append OutputQueue::take(const std::string& path) {
  Append out = remove(files_.find(path));
  if (const auto lost = lost_.extract(out.path)) {
    const std::string mark = missing_mark(lost.mapped().bytes, lost.mapped().why);
    out.bytes.insert(0, mark);
    out.mark = mark.size();
  }
  return out;
}

std::optional<Time> OutputQueue::oldest() const {
  return appends_.empty() ? std::nullopt : std::optional(appends_.front().since);
}

std::optional<Time> OutputQueue::oldest(const std::string& path) const {
  const auto* of_file = find_in(files_, path);
  return of_file ? std::optional(of_file->front()->since) : std::nullopt;
}

}  // namespace dt::supervisor
