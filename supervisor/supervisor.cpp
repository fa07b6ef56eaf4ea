#include "supervisor/supervisor.h"

#include <fcntl.h>
#include <openssl/rand.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/ip/udp.hpp>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "core/files/hosts.h"
#include "core/files/journal.h"
#include "core/protocol/exit_code.h"
#include "io/clock.h"
#include "io/fd.h"
#include "io/job/control_protocol.h"

namespace dt::supervisor {

using io::asio::awaitable;
using namespace std::chrono_literals;

namespace {

constexpr Duration kTick = 100ms;
constexpr Duration kLateTick = 500ms;
/// After the processes' own grace: how long agents may take to report that everything is gone.
constexpr Duration kGoodbye = 10s;
/// What a supervisor that is started again bears of the shared volume: training needs it back. Less
/// than dtlaunch waits for its readiness.
constexpr Duration kStallAtResume = 50s;
constexpr Duration kLastReach = 5s;  ///< At the end at least, for hosts whose link is not up.
/// Until a killed predecessor has let go of the journal: it may be waiting for its disk.
constexpr Duration kPredecessor = 20s;
constexpr Duration kLockLook = 2s;  ///< Between looks at who has the folder.

JobOptions job_options(const io::JobSpec& spec) {
  JobOptions o;
  static_cast<JobRules&>(o) = spec.rules;
  o.workers = spec.workers;
  o.servers = spec.servers;
  o.opaque_servers = spec.dmlc_roles;
  if (spec.dmlc_roles) o.servers.push_back(spec.workers.front());  // the scheduler
  o.needs_prepare = !spec.prepare_data.empty() || spec.require_prepared;
  o.seed = std::random_device{}();
  o.is_elastic = spec.elastic;
  o.rolls_back = io::saves_checkpoints(spec) || !spec.restore.empty();
  if (!spec.restore.empty()) o.first_epoch = Epoch(spec.restore_epoch);
  return o;
}

/// What every host needs before processes start there; empty: it may lack it.
std::string folder_to_check(const io::JobSpec& spec) {
  const bool is_shared = !spec.local && !spec.no_shared_folder && spec.sync_dst_dir.empty();
  return is_shared ? spec.cwd : std::string();
}

/// The address other machines most likely reach this one by: the source address of a packet that
/// would go out (none is sent); loopback without a network.
std::string own_address(io::asio::any_io_executor executor) {
  boost::system::error_code ec;
  io::asio::ip::udp::socket socket(executor);
  socket.open(io::asio::ip::udp::v4(), ec);
  if (!ec) socket.connect({io::asio::ip::make_address_v4("10.255.255.255"), 9}, ec);
  if (!ec) return socket.local_endpoint(ec).address().to_string();
  return "127.0.0.1";
}

/// 64 hex digits, kept in a 0600 file beside the journal so that the next term has the same.
Result<std::string> job_secret(const std::string& path) {
  if (std::ifstream in(path); in) {
    std::string text;
    in >> text;
    if (text.size() == 64) return text;
  }
  unsigned char raw[32];
  if (RAND_bytes(raw, sizeof raw) != 1)
    return fail(ErrorKind::kIo, "no random bytes for the job's secret");
  std::string hex;
  for (const unsigned char byte : raw) hex += fmt::format("{:02x}", byte);
  const io::Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd || ::write(fd.get(), hex.data(), hex.size()) != static_cast<ssize_t>(hex.size()) ||
      ::fsync(fd.get()) != 0)
    return tl::unexpected(errno_error(errno, "write " + path));
  return hex;
}

}  // namespace

std::uint32_t milliseconds(Duration d) {
  return static_cast<std::uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(d).count());
}

Supervisor::Supervisor(io::asio::io_context& context, SupervisorOptions options,
                       std::unique_ptr<launcher::Backend> backend)
    : executor_(context.get_executor()),
      options_(std::move(options)),
      spec_(options_.spec),
      backend_(std::move(backend)),
      volume_(executor_, VolumeClient::Options{options_.volume_helper}),
      group_(executor_),
      done_(executor_, io::asio::steady_timer::time_point::max()),
      folder_checks_(folder_to_check(spec_)),
      changes_(executor_) {}

/// The supervisor's own lines: to the consoles that follow, where `quiet` keeps INFO from them, and
/// to supervisor.log.
class ConsoleLog final : public io::Log {
 public:
  ConsoleLog(ControlServer& control, io::Log& own, bool quiet)
      : control_(control), own_(own), quiet_(quiet) {}
  void line(io::Level level, std::string_view text) override {
    own_.line(level, text);
    if (quiet_ && level == io::Level::kInfo) return;
    control_.console(io::console_line(level, text) + "\n", true);
  }

