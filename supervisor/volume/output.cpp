#include "supervisor/volume/output.h"

#include <algorithm>

#include "io/asio.h"
#include "io/clock.h"
#include "supervisor/volume/volume_client.h"

namespace dt::supervisor {
namespace {

/// Output of all hosts that may wait for the volume, but for kFirstOutputRoom of each.
constexpr std::uint64_t kSharedRoom = std::uint64_t{8} << 20;

constexpr Duration kBatchTime = std::chrono::milliseconds(200);
constexpr Duration kProgressTime = std::chrono::seconds(1);
constexpr std::size_t kBatchBytes = std::size_t{64} << 10;

// What is kept of a worker whose lines are not shown, for the case that it fails.
constexpr std::size_t kTailLines = 10;
constexpr std::size_t kTailBytes = 4096;
constexpr std::size_t kEndedKept = 16;  ///< Workers.
constexpr std::size_t kEndsShown = 3;   ///< Within kEndsIn.
constexpr Duration kEndsIn = std::chrono::minutes(1);

std::string file_of(ProcessId process, const Host& host) {
  switch (process.role) {
    case Role::kServer:
      return fmt::format("server-{}.log", process.id);
    case Role::kWorker:
      return fmt::format("worker-{}.log", process.id);
    case Role::kPrepare:
      return fmt::format("prepare-{}.log", host.name);
  }
  return "other.log";
}

}  // namespace

ProcessOutput::ProcessOutput(VolumeClient& volume, Options options, Console console,
                             OutputCredit::Give give)
    : volume_(volume),
      options_(std::move(options)),
      console_(std::move(console)),
      credit_(kSharedRoom, std::move(give)) {
  volume_.on_output_done = [this](const std::string& file, std::size_t bytes) {
    credit_.written(file, bytes);
  };
}

void ProcessOutput::Unshown::add(bool is_stderr, std::string_view line) {
  lines.emplace_back(is_stderr, line);
  bytes += line.size();
  while (lines.size() > kTailLines || (bytes > kTailBytes && lines.size() > 1)) {
    bytes -= lines.front().second.size();
    lines.pop_front();
  }
}

void ProcessOutput::open(ProcessId process, const Host& host) {
  if (process.role == Role::kWorker) {
    const auto first = streams_.lower_bound({Role::kWorker, 0});
    const bool has_worker = first != streams_.end() && first->first.role == Role::kWorker;
    lowest_ = has_worker ? std::min(lowest_, process.id) : process.id;
  }
  const std::string prefix = options_.prefix ? line_prefix(process, host) : "";
  streams_.try_emplace(process,
                       Stream{host, options_.folder + "/" + file_of(process, host), prefix.size(),
                              io::LinePrefixer(prefix), io::LinePrefixer(prefix)});
  if (!is_many_) see_many();
}

void ProcessOutput::see_many() {
  const auto is_worker = [](const auto& one) { return one.first.role == Role::kWorker; };
  const auto open = std::ranges::count_if(streams_, is_worker);
  is_many_ = std::max(static_cast<std::size_t>(open), options_.workers) > kFewWorkers;
  if (is_many_ && !options_.shown && on_lead_alone) on_lead_alone();
}

std::string ProcessOutput::why_lost(const Host& host, OutputLoss why) const {
  if (why == OutputLoss::kVolume)
    return fmt::format("the shared volume took nothing for {:.0f} s",
                       seconds(volume_.last_output_stall()));
  if (why == OutputLoss::kLink) return fmt::format("the link to {} was down", host);
  return why == OutputLoss::kKilled ? "the job was killed" : "the supervisor was away";
}

void ProcessOutput::write(const Host& host, const dt::Output& message) {
  if (!streams_.contains(message.process) && message.process.role != Role::kPrepare)
    open(message.process, host);
  const auto it = streams_.find(message.process);
  if (it == streams_.end()) return discard(host, message);
  Stream& stream = it->second;
  const std::size_t before = stream.collected.size();
  if (message.lost_before > 0)
    stream.collected += missing_mark(message.lost_before, why_lost(host, message.why_lost));
  stream.collected += message.bytes;
  credit_.received(host, message.bytes.size(), stream.file, stream.collected.size() - before);
  if (stream.collected.size() >= kBatchBytes) store(stream);
  io::LinePrefixer& lines = message.is_stderr ? stream.err : stream.out;
  show(message.process, stream, message.is_stderr, lines.feed(message.bytes));
}

void ProcessOutput::close(ProcessId process) {
  const auto it = streams_.find(process);
  if (it == streams_.end()) return;
  Stream& stream = it->second;
  show(process, stream, false, stream.out.finish());
  show(process, stream, true, stream.err.finish());
  show(fold_.up_to_last_of(process));
  store(stream);
  if (!stream.unshown.lines.empty()) ended_.emplace_back(process, std::move(stream.unshown));
  if (ended_.size() > kEndedKept) ended_.pop_front();
  streams_.erase(it);
}

void ProcessOutput::close_all() {
  while (!streams_.empty()) close(streams_.begin()->first);
}

// ---------------------------------------------------------------- the console

bool ProcessOutput::is_lead(ProcessId worker) const {
  const auto rank0 = lead ? lead() : std::nullopt;
  return worker.id == (rank0 ? rank0->value : lowest_);
}

void ProcessOutput::show(ProcessId process, Stream& stream, bool is_stderr,
                         std::string_view lines) {
  if (lines.empty() || options_.shown == io::ShownOutput::kNone) return;
  const bool is_by_lead = process.role == Role::kWorker && is_lead_alone();
  const bool is_hidden = is_by_lead && !is_lead(process);
  // The lead's lines have none to be equal to.
  const bool folds = is_many_ && !is_by_lead && stream.prefix > 0;
  if (!is_hidden && !folds) return console_(is_stderr, lines);
  while (!lines.empty()) {
    const std::size_t end = lines.find('\n');
    if (is_hidden)
      stream.unshown.add(is_stderr, lines.substr(0, end + 1));
    else
      fold_.add(process, stream.host, is_stderr, lines.substr(stream.prefix, end - stream.prefix),
                io::steady_now());
    lines.remove_prefix(end + 1);
  }
  show(fold_.due(io::steady_now()));
}

void ProcessOutput::show(const std::vector<LineFold::Line>& lines) const {
  for (const LineFold::Line& line : lines) console_(line.is_stderr, line.text);
}

void ProcessOutput::show_end_of(WorkerId worker) {
  const ProcessId process{Role::kWorker, worker.value};
  const auto end =
      std::ranges::find_if(ended_, [process](const auto& one) { return one.first == process; });
  if (end == ended_.end()) return;
  const Time now = io::steady_now();
  while (!ends_shown_.empty() && now - ends_shown_.front() > kEndsIn) ends_shown_.pop_front();
  if (ends_shown_.size() >= kEndsShown) return;
  ends_shown_.push_back(now);
  for (const auto& [is_stderr, line] : end->second.lines) console_(is_stderr, line);
  ended_.erase(end);
}

// ---------------------------------------------------------------- in batches

io::awaitable<void> ProcessOutput::run() {
  static_assert(LineFold::kWait > kBatchTime, "what comes in a sleep is not due before its end");
  Time batch_at = io::steady_now();
  Time progress_at = batch_at;
  for (;;) {
    const Time until = std::min(batch_at, fold_.due_at().value_or(batch_at));
    co_await io::sleep_for(until - io::steady_now());
    const Time now = io::steady_now();
    show(fold_.due(now));
    if (now < batch_at) continue;
    batch_at = now + kBatchTime;
    const bool shows_progress = now >= progress_at;
    if (shows_progress) progress_at = now + kProgressTime;
    if (shows_progress) credit_.repeat(volume_.is_output_stalled());
    for (auto& [process, stream] : streams_) {
      store(stream);
      if (!shows_progress) continue;
      show(process, stream, false, stream.out.take_progress());
      show(process, stream, true, stream.err.take_progress());
    }
  }
}

void ProcessOutput::store(Stream& stream) {
  if (stream.collected.empty()) return;
  volume_.queue_append(stream.file, std::move(stream.collected), options_.limit);
  stream.collected.clear();
}

}  // namespace dt::supervisor
