#include "supervisor/supervisor.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <utility>

#include "core/base/lookup.h"
#include "core/base/quantity.h"
#include "core/files/hosts.h"
#include "core/job/boundary.h"
#include "core/job/goodput.h"
#include "core/job/job.h"
#include "core/job/membership.h"
#include "core/job/notes.h"
#include "core/job/notices.h"
#include "core/protocol/exit_code.h"
#include "io/asio.h"
#include "io/clock.h"
#include "io/fd.h"
#include "io/job/control_protocol.h"
#include "io/log.h"
#include "io/task_group.h"
#include "launcher/backend/backend.h"
#include "supervisor/context/supervisor_context.h"
#include "supervisor/control/changes.h"
#include "supervisor/control/control_server.h"
#include "supervisor/control/event_log.h"
#include "supervisor/control/fleet_requests.h"
#include "supervisor/control/job_figures.h"
#include "supervisor/control/job_status.h"
#include "supervisor/control/membership_requests.h"
#include "supervisor/decisions.h"
#include "supervisor/files/job_files.h"
#include "supervisor/files/lock_watch.h"
#include "supervisor/hosts/job_hosts.h"
#include "supervisor/volume/host_worker.h"
#include "supervisor/volume/output.h"
#include "supervisor/volume/volume_client.h"

namespace dt::supervisor {

using io::awaitable;
using namespace std::chrono_literals;

namespace {

constexpr Duration kTick = 100ms;
constexpr Duration kLastWord = 10s;  ///< For the last word to the consoles.
/// "changes" is answered by then: figures change that make no event.
constexpr Duration kLongestWait = 1s;
/// A reply waits so long for room on the journal's disk.
constexpr Duration kUntilJournalled = 10s;

/// The supervisor's own lines: to the consoles that follow, and to supervisor.log. `quiet` keeps
/// INFO from the consoles.
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

class Loop final : public Supervisor {
 public:
  Loop(io::asio::any_io_executor executor, SupervisorOptions options,
       std::unique_ptr<launcher::Backend> backend)
      : executor_(std::move(executor)),
        options_(std::move(options)),
        backend_(std::move(backend)),
        volume_(executor_, {.helper = options_.volume_helper}),
        group_(executor_),
        done_(executor_, io::asio::steady_timer::time_point::max()),
        control_(executor_, {}, [this](ControlAsk ask) { return answer(std::move(ask)); }),
        console_(control_, own_log_, spec_.quiet),
        context_{.executor = executor_,
                 .spec = spec_,
                 .volume = volume_,
                 .tasks = group_,
                 .log = own_log_,
                 .console = console_,
                 .post = [this](JobEvent event) { post(std::move(event)); },
                 .tell = [this](const Note& note) { act(note); }},
        files_(context_, {.is_new = !options_.resume,
                          .by_force = options_.take_over,
                          .journal_limit = options_.journal_limit}),
        event_log_(console_, [this](const std::string& line) { files_.add_event(line); }),
        changes_(executor_),
        output_(
            volume_,
            {.folder = io::job_files_dir(spec_) + "/logs",
             .prefix = spec_.prefix,
             .shown = spec_.shown_output,
             .workers = spec_.workers.size(),
             .limit = spec_.log_limit},
            [this](bool is_stderr, std::string_view text) {
              if (!spec_.quiet) control_.console(text, is_stderr);
            },
            [this](const Host& host, const OutputRoom& room) {
              return hosts_.links().send(host, room);
            }),
        hosts_(context_, *backend_, options_.sync, output_, figures_),
        membership_(context_),
        fleet_(context_) {
    hosts_.links().on_outranked = [this](const Host& host, Term term) {
      give_folder_up(fmt::format("{} says that a supervisor of term {} has taken {} over", host,
                                 term, spec_.job_dir));
    };
    lock_watch_.on_taken = [this](const std::string& why) { give_folder_up(why); };
    output_.lead = [this]() -> std::optional<WorkerId> {
      if (!context_.job || context_.job->boundary().contributors().empty()) return std::nullopt;
      return context_.job->boundary().contributors().front();
    };
    output_.on_lead_alone = [this] {
      console_.info(
          "The job has more than {} workers: of their lines only those of rank 0 are shown "
          "(--output all: everyone's; dtctl logs)",
          ProcessOutput::kFewWorkers);
    };
  }

  // ---------------------------------------------------------------- life of the job