 private:
  ControlServer& control_;
  io::Log& own_;
  bool quiet_;
};

// ---------------------------------------------------------------- life of the job

awaitable<int> Supervisor::run() {
  group_.spawn(volume_.run());
  int code = kExitFailure;
  std::exception_ptr failure;
  try {
    code = co_await live();
  } catch (...) {
    failure = std::current_exception();
  }
  volume_.stop();
  group_.cancel();
  co_await group_.join();
  if (failure) std::rethrow_exception(failure);
  co_return code;
}

awaitable<int> Supervisor::live() {
  auto opened = co_await try_open_files();
  int code = kExitFailure;
  if (!opened) {
    if (refused_) code = kExitJobRunning;
    own_log_.error("{}", opened.error().message);
    // Nothing was started. A job that could not be taken up may still run, and keeps its folder.
    if (lock_ && !options_.resume)
      static_cast<void>(co_await drop_job_lock(volume_, spec_.job_dir, *lock_));
    static_cast<void>(say_ready(fmt::format("ERROR {} {}\n", code, opened.error().message)));
  } else {
    const bool is_heard = say_ready("READY\n");
    group_.spawn(tick_loop());
    group_.spawn(heartbeat());
    group_.spawn(notice_failure());
    group_.spawn(watch_lock());
    if (spec_.elastic) group_.spawn(host_worker_->run());
    group_.spawn(change_log_->run());
    for (EventsFile* file : story_files_->files()) group_.spawn(file->run());
    group_.spawn(journal_copy_->run());
    if (spec_.rules.checkpoint_interval > Duration{} && !spec_.servers.empty())
      group_.spawn(watch_checkpoint_place());
    pumping_ = true;  // what is posted meanwhile comes after all that the beginning asks for
    carry_out(job_->begin(term_, now()));
    pump();
    if (options_.resume)
      act(Note{Note::Kind::kInfo, "supervisor_back",
               fmt::format("the job has a supervisor again, its number {}", term_)});
    if (options_.owned && is_heard) group_.spawn(expect_owner());
    if (options_.owned && !is_heard) stop("the dtlaunch that owns the job is gone");
    if (!end_) co_await done_.async_wait(io::tok);
    // Without an end a task has failed, and with it all of them: join() throws its exception.
    if (end_) {
      co_await shut_down();
      code = end_->exit_code;
    }
  }
  co_return code;
}

bool Supervisor::say_ready(const std::string& line) {
  if (options_.ready_fd < 0) return true;
  const io::Fd fd(std::exchange(options_.ready_fd, -1));
  return ::write(fd.get(), line.data(), line.size()) >= 0;
}

awaitable<Result<void>> Supervisor::try_open_files() {
  try {
    auto opened = co_await open_files();
    co_return opened;
  } catch (const std::exception& e) {
    co_return fail(ErrorKind::kIo, "the supervisor cannot start: {}", e.what());
  }
}

