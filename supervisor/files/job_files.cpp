#include "supervisor/files/job_files.h"

#include <fcntl.h>
#include <openssl/rand.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/ip/udp.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/files/hosts.h"
#include "core/files/journal.h"
#include "core/job/snapshot.h"
#include "io/asio.h"
#include "io/clock.h"
#include "io/fd.h"
#include "io/task_group.h"

namespace dt::supervisor {

using io::awaitable;
using namespace std::chrono_literals;

namespace {

/// After the job's end: how long the volume may take for the files' last lines.
constexpr Duration kLastLines = 10s;
/// A request that takes longer shows that the volume stalls, and is not only slow.
constexpr Duration kSlowRequest = 2s;
/// How long a restarted supervisor tolerates a stall of the shared volume: training needs it back.
/// Less than dtlaunch waits for its readiness.
constexpr Duration kStallAtResume = 50s;
/// For a killed predecessor to release the journal: it may be waiting for its disk.
constexpr Duration kPredecessor = 20s;

/// 64 hex digits, kept in a 0600 file next to the journal so that the next term has the same.
Result<std::string> job_secret(const std::string& path) {
  if (std::ifstream in(path); in) {
    std::string text;
    in >> text;
    if (text.size() == 64) return text;
  }
  unsigned char raw[32];
  if (RAND_bytes(raw, sizeof raw) != 1)
    return fail(ErrorKind::kIo, "no random bytes for the job's secret");
  const std::string hex = fmt::format("{:02x}", fmt::join(raw, ""));
  const io::Fd fd(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd || !io::write_all(fd.get(), hex) || ::fsync(fd.get()) != 0)
    return tl::unexpected(errno_error(errno, "write " + path));
  return hex;
}

/// The address other machines most likely reach this one by: the source address of a packet that
/// would go out (none is sent); loopback without a network.
std::string own_address(const io::asio::any_io_executor& executor) {
  boost::system::error_code ec;
  io::asio::ip::udp::socket socket(executor);
  socket.open(io::asio::ip::udp::v4(), ec);
  if (!ec) socket.connect({io::asio::ip::make_address_v4("10.255.255.255"), 9}, ec);
  if (!ec) return socket.local_endpoint(ec).address().to_string();
  return "127.0.0.1";
}

/// Reports why a file is behind for now.
std::function<void(const Error&)> warns(io::Log& log, const char* file) {
  return [&log, file](const Error& error) {
    log.warn("{} cannot be written now, it will catch up: {}", file, error.message);
  };
}

}  // namespace

JobFiles::JobFiles(SupervisorContext& context, Mode mode)
    : context_(context),
      mode_(mode),
      cut_from_(mode.journal_limit),
      events_(context.volume, io::events_file(context.spec.job_dir, context.spec.job),
              context.spec.elastic ? std::optional(context.path("events.jsonl")) : std::nullopt),
      change_log_(context.volume, io::job_files_dir(context.spec) + "/host_worker_log",
                  context.path("host_worker_log")),
      usual_deadline_(context.volume.deadline()) {}

// ---------------------------------------------------------------- open

awaitable<Result<std::vector<Record>>> JobFiles::open_state() {
  auto made = io::make_private_dir(context_.spec.state_dir);
  if (!made) co_return tl::unexpected(made.error());
  auto frames = co_await open_journal();
  if (!frames) co_return tl::unexpected(frames.error());
  // Before any of the folder's files: a second job must not touch the first one's.
  auto locked = co_await take_lock();
  if (!locked) co_return tl::unexpected(locked.error());
  std::vector<Record> records;
  Term last;
  journal_bytes_ = journal_->header();
  records_ = frames->size();
  for (const wire::Frame& frame : *frames) {
    journal_bytes_ += journal::append_bytes(frame.type, frame.body);
    auto record = record_from(frame);
    if (!record) co_return tl::unexpected(record.error().at(journal_->path()));
    if (const auto* t = std::get_if<TermBegan>(&*record)) last = t->term;
    records.push_back(std::move(*record));
  }
  context_.term = last.next();
  auto secret = job_secret(context_.spec.state_dir + "/secret");
  if (!secret) co_return tl::unexpected(secret.error());
  context_.secret = std::move(*secret);
  co_return records;
}

awaitable<Result<std::vector<wire::Frame>>> JobFiles::open_journal() {
  const std::string path = context_.spec.state_dir + "/journal";
  std::vector<wire::Frame> frames;
  auto journal = JournalFile::open(path, frames);
  for (const Time until = io::steady_now() + kPredecessor;
       !journal && journal.error().kind == ErrorKind::kDenied && io::steady_now() < until;) {
    co_await io::sleep_for(50ms);  // tidy: allow (the lock is another process's)
    journal = JournalFile::open(path, frames);
  }
  is_refused_ = !journal && journal.error().kind == ErrorKind::kDenied;
  if (!journal) co_return tl::unexpected(journal.error());
  journal_.emplace(std::move(*journal));
  co_return frames;
}

awaitable<Result<void>> JobFiles::take_lock() {
  if (!mode_.is_new) context_.volume.set_deadline(kStallAtResume);
  io::LockHolder me = io::this_process(context_.spec.job);
  auto locked = co_await take_job_lock(context_.volume, context_.spec.job_dir, me, mode_.by_force);
  is_refused_ = !locked && locked.error().kind == ErrorKind::kDenied;
  if (!locked) co_return tl::unexpected(locked.error());
  context_.volume.write_only_with(lock_path(context_.spec.job_dir), to_json(me),
                                  io::job_files_dir(context_.spec));
  lock_.emplace(std::move(me));
  if (*locked) {
    context_.log.warn("{} is taken over; a supervisor that still has it is given time to notice",
                      context_.spec.job_dir);
    co_await io::sleep_for(kDoubtAfter + kLockLook);
  }
  co_return Result<void>();
}

awaitable<Result<KnownEvents>> JobFiles::open_volume(const std::vector<Record>& records) {
  master_address_ = io::is_local(context_.spec) ? "127.0.0.1" : own_address(context_.executor);
  if (mode_.is_new) {
    auto files = co_await make_files();
    if (!files) co_return tl::unexpected(files.error());
  }
  auto on_error = warns(context_.console, "events.jsonl");
  auto known = co_await events_.open(mode_.is_new, context_.log, std::move(on_error));
  if (!known) co_return known;
  auto logs = co_await context_.volume.make_dirs(io::job_files_dir(context_.spec) + "/logs");
  if (!logs) co_return tl::unexpected(logs.error());
  auto pointed = co_await write_pointer(nullptr);
  if (!pointed) co_return tl::unexpected(pointed.error());
  context_.volume.set_deadline(usual_deadline_);

  if (context_.spec.elastic) change_log_.add(log_lines(records));
  change_log_.on_error = warns(context_.console, "host_worker_log");
  change_log_.on_foreign = [this](const std::string& moved) {
    context_.note(Note::kFailure, "log_changed",
                  fmt::format("others have changed host_worker_log: what they left is {}, and "
                              "it is written anew",
                              moved));
  };
  journal_copy_.emplace(context_.volume, io::journal_copy_file(context_.spec),
                        std::move(journal_bytes_));
  journal_copy_->on_error = warns(context_.log, "the journal's copy");
  co_return known;
}

awaitable<Result<void>> JobFiles::make_files() {
  const io::JobSpec& spec = context_.spec;
  auto aside = co_await set_old_files_aside(context_.volume, spec.job_dir, spec.job, spec.elastic);
  if (!aside) co_return tl::unexpected(aside.error());
  if (*aside) context_.console.info("The host_worker that was here is {} now", **aside);
  auto dirs = co_await context_.volume.make_dirs(io::job_files_dir(spec));
  if (!dirs) co_return dirs;
  auto written = co_await context_.volume.replace(io::job_files_dir(spec) + "/spec.json",
                                                  io::to_json_without_values(spec) + "\n", 0600);
  if (!written || !spec.elastic) co_return written;
  // What the watch has not accepted yet joins as if it was written a moment later.
  const std::string hosts = format_host_worker(spec.workers) + format_host_worker(spec.added);
  auto workers = co_await context_.volume.replace(context_.path("host_worker"), hosts);
  if (!workers) co_return workers;
  context_.console.info("Created worker host file {}", context_.path("host_worker"));
  auto log = co_await change_log_.catch_up();
  if (log)
    context_.console.info("Created worker host log file {}", context_.path("host_worker_log"));
  co_return log;
}

awaitable<Result<void>> JobFiles::write_pointer(const End* end) {
  const io::JobSpec& spec = context_.spec;
  nlohmann::json pointer{
      {"job", spec.job},       {"master", master_address_},   {"pid", ::getpid()},
      {"socket", spec.socket}, {"state_dir", spec.state_dir}, {"ended", nullptr}};
  if (end) pointer["ended"] = {{"exit_code", end->exit_code}, {"message", end->message}};
  co_return co_await context_.volume.replace(io::pointer_file(spec.job_dir), pointer.dump() + "\n");
}

// ---------------------------------------------------------------- while the job runs

awaitable<void> JobFiles::point_here() {
  const auto written = co_await write_pointer(nullptr);
  if (!written) context_.log.warn("{}", written.error().message);
}

void JobFiles::run() {
  context_.tasks.spawn(change_log_.run());
  for (EventsFile& file : events_.files()) context_.tasks.spawn(file.run());
  context_.tasks.spawn(journal_copy_->run());
}

void JobFiles::journalled(const Record& record, const wire::Frame& frame) {
  ++records_;
  journal_copy_->add(journal::append_bytes(frame.type, frame.body));
  if (context_.spec.elastic) change_log_.add(log_lines({record}));
}

Result<std::optional<JobFiles::Cut>> JobFiles::cut_journal() {
  const bool is_long = journal_->size() >= cut_from_ || records_ >= cut_from_records_;
  // A later term would not note the changes again that are left out.
  if (!is_long || !events_.is_written()) return std::nullopt;
  std::vector<Record> records;
  for (const wire::Frame& frame : journal::replay(journal_copy_->bytes()).records) {
    auto record = record_from(frame);
    if (!record) return tl::unexpected(record.error().at(journal_->path()));
    records.push_back(std::move(*record));
  }
  const std::vector<Record> kept = snapshot(records);
  std::string bytes(journal::kCutHeader);
  for (const Record& record : kept) {
    const wire::Frame frame = to_frame(record);
    bytes += journal::append_bytes(frame.type, frame.body);
  }
  const Cut cut{journal_->size(), bytes.size()};
  // Where little can be left out, the next try waits until there is more.
  cut_from_ = std::max(mode_.journal_limit, 2 * cut.after);
  cut_from_records_ = std::max<std::uint64_t>(kJournalRecords, 2 * kept.size());
  if (cut.after > cut.before / 2 && kept.size() > records_ / 2) return std::nullopt;
  if (auto replaced = journal_->replace(bytes); !replaced) {
    cut_from_ = 2 * cut.before;
    cut_from_records_ = 2 * records_;
    return tl::unexpected(replaced.error());
  }
  records_ = kept.size();
  journal_copy_->replace(std::move(bytes));
  return cut;
}

awaitable<Result<std::optional<io::LockHolder>>> JobFiles::other_holder() {
  auto holder = co_await job_lock_holder(context_.volume, context_.spec.job_dir);
  if (holder && *holder == lock_) holder->reset();
  co_return holder;
}

// ---------------------------------------------------------------- close

awaitable<void> JobFiles::close(const End& end, bool is_over) {
  const Time until = io::steady_now() + kLastLines;
  std::error_code ignored;
  std::filesystem::remove_all(io::programs_dir(context_.spec), ignored);
  if (context_.spec.elastic) change_log_.look();
  if (!co_await change_log_.finish(kLastLines))
    context_.console.warn("{} lacks its last lines: it cannot be written",
                          context_.path("host_worker_log"));
  if (!co_await events_.finish(until - io::steady_now()))
    context_.console.warn("{} lacks its last lines: it cannot be written", events_.path());
  static_cast<void>(co_await journal_copy_->finish(until - io::steady_now()));
  const bool is_written = co_await context_.volume.drain(kLastLines);
  const bool answers = is_written || context_.volume.stalled_for() < kSlowRequest;
  if (answers) {
    if (is_over) static_cast<void>(co_await write_pointer(&end));
    co_await drop_lock();
  }
  if (!is_written)
    context_.console.warn("the shared volume {}: logs in {} may lack their end",
                          answers ? "is too slow" : "does not answer", context_.spec.job_dir);
}

awaitable<void> JobFiles::drop_lock() {
  static_cast<void>(co_await drop_job_lock(context_.volume, context_.spec.job_dir, *lock_));
}

}  // namespace dt::supervisor