  awaitable<int> run() override {
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

  void stop(std::string why) override {
    hosts_.links().hurry();
    decisions_.stop(std::move(why));
  }

  void kill(std::string why) override {
    stop(std::move(why));
    volume_.make_haste();
    hosts_.links().kill_all();
  }

 private:
  /// run(), without the end of what it began.
  awaitable<int> live() {
    Result<void> opened;
    try {
      opened = co_await open_files();
    } catch (const std::exception& e) {
      opened = fail(ErrorKind::kIo, "the supervisor cannot start: {}", e.what());
    }
    if (!opened) {
      const int code = files_.is_refused() ? kExitJobRunning : kExitFailure;
      own_log_.error("{}", opened.error().message);
      // Nothing was started. A job that could not be taken up may still run, and keeps its folder.
      if (files_.has_lock() && !options_.resume) co_await files_.drop_lock();
      static_cast<void>(say_ready(fmt::format("ERROR {} {}\n", code, opened.error().message)));
      co_return code;
    }
    const bool is_heard = say_ready(fmt::format("READY {}\n", spec_.socket));
    begin_tasks();
    decisions_.begin();
    if (options_.resume)
      context_.note(Note::kInfo, "supervisor_back",
                    fmt::format("the job has a supervisor again, its number {}", context_.term));
    if (options_.owned && is_heard) group_.spawn(expect_owner());
    if (options_.owned && !is_heard) stop("the dtlaunch that owns the job is gone");
    if (!end_) co_await done_.async_wait(io::tok);
    // Without an end a task has failed, and with it all of them: join() throws its exception.
    if (!end_) co_return kExitFailure;
    co_await shut_down();
    co_return end_->exit_code;
  }

  void begin_tasks() {
    group_.spawn(tick_loop());
    group_.spawn(heartbeat());
    group_.spawn(notice_failure());
    group_.spawn(lock_watch_.run());
    group_.spawn(output_.run());
    if (spec_.elastic) group_.spawn(host_worker_->run());
    const auto is_node = [](const Host& host) { return host.via == StarterKind::kSlurm; };
    fleet_.begin(options_.resume || std::ranges::any_of(spec_.added, is_node));
    files_.run();
    if (spec_.rules.checkpoint_interval > Duration{} && !spec_.servers.empty())
      group_.spawn(hosts_.watch_place());
  }

  /// Writes the line to the starter; false if that is gone.
  bool say_ready(const std::string& line) {
    if (options_.ready_fd < 0) return true;
    const io::Fd fd(std::exchange(options_.ready_fd, -1));
    return ::write(fd.get(), line.data(), line.size()) >= 0;
  }

  awaitable<Result<void>> open_files() {
    auto records = co_await files_.open_state();
    if (!records) co_return tl::unexpected(records.error());
    auto listening = open_control();
    if (!listening) co_return listening;
    auto known = co_await files_.open_volume(*records);
    if (!known) co_return tl::unexpected(known.error());
    event_log_.go_on_from(known->next);
    JobOptions options = io::job_options(spec_);
    options.seed = std::random_device{}();
    options.is_adopted = options_.adopt;
    decisions_.replay(options, *records);
    note_past_changes(*known);
    watch_host_worker();
    co_return Result<void>();
  }

  Result<void> open_control() {
    control_.on_owner_gone = [this] {
      if (!spec_.detached) stop("the dtlaunch that owns the job is gone");
    };
    volume_.on_append_error = [this](const std::string& file, const Error& error) {
      own_log_.error("{}: {}", file, error.message);
    };
    if (auto listening = control_.listen(spec_.socket); !listening) return listening;
    spec_.socket = control_.path();
    control_.on_moved = [this] {
      spec_.socket = control_.path();
      group_.spawn(files_.point_here());
    };
    group_.spawn(control_.run());
    return {};
  }

  void watch_host_worker() {
    std::vector<Host> accepted = spec_.workers;
    if (options_.resume) {
      // The list in force is the journal's; a file with the same content is no event.
      accepted.clear();
      for (const HostSlots& s : context_.job->membership().file())
        accepted.insert(accepted.end(), s.slots, s.host);
    }
    const auto on_change = [this](FileWatchResult result) {
      if (const auto* ok = std::get_if<FileAccepted>(&result)) {
        post(HostsAccepted{sum_slots(with_known_ways(ok->lines, spec_.known_hosts))});
      } else if (const auto* no = std::get_if<FileRefused>(&result)) {
        context_.note(Note::kRefusal, "file_refused", no->why);
      } else if (std::holds_alternative<FileCleared>(result)) {
        context_.note(Note::kInfo, "file_cleared", "host_worker is again as it was last accepted");
      }
    };
    HostWorker::Options watch{.folder = spec_.job_dir,
                              .accepted = format_host_worker(accepted),
                              .watch = {.poll = spec_.poll_interval}};
    host_worker_.emplace(volume_, std::move(watch), on_change);
  }

  /// Notes changes that an earlier term has journalled and not noted.
  void note_past_changes(const KnownEvents& noted) {
    if (noted.bytes == kAnySize) return;
    for (const PastChange& past : context_.job->past_changes()) {
      const LogLine& line = *past.note.line;
      if (noted.log_lines.count(line.seq) == 0)
        event_log_.tell(past.note, {line.wall_ns, past.generation, past.epoch, past.rank});
    }
  }

  /// Ends a foreground job whose dtlaunch died before it connected to the console.
  awaitable<void> expect_owner() {
    co_await io::sleep_for(options_.owner_comes);
    if (!control_.has_owner()) stop("the dtlaunch that owns the job never came");
  }

  /// Wakes run() when a task has failed and all are cancelled.
  awaitable<void> notice_failure() {
    co_await io::asio::this_coro::throw_if_cancelled(false);
    io::asio::steady_timer never(executor_, io::asio::steady_timer::time_point::max());
    co_await never.async_wait(io::tok);
    done_.cancel();
  }

  void give_folder_up(const std::string& why) {
    if (!std::exchange(has_folder_, false)) return;
    console_.error("{}: everything is stopped here, and no file is touched any more", why);
    volume_.stop();
    kill(why);
  }

  awaitable<void> tick_loop() {
    for (;;) {
      co_await io::sleep_for(kTick);
      lock_watch_.look();
      decisions_.look_at_journal(lock_watch_.doubtful_for() > Duration{});
      look_at_output();
      if (decisions_.room().is_out()) continue;
      const Time at = io::steady_now();
      hosts_.links().tick(at, decisions_.room().job_time(at));
      post(Tick{});
    }
  }

  /// A line now and then that shows how the job goes on.
  awaitable<void> heartbeat() {
    constexpr int kOften = 10;
    for (int lines = 0;; ++lines) {
      co_await io::sleep_for(options_.heartbeat * (lines < kOften ? 1 : kOften));
      if (!end_) console_.info("{}", figures_.line(*context_.job, io::steady_now(), uptime_s()));
    }
  }

  /// Reports the share of the members' time that was not lost, and the causes of the rest.
  void note_goodput() {
    const Goodput time = context_.job->goodput();
    if (!time.share()) return;
    std::vector<std::pair<std::string, double>> numbers{{"goodput", *time.share()}};
    for (const auto& [cause, lost] : time.by_cause())
      numbers.emplace_back(cause + "_s", seconds(lost));
    context_.note(Note::kInfo, "goodput", "goodput: " + time.summary(), {}, std::move(numbers));
  }

  awaitable<void> shut_down() {
    // Agents stop what is theirs and close; what does not answer stops by its orphan timeout.
    const std::vector<Host> unconfirmed = co_await hosts_.links().shut_down(end_->grace);
    // Whose end is not waited for is not over: the next take-over waits for it.
    const bool is_over = !spec_.is_taken_over || !decisions_.was_stopped() || unconfirmed.empty();
    for (const Host& host : unconfirmed)
      console_.warn(
          "{} did not say that everything there has ended; what is left there stops by itself "
          "after {:.0f} s (--orphan-timeout)",
          host, seconds(spec_.rules.orphan_timeout));
    // Holders end with their agents; those that still wait in a queue are taken out of it.
    co_await fleet_.let_go();
    note_goodput();
    show_end();
    output_.close_all();
    host_worker_->stop();
    if (has_folder_) co_await files_.close(*end_, is_over);
    io::JobEnded last{end_->exit_code, end_->message};
    co_await control_.end(std::move(last), kLastWord);
    control_.stop();
  }

  void show_end() {
    if (end_->exit_code == 0)
      console_.info("{}", end_->message);
    else if (end_->exit_code == kExitInterrupted)
      console_.warn("the job was stopped: {}", end_->message);
    else
      console_.error("{}", end_->message);
  }

  // ---------------------------------------------------------------- events in, effects out

  void post(JobEvent event) { decisions_.post(std::move(event)); }

  void carry_out(const Effect& effect) {
    const auto carry = [this]<class E>(const E& one) {
      if constexpr (requires { act(one); })
        act(one);
      else if constexpr (!std::is_same_v<E, Append>)
        hosts_.carry_out(one);
    };
    std::visit(carry, effect);
  }

  void decided(const JobEvent& event, bool is_change) {
    const Time at = io::steady_now();
    if (is_any_of<NoticeGiven, HostsAccepted>(event)) fleet_.look();
    figures_.look(*context_.job, at);
    if (const auto news = figures_.news(*context_.job, at)) act(*news);
    if (is_change) changes_.note();
  }

  /// Notes when output waits too long for the shared volume, and when that is over.
  void look_at_output() {
    const VolumeClient::Waiting waiting = volume_.waiting();
    const OutputDelay::News news = output_delay_.look(waiting.output_age);
    if (news == OutputDelay::News::kBegins)
      context_.note(
          Note::kFailure, "output_delayed",
          fmt::format("the shared volume is slow: {:.1f} MB of output for {} wait to be written, "
                      "the oldest for {:.0f} s; who writes more waits, unless the volume takes "
                      "nothing at all: then the oldest is dropped",
                      static_cast<double>(waiting.output_bytes) / 1e6,
                      count_text(waiting.appends, "file"), seconds(waiting.output_age)));
    if (news == OutputDelay::News::kOver)
      context_.note(Note::kInfo, "output_caught_up",
                    "output is written to the shared volume without delay again");
  }

  void act(const ReleaseHost& e) {
    hosts_.carry_out(e);
    decisions_.released(e.host);
    fleet_.look();
  }

  void act(const Note& e) {
    EventLog::Place place{e.line ? e.line->wall_ns : io::wall_now()};
    if (context_.job) {
      const Boundary& view = context_.job->boundary();
      place.generation = view.generation();
      place.epoch = view.epoch();
      if (e.worker) place.rank = view.rank_of(*e.worker);
    }
    event_log_.tell(e, place);
    if (e.what == "worker_ended") show_end_of(e);
    changes_.note();
  }

  /// The last lines of a worker that has failed, unless it was stopped for a new group. Once the
  /// job ends, workers' ends are not noted.
  void show_end_of(const Note& ended) {
    const auto has_failed = [](const auto& number) {
      return number.first == "code" && number.second != 0;
    };
    if (ended.worker && !context_.job->group_stops() &&
        std::ranges::any_of(ended.numbers, has_failed))
      output_.show_end_of(*ended.worker);
  }

  void act(const End& e) {
    if (end_) return;
    end_ = e;
    hosts_.links().stop_reaching();
    done_.cancel();
  }

  // ---------------------------------------------------------------- requests

  [[nodiscard]] double uptime_s() const { return seconds(io::steady_now() - started_); }

  [[nodiscard]] std::string status() const {
    const Time at = io::steady_now();
    const double own = uptime_s();
    const JournalRoom& room = decisions_.room();
    const auto began = io::job_began(spec_.job);
    const double wall_s = static_cast<double>(io::wall_now()) / 1e9;
    io::Status known;
    known.term = context_.term.value;
    known.uptime_s = began ? std::max(own, wall_s - static_cast<double>(*began)) : own;
    known.supervisor_s = own;
    known.log_foreign = files_.foreign_log();
    known.fleet = fleet_.status();
    known.journal = {seconds(room.waited(at)),
                     room.is_out() ? room.why() : files_.journal().shortage()};
    const VolumeClient::Waiting waiting = volume_.waiting();
    known.volume = {.stalled_s = seconds(volume_.stalled_for()),
                    .queue_age_s = seconds(waiting.age),
                    .lock_doubtful_s = seconds(lock_watch_.doubtful_for()),
                    .dropped_bytes = volume_.dropped_bytes(),
                    .queue_length = waiting.requests + waiting.appends,
                    .queue_bytes = waiting.output_bytes};
    const auto reach = [this](const Host& host) -> HostReach {
      const HostLink& h = hosts_.links().at(host);
      return {h.link && h.link->up(), backend_->doing(host), h.reach_command};
    };
    return status_json({.spec = spec_,
                        .job = *context_.job,
                        .processes = hosts_.processes(),
                        .hosts = hosts_.notes(),
                        .stopping = end_.has_value(),
                        .now = room.job_time(at),
                        .figures_now = at,
                        .file_refusal = host_worker_->state().refusal(),
                        .figures = figures_,
                        .kept_out = control_.kept_out(),
                        .reach = reach},
                       std::move(known));
  }

  awaitable<std::string> answer(ControlAsk ask) {
    if (ask.op == Op::kStop) {
      if (ask.force)
        kill(ask.why);
      else
        stop(ask.why);
      co_return nlohmann::json{{"ok", true}}.dump();
    }
    if (!context_.job) co_return error_reply("the supervisor is starting: try again");
    if (ask.op == Op::kStatus) co_return status();
    if (ask.op == Op::kChanges) {
      const std::uint64_t number = co_await changes_.after(ask.from, kLongestWait);
      co_return nlohmann::json{{"ok", true}, {"changes", number}}.dump();
    }
    if (ask.op == Op::kEvents) co_return event_log_.events_json(ask.from);
    if (ask.op == Op::kFleet) co_return co_await fleet_.answer(std::move(ask));
    // A machine that is gone is no wish but a fact: an end waits for it no longer.
    if (!ask.machine_is_gone && (end_ || context_.job->ending()))
      co_return error_reply("the job is ending");
    if (ask.op == Op::kLeave) co_return co_await when_journalled(membership_.leave(ask));
    if (ask.op == Op::kGrow || ask.op == Op::kShrink)
      co_return co_await fleet_.resize(std::move(ask));
    co_return co_await edit_host_worker(std::move(ask));  // kAdd, kRemove, kReplace
  }

  awaitable<std::string> edit_host_worker(ControlAsk ask) {
    const auto host = membership_.named_host(ask.machine_is_gone ? ask.host : std::nullopt);
    if (host && *host) hosts_.links().machine_gone(**host);
    auto edited = co_await membership_.edit(std::move(ask));
    if (edited) host_worker_->nudge();
    const std::string why_not = not_open(*context_.job, spec_, uptime_s());
    if (edited && !why_not.empty()) edited = why_not;
    co_return co_await when_journalled(std::move(edited));
  }

  /// The reply to a change, once it is journalled: before, the supervisor's end would lose it.
  awaitable<std::string> when_journalled(Result<std::string> done) {
    if (!done) co_return error_reply(done.error().message);
    const JournalRoom& room = decisions_.room();
    const Time until = io::steady_now() + kUntilJournalled;
    while (room.is_out() && io::steady_now() < until)
      co_await changes_.after(changes_.number(), until - io::steady_now());
    if (room.is_out())
      co_return error_reply(
          fmt::format("{}: it is done when that can be written, unless the supervisor ends before",
                      room.why()));
    if (decisions_.has_failed()) co_return error_reply("the job ends: " + end_->message);
    nlohmann::json reply{{"ok", true}};
    if (!done->empty()) reply["note"] = *done;
    co_return reply.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }

  io::asio::any_io_executor executor_;
  SupervisorOptions options_;
  io::JobSpec& spec_ = options_.spec;
  std::unique_ptr<launcher::Backend> backend_;
  io::FdLog own_log_{STDERR_FILENO};
  VolumeClient volume_;
  io::TaskGroup group_;
  io::asio::steady_timer done_;
  ControlServer control_;
  ConsoleLog console_;
  SupervisorContext context_;

  JobFiles files_;
  LockWatch lock_watch_{context_, files_};
  Decisions decisions_{
      context_,
      files_,
      {.carry_out = [this](const Effect& effect) { carry_out(effect); },
       .decided = [this](const JobEvent& event, bool is_change) { decided(event, is_change); }}};
  EventLog event_log_;
  Changes changes_;
  JobFigures figures_;
  ProcessOutput output_;
  OutputDelay output_delay_;
  JobHosts hosts_;
  MembershipRequests membership_;
  FleetRequests fleet_;
  std::optional<HostWorker> host_worker_;

  std::optional<End> end_;
  bool has_folder_ = true;  ///< No other supervisor has taken it over.
  Time started_ = io::steady_now();
};

}  // namespace

std::unique_ptr<Supervisor> make_supervisor(io::asio::io_context& context,
                                            SupervisorOptions options,
                                            std::unique_ptr<launcher::Backend> backend) {
  return std::make_unique<Loop>(context.get_executor(), std::move(options), std::move(backend));
}

}  // namespace dt::supervisor