awaitable<Result<void>> Supervisor::open_files() {
  auto made = io::make_private_dir(spec_.state_dir);
  if (!made) co_return made;
  std::vector<wire::Frame> frames;
  auto store = Store::open(spec_.state_dir + "/journal", frames);
  for (const Time until = io::steady_now() + kPredecessor;
       !store && store.error().kind == ErrorKind::kDenied && io::steady_now() < until;) {
    co_await io::sleep_for(50ms);
    store = Store::open(spec_.state_dir + "/journal", frames);
  }
  refused_ = !store && store.error().kind == ErrorKind::kDenied;
  if (!store) co_return tl::unexpected(store.error());
  store_.emplace(std::move(*store));
  const Duration usual = volume_.deadline();
  if (options_.resume) volume_.set_deadline(kStallAtResume);
  // Before any of the folder's files: a second job there must not touch what the first one has.
  LockHolder me = this_process(spec_.job);
  auto locked = co_await take_job_lock(volume_, spec_.job_dir, me, options_.take_over);
  refused_ = !locked && locked.error().kind == ErrorKind::kDenied;
  if (!locked) co_return tl::unexpected(locked.error());
  lock_.emplace(std::move(me));
  if (*locked) {
    own_log_.warn("{} is taken over; a supervisor that still has it is given time to notice",
                  spec_.job_dir);
    co_await io::sleep_for(2 * kLockLook);
  }

  std::vector<Record> records;
  std::string journal_bytes(journal::kHeader);
  for (const wire::Frame& frame : frames) {
    journal_bytes += journal::append_bytes(frame.type, frame.body);
    auto record = record_from(frame);
    if (!record) co_return tl::unexpected(record.error().at(store_->path()));
    if (const auto* t = std::get_if<TermBegan>(&*record)) term_ = t->term;
    records.push_back(std::move(*record));
  }
  term_ = term_.next();
  next_prepare_ = static_cast<std::uint32_t>(term_.value) << 16;
  auto secret = job_secret(spec_.state_dir + "/secret");
  if (!secret) co_return tl::unexpected(secret.error());
  secret_ = std::move(*secret);

  master_address_ = spec_.local ? "127.0.0.1" : own_address(executor_);

  ControlServer::Options control_options;
  control_options.path = spec_.socket;
  control_ = std::make_unique<ControlServer>(
      executor_, std::move(control_options),
      [this](std::string request) { return answer(std::move(request)); });
  control_->on_owner_gone = [this] {
    if (!spec_.detached) stop("the dtlaunch that owns the job is gone");
  };
  auto listening = control_->listen();
  if (!listening) co_return listening;
  group_.spawn(control_->run());
  console_ = std::make_unique<ConsoleLog>(*control_, own_log_, spec_.quiet);
  story_ = std::make_unique<Story>(*console_,
                                   [this](const std::string& line) { story_files_->add(line); });
  volume_.on_append_error = [this](const std::string& file, const Error& error) {
    own_log_.error("{}: {}", file, error.message);
  };

  if (!options_.resume) {
    auto files = co_await make_job_files();
    if (!files) co_return files;
  }
  std::optional<std::string> seen_at;
  if (spec_.elastic) seen_at = path("events.jsonl");
  story_files_ = std::make_unique<StoryFiles>(
      executor_, volume_, io::events_file(spec_.job_dir, spec_.job), std::move(seen_at));
  story_files_->on_error([this](const Error& error) {
    console_->warn("events.jsonl cannot be written now, it will catch up: {}", error.message);
  });
  const auto told = co_await story_files_->open(!options_.resume, own_log_);
  if (!told) co_return tl::unexpected(told.error());
  story_->go_on_from(told->next);
  const std::string logs = io::job_files_dir(spec_) + "/logs";
  auto logs_made = co_await volume_.make_dirs(logs);
  if (!logs_made) co_return logs_made;
  const std::string pointer =
      nlohmann::json{{"job", spec_.job},       {"master", master_address_},    {"pid", ::getpid()},
                     {"socket", spec_.socket}, {"state_dir", spec_.state_dir}, {"ended", nullptr}}
          .dump();
  auto pointed = co_await volume_.replace(io::pointer_file(spec_.job_dir), pointer + "\n");
  if (!pointed) co_return pointed;
  volume_.set_deadline(usual);

  ProcessOutput::Options output_options;
  output_options.folder = logs;
  output_options.prefix = spec_.prefix;
  output_options.limit = spec_.log_limit;
  output_ = std::make_unique<ProcessOutput>(executor_, volume_, output_options,
                                            [this](bool is_stderr, std::string_view text) {
                                              if (!spec_.quiet) control_->console(text, is_stderr);
                                            });
  group_.spawn(output_->run());
  change_log_ = std::make_unique<ChangeLogFile>(executor_, volume_, path("host_worker_log"));
  if (spec_.elastic) change_log_->add(log_lines(records));
  change_log_->on_error = [this](const Error& error) {
    console_->warn("host_worker_log cannot be written now, it will catch up: {}", error.message);
  };

  journal_copy_ = std::make_unique<JournalCopy>(executor_, volume_, io::journal_copy_file(spec_),
                                                std::move(journal_bytes));
  journal_copy_->on_error = [this](const Error& error) {
    own_log_.warn("the journal's copy cannot be written now, it will catch up: {}", error.message);
  };

  JobOptions options = job_options(spec_);
  options.is_adopted = options_.adopt;
  job_ = std::make_unique<Job>(std::move(options), records, now());
  tell_past_changes(*told);
  HostWorker::Options watch;
  watch.folder = spec_.job_dir;
  watch.watch.poll = spec_.poll_interval;
  watch.accepted = format_host_worker(spec_.workers);
  if (options_.resume) {
    // The list in force is the journal's; a file that says the same again is no news to the job.
    std::vector<Host> accepted;
    for (const HostSlots& s : job_->membership().file())
      accepted.insert(accepted.end(), s.slots, s.host);
    watch.accepted = format_host_worker(accepted);
  }
  host_worker_ = std::make_unique<
      HostWorker>(executor_, volume_, std::move(watch), [this](FileWatchResult result) {
    if (const auto* ok = std::get_if<FileAccepted>(&result)) {
      post(HostsAccepted{sum_slots(adopt(ok->lines, spec_.known_hosts))});
    } else if (const auto* no = std::get_if<FileRefused>(&result)) {
      act(Note{Note::Kind::kRefusal, "file_refused", no->why});
    } else if (std::holds_alternative<FileCleared>(result)) {
      act(Note{Note::Kind::kInfo, "file_cleared", "host_worker is again as it was last accepted"});
    }
  });
  co_return Result<void>();
}

awaitable<Result<void>> Supervisor::make_job_files() {
  auto moved = co_await set_old_files_aside(volume_, spec_.job_dir, spec_.job);
  if (!moved) co_return tl::unexpected(moved.error());
  auto dirs = co_await volume_.make_dirs(io::job_files_dir(spec_));
  if (!dirs) co_return dirs;
  auto spec = co_await volume_.replace(io::job_files_dir(spec_) + "/spec.json",
                                       io::to_json_without_values(spec_) + "\n", 0600);
  if (!spec) co_return spec;
  if (!spec_.elastic) co_return Result<void>();
  // What the watch has not accepted yet joins as if it was written a moment later.
  auto workers = co_await volume_.replace(
      path("host_worker"), format_host_worker(spec_.workers) + format_host_worker(spec_.added));
  if (!workers) co_return workers;
  console_->info("Created worker host file {}", path("host_worker"));
  auto log = co_await volume_.replace(path("host_worker_log"), "");
  if (log) console_->info("Created worker host log file {}", path("host_worker_log"));
  co_return log;
}

void Supervisor::tell_past_changes(const ToldEvents& told) {
  if (told.bytes == kAnySize) return;
  for (const PastChange& past : job_->past_changes()) {
    if (told.log_lines.count(past.note.line->seq) > 0) continue;
    Story::Place place;
    place.wall_ns = past.note.line->wall_ns;
    place.generation = past.generation.value;
    if (past.epoch) place.epoch = past.epoch->value;
    if (past.rank) place.rank = past.rank->value;
    story_->tell(past.note, place);
  }
}

awaitable<void> Supervisor::expect_owner() {
  co_await io::sleep_for(options_.owner_comes);
  if (!control_->has_owner()) stop("the dtlaunch that owns the job never came");
}

awaitable<void> Supervisor::notice_failure() {
  co_await io::asio::this_coro::throw_if_cancelled(false);
  io::asio::steady_timer never(executor_, io::asio::steady_timer::time_point::max());
  co_await never.async_wait(io::tok);
  done_.cancel();
}

awaitable<void> Supervisor::watch_lock() {
  for (;;) {
    co_await io::sleep_for(kLockLook);
    const auto holder = co_await job_lock_holder(volume_, spec_.job_dir);
    if (!holder || *holder == *lock_) continue;
    const std::string why = fmt::format("{} was taken over from {} (pid {} there)", spec_.job_dir,
                                        holder->host, holder->pid);
    console_->error("{}: everything is stopped here, and no file is touched any more", why);
    has_folder_ = false;
    volume_.stop();
    kill(why);
    co_return;
  }
}

awaitable<void> Supervisor::tick_loop() {
  for (;;) {
    co_await io::sleep_for(kTick);
    look_at_journal_room();
    if (journal_room_.is_out()) continue;
    notice_silence(io::steady_now());
    for (const Host& host : folder_checks_.overdue(io::steady_now()))
      kept_away(host, folder_checks_.silence());
    post(Tick{});
  }
}

awaitable<void> Supervisor::heartbeat() {
  constexpr int kOften = 10;
  for (int lines = 0;; ++lines) {
    co_await io::sleep_for(options_.heartbeat * (lines < kOften ? 1 : kOften));
    if (!end_) console_->info("{}", pulse_.line(*job_, io::steady_now(), uptime_s()));
  }
}

void Supervisor::notice_silence(Time now) {
  // Stopped, swapped out, waiting for a disk: what agents said meanwhile is still to be read.
  if (now - std::exchange(ticked_at_, now) > kLateTick) listens_since_ = now;
  for (auto& [host, h] : hosts_) {
    if (!h.link || !h.link->up() || h.leaving) {
      h.silent = false;
      continue;
    }
    const Time since = std::max(h.link->heard_at(), listens_since_);
    const bool silent = now - since >= spec_.rules.liveness.suspect_after;
    if (silent == std::exchange(h.silent, silent)) continue;
    if (silent)
      post(AgentSilent{host, journal_room_.job_time(since)});
    else
      post(AgentHeard{host});
  }
}

void Supervisor::stop(std::string why) {
  if (stopped_why_) return;
  stopped_why_ = why;
  if (journal_room_.is_out()) return end_unwritten(kExitInterrupted, std::move(why));
  post(StopAsked{std::move(why), kExitInterrupted});
}

void Supervisor::kill(std::string why) {
  stop(std::move(why));
  is_killed_ = true;
  for (auto& [host, h] : hosts_)
    if (h.link) h.link->shut_down(0);
}

Duration Supervisor::last_reach() const { return std::max(kLastReach, spec_.ssh.connect_timeout); }

bool Supervisor::awaits_agents(Time since) const {
  const Duration waited = io::steady_now() - since;
  return std::any_of(hosts_.begin(), hosts_.end(), [&](const auto& entry) {
    const auto& link = entry.second.link;
    if (!link || link->ended()) return false;
    return waited < (link->up() ? end_->grace + kGoodbye : last_reach());
  });
}

void Supervisor::tell_goodput() {
  const Goodput time = job_->goodput();
  if (!time.share()) return;
  Note told{Note::Kind::kInfo, "goodput", "goodput: " + time.summary()};
  told.numbers.emplace_back("goodput", *time.share());
  for (const auto& [cause, lost] : time.by_cause())
    told.numbers.emplace_back(cause + "_s", seconds(lost));
  act(told);
}

void Supervisor::reach_all_once_more() {
  for (const auto& [host, state] : job_->hosts()) {
    if (!state.had_agent || shell(host).link) continue;
    make_link(host).attach(false);
  }
}

awaitable<void> Supervisor::shut_down() {
  // Agents stop what is theirs and close; what does not answer stops by its orphan timeout.
  // Those of an earlier term are there already: their links have to be made to tell them.
  for (const Time until = io::steady_now() + last_reach();
       reattaching_ > 0 && io::steady_now() < until;)
    co_await io::sleep_for(10ms);
  const auto grace = std::chrono::duration_cast<std::chrono::milliseconds>(end_->grace);
  reach_all_once_more();
  for (auto& [host, h] : hosts_)
    if (h.link) h.link->shut_down(is_killed_ ? 0 : static_cast<std::uint32_t>(grace.count()));
  const Time begin = io::steady_now();
  while (awaits_agents(begin)) co_await io::sleep_for(20ms);
  for (auto& [host, h] : hosts_) {
    if (h.link && h.ever_attached && !h.link->ended())
      console_->warn(
          "{} did not say that everything there has ended; what is left there stops by itself "
          "after {:.0f} s (--orphan-timeout)",
          host, seconds(spec_.rules.orphan_timeout));
  }
  tell_goodput();
  if (end_->exit_code == 0)
    console_->info("{}", end_->message);
  else if (end_->exit_code == kExitInterrupted)
    console_->warn("the job was stopped: {}", end_->message);
  else
    console_->error("{}", end_->message);
  output_->close_all();
  host_worker_->stop();
  if (has_folder_) co_await close_files();
  io::JobEnded last{end_->exit_code, end_->message};
  co_await control_->end(std::move(last), kGoodbye);
  control_->stop();
}

awaitable<void> Supervisor::close_files() {
  const Time files_until = io::steady_now() + kGoodbye;
  if (!co_await change_log_->finish(kGoodbye))
    console_->warn("{} lacks its last lines: it cannot be written", path("host_worker_log"));
  if (!co_await story_files_->finish(files_until - io::steady_now()))
    console_->warn("{} lacks its last lines: it cannot be written", story_files_->path());
  static_cast<void>(co_await journal_copy_->finish(files_until - io::steady_now()));
  const std::string pointer =
      nlohmann::json{{"job", spec_.job},
                     {"master", master_address_},
                     {"pid", ::getpid()},
                     {"socket", spec_.socket},
                     {"state_dir", spec_.state_dir},
                     {"ended", {{"exit_code", end_->exit_code}, {"message", end_->message}}}}
          .dump();
  if (co_await volume_.drain(kGoodbye)) {
    static_cast<void>(co_await volume_.replace(io::pointer_file(spec_.job_dir), pointer + "\n"));
    static_cast<void>(co_await drop_job_lock(volume_, spec_.job_dir, *lock_));
  } else {
    console_->warn("the shared volume does not answer: logs in {} may lack their end",
                   spec_.job_dir);
  }
}

}  // namespace dt::supervisor
