#include "supervisor/supervisor.h"

#include <unistd.h>

#include <algorithm>
#include <boost/asio/ip/udp.hpp>
#include <chrono>
#include <iterator>
#include <random>
#include <utility>

#include "core/files/hosts.h"
#include "core/protocol/exit_code.h"
#include "io/fd.h"
#include "io/job/control_protocol.h"
#include "supervisor/process_facts.h"

namespace dt::supervisor {

using io::asio::awaitable;
using namespace std::chrono_literals;

namespace {

constexpr Duration kTick = 100ms;
constexpr Duration kLastWord = 10s;  ///< For the last word to the consoles.

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

ControlServer::Options control_options(const io::JobSpec& spec) {
  ControlServer::Options options;
  options.path = spec.socket;
  return options;
}

ProcessOutput::Options output_options(const io::JobSpec& spec) {
  ProcessOutput::Options options;
  options.folder = io::job_files_dir(spec) + "/logs";
  options.prefix = spec.prefix;
  options.limit = spec.log_limit;
  return options;
}

}  // namespace

Supervisor::Supervisor(io::asio::io_context& context, SupervisorOptions options,
                       std::unique_ptr<launcher::Backend> backend)
    : executor_(context.get_executor()),
      options_(std::move(options)),
      spec_(options_.spec),
      backend_(std::move(backend)),
      volume_(executor_, VolumeClient::Options{options_.volume_helper}),
      group_(executor_),
      done_(executor_, io::asio::steady_timer::time_point::max()),
      shell_{executor_,
             spec_,
             volume_,
             group_,
             own_log_,
             [this](JobEvent event) { post(std::move(event)); },
             [this](const Note& note) { act(note); }},
      files_(shell_),
      control_(executor_, control_options(spec_),
               [this](std::string request) { return answer(std::move(request)); }),
      console_(control_, own_log_, spec_.quiet),
      event_log_(console_, [this](const std::string& line) { files_.add_event(line); }),
      changes_(executor_),
      output_(executor_, volume_, output_options(spec_),
              [this](bool is_stderr, std::string_view text) {
                if (!spec_.quiet) control_.console(text, is_stderr);
              }),
      links_(executor_, spec_, *backend_, group_, shell_.post),
      prepares_(shell_, links_, output_,
                [this](ProcessId process, const Host& host) { return facts_for(process, host); }) {}

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
  if (!opened) {
    const int code = files_.is_refused() ? kExitJobRunning : kExitFailure;
    own_log_.error("{}", opened.error().message);
    // Nothing was started. A job that could not be taken up may still run, and keeps its folder.
    if (files_.has_lock() && !options_.resume) co_await files_.drop_lock();
    static_cast<void>(say_ready(fmt::format("ERROR {} {}\n", code, opened.error().message)));
    co_return code;
  }
  const bool is_heard = say_ready("READY\n");
  begin_tasks();
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
  if (!end_) co_return kExitFailure;
  co_await shut_down();
  co_return end_->exit_code;
}

void Supervisor::begin_tasks() {
  group_.spawn(tick_loop());
  group_.spawn(heartbeat());
  group_.spawn(notice_failure());
  group_.spawn(watch_lock());
  group_.spawn(output_.run());
  if (spec_.elastic) group_.spawn(host_worker_->run());
  files_.run();
  if (spec_.rules.checkpoint_interval > Duration{} && !spec_.servers.empty())
    group_.spawn(checkpoints_->watch_place(term_));
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
  const JobFiles::Mode mode{!options_.resume, options_.take_over};
  auto state = co_await files_.open_state(mode);
  if (!state) co_return tl::unexpected(state.error());
  master_address_ = spec_.local ? "127.0.0.1" : own_address(executor_);
  auto listening = open_control();
  if (!listening) co_return listening;
  auto noted = co_await files_.open_volume(mode, *state, console_, master_address_);
  if (!noted) co_return tl::unexpected(noted.error());
  event_log_.go_on_from(noted->next);
  begin_job(*state);
  note_past_changes(*noted);
  watch_host_worker();
  co_return Result<void>();
}

Result<void> Supervisor::open_control() {
  control_.on_owner_gone = [this] {
    if (!spec_.detached) stop("the dtlaunch that owns the job is gone");
  };
  volume_.on_append_error = [this](const std::string& file, const Error& error) {
    own_log_.error("{}: {}", file, error.message);
  };
  auto listening = control_.listen();
  if (listening) group_.spawn(control_.run());
  return listening;
}

void Supervisor::begin_job(const JobFiles::State& state) {
  term_ = state.term;
  secret_ = state.secret;
  JobOptions options = job_options(spec_);
  options.is_adopted = options_.adopt;
  job_ = std::make_unique<Job>(std::move(options), state.records, now());
  checkpoints_.emplace(shell_, links_, prepares_, *job_);
  reports_.emplace(shell_, links_, prepares_, *checkpoints_, output_, pulse_);
  editor_.emplace(shell_, *job_);
  prepares_.begin(term_);
  links_.begin(*job_, *reports_, {term_, options_.sync});
}

void Supervisor::watch_host_worker() {
  HostWorker::Options watch;
  watch.folder = spec_.job_dir;
  watch.watch.poll = spec_.poll_interval;
  watch.accepted = format_host_worker(spec_.workers);
  if (options_.resume) {
    // The list in force is the journal's; a file with the same content is no event.
    std::vector<Host> accepted;
    for (const HostSlots& s : job_->membership().file())
      accepted.insert(accepted.end(), s.slots, s.host);
    watch.accepted = format_host_worker(accepted);
  }
  const auto on_change = [this](FileWatchResult result) {
    if (const auto* ok = std::get_if<FileAccepted>(&result)) {
      post(HostsAccepted{sum_slots(with_known_ports(ok->lines, spec_.known_hosts))});
    } else if (const auto* no = std::get_if<FileRefused>(&result)) {
      act(Note{Note::Kind::kRefusal, "file_refused", no->why});
    } else if (std::holds_alternative<FileCleared>(result)) {
      act(Note{Note::Kind::kInfo, "file_cleared", "host_worker is again as it was last accepted"});
    }
  };
  host_worker_ = std::make_unique<HostWorker>(executor_, volume_, std::move(watch), on_change);
}

void Supervisor::note_past_changes(const KnownEvents& noted) {
  if (noted.bytes == kAnySize) return;
  for (const PastChange& past : job_->past_changes()) {
    if (noted.log_lines.count(past.note.line->seq) > 0) continue;
    EventLog::Place place;
    place.wall_ns = past.note.line->wall_ns;
    place.generation = past.generation.value;
    if (past.epoch) place.epoch = past.epoch->value;
    if (past.rank) place.rank = past.rank->value;
    event_log_.tell(past.note, place);
  }
}

awaitable<void> Supervisor::expect_owner() {
  co_await io::sleep_for(options_.owner_comes);
  if (!control_.has_owner()) stop("the dtlaunch that owns the job never came");
}

awaitable<void> Supervisor::notice_failure() {
  co_await io::asio::this_coro::throw_if_cancelled(false);
  io::asio::steady_timer never(executor_, io::asio::steady_timer::time_point::max());
  co_await never.async_wait(io::tok);
  done_.cancel();
}

awaitable<void> Supervisor::watch_lock() {
  for (;;) {
    co_await io::sleep_for(JobFiles::kLockLook);
    const auto holder = co_await files_.other_holder();
    if (!holder) continue;
    const std::string why = fmt::format("{} was taken over from {} (pid {} there)", spec_.job_dir,
                                        holder->host, holder->pid);
    console_.error("{}: everything is stopped here, and no file is touched any more", why);
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
    links_.tick([this](Time at) { return journal_room_.job_time(at); });
    post(Tick{});
  }
}

awaitable<void> Supervisor::heartbeat() {
  constexpr int kOften = 10;
  for (int lines = 0;; ++lines) {
    co_await io::sleep_for(options_.heartbeat * (lines < kOften ? 1 : kOften));
    if (!end_) console_.info("{}", pulse_.line(*job_, io::steady_now(), uptime_s()));
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
  links_.kill_all();
}

void Supervisor::note_goodput() {
  const Goodput time = job_->goodput();
  if (!time.share()) return;
  Note note{Note::Kind::kInfo, "goodput", "goodput: " + time.summary()};
  note.numbers.emplace_back("goodput", *time.share());
  for (const auto& [cause, lost] : time.by_cause())
    note.numbers.emplace_back(cause + "_s", seconds(lost));
  act(note);
}

awaitable<void> Supervisor::shut_down() {
  // Agents stop what is theirs and close; what does not answer stops by its orphan timeout.
  const std::vector<Host> unconfirmed = co_await links_.shut_down(end_->grace, is_killed_);
  for (const Host& host : unconfirmed)
    console_.warn(
        "{} did not say that everything there has ended; what is left there stops by itself after "
        "{:.0f} s (--orphan-timeout)",
        host, seconds(spec_.rules.orphan_timeout));
  note_goodput();
  show_end();
  output_.close_all();
  host_worker_->stop();
  if (has_folder_) co_await files_.close(*end_, console_);
  io::JobEnded last{end_->exit_code, end_->message};
  co_await control_.end(std::move(last), kLastWord);
  control_.stop();
}

void Supervisor::show_end() {
  if (end_->exit_code == 0)
    console_.info("{}", end_->message);
  else if (end_->exit_code == kExitInterrupted)
    console_.warn("the job was stopped: {}", end_->message);
  else
    console_.error("{}", end_->message);
}

// ---------------------------------------------------------------- events in, effects out

Instant Supervisor::now() const {
  return {journal_room_.job_time(io::steady_now()), io::wall_now()};
}

void Supervisor::post(JobEvent event) {
  if (journal_room_.is_out() && !JournalRoom::matters(event)) return;
  events_.push_back(std::move(event));
  if (!pumping_ && job_) pump();
}

void Supervisor::pump() {
  pumping_ = true;
  while (!events_.empty() && !journal_room_.is_out()) {
    const JobEvent event = std::move(events_.front());
    events_.pop_front();
    const Instant then = now();
    const std::vector<Effect> effects = job_->step(event, then);
    carry_out(effects);
    pulse_.look(*job_, io::steady_now());
    // A tick without an effect changes nothing that a client can wait for.
    if (!effects.empty() || !std::holds_alternative<Tick>(event)) changes_.note();
    if (journal_failed_) events_.clear();
  }
  pumping_ = false;
}

void Supervisor::carry_out(std::vector<Effect> effects) {
  for (auto e = effects.begin(); e != effects.end(); ++e) {
    if (journal_failed_) return;
    const auto* record = std::get_if<Append>(&*e);
    if (!record) {
      const auto carry = [this]<class E>(const E& one) {
        if constexpr (!std::is_same_v<E, Append>) act(one);
      };
      std::visit(carry, *e);
      continue;
    }
    const auto appended = append(*record);
    // An end needs no room: who takes the job up again finds nothing alive.
    if (appended || journal_failed_ || std::holds_alternative<JobEnding>(record->record)) continue;
    if (stopped_why_) return end_unwritten(kExitInterrupted, *stopped_why_);
    std::vector<Effect> rest(std::make_move_iterator(e), std::make_move_iterator(effects.end()));
    journal_room_.hold(std::move(rest), appended.error().message, io::steady_now());
    act(Note{Note::Kind::kFailure, "journal_full",
             fmt::format("{}: nothing is decided until it can be written; training goes on to the "
                         "next boundary and waits there",
                         appended.error().message)});
    return;
  }
}

Result<void> Supervisor::append(const Append& e) {
  const wire::Frame frame = to_frame(e.record);
  auto appended = files_.journal().append(frame.type, frame.body);
  if (!appended && files_.journal().is_full()) return appended;
  if (!appended) {
    console_.error("{}: the journal cannot be written, the job stops", appended.error().message);
    end_unwritten(kExitFailure, appended.error().message);
    return appended;
  }
  files_.journalled(e.record, frame);
  return {};
}

void Supervisor::look_at_journal_room() {
  const Time at = io::steady_now();
  if (const std::string little = journal_room_.news(files_.journal().shortage()); !little.empty())
    act(Note{Note::Kind::kFailure, "journal_room_low",
             fmt::format("{}: when that is used up, the job waits at its next boundary", little)});
  if (!journal_room_.is_due(at)) return;
  const auto appended = append(journal_room_.first());
  if (journal_failed_) return;
  if (!appended) return journal_room_.put_off(appended.error().message, at);
  act(Note{Note::Kind::kInfo, "journal_written",
           fmt::format("the journal can be written again, after {:.0f} s: the job goes on",
                       seconds(journal_room_.waited(at)))});
  pumping_ = true;
  carry_out(journal_room_.let_go(at));
  pump();
}

void Supervisor::end_unwritten(int exit_code, std::string why) {
  // Nothing may happen that is not journalled: this supervisor carries nothing out any more.
  journal_failed_ = true;
  journal_room_.drop();
  events_.clear();
  if (end_) return;
  Note ended{Note::Kind::kMeasure, "job_ended", why};
  ended.numbers.emplace_back("code", exit_code);
  act(ended);
  act(End{exit_code, std::move(why), spec_.rules.stop_grace});
}

void Supervisor::act(const ReleaseHost& e) {
  links_.release(e.host);
  prepares_.forget(e.host);
}

launcher::ProcessFacts Supervisor::facts_for(ProcessId process, const Host& host) const {
  return process_facts(spec_, *job_, links_, secret_, process, host);
}

void Supervisor::act(const StartWorker& e) {
  StartProcess start;
  start.process = {Role::kWorker, e.worker.value};
  start.argv = spec_.command;
  start.cwd = shell_.folder();
  if (e.rank == Rank(0)) start.ports = spec_.dmlc_roles ? Port::kMaster : Port::kBoth;
  launcher::ProcessFacts facts = facts_for(start.process, e.host);
  facts.rank = e.rank;
  facts.num_workers = e.world_size;
  facts.epoch = e.epoch;
  facts.newcomer = e.newcomer;
  start_process(e.host, std::move(start), facts);
}

void Supervisor::act(const StartServer& e) {
  StartProcess start;
  start.process = {Role::kServer, e.server.value};
  start.argv = {"dtserver"};
  start.cwd = spec_.dmlc_roles ? shell_.folder() : spec_.cwd;
  launcher::ProcessFacts facts = facts_for(start.process, e.host);
  facts.index = e.index;
  facts.checkpoint = e.checkpoint;
  if (spec_.dmlc_roles) {
    facts.is_scheduler = e.index == spec_.servers.size();
    start.argv = spec_.command;
    if (facts.is_scheduler) start.ports = Port::kRoot;
  }
  start_process(e.host, std::move(start), facts);
}

void Supervisor::start_process(const Host& host, StartProcess start,
                               const launcher::ProcessFacts& facts) {
  start.env = launcher::environment(spec_, facts);
  output_.open(start.process, host);
  links_.send(host, start);
}

void Supervisor::act(const Stop& e) {
  const auto grace = std::chrono::duration_cast<std::chrono::milliseconds>(e.grace).count();
  links_.send(e.host, StopProcess{e.process, static_cast<std::uint32_t>(grace)});
}

void Supervisor::act(const Acknowledge& e) {
  reports_->forget(e.process);
  links_.send(e.host, AckExit{e.process});
}

void Supervisor::act(const Note& e) {
  EventLog::Place place;
  place.wall_ns = e.line ? e.line->wall_ns : io::wall_now();
  if (job_) {
    const Boundary& view = job_->boundary();
    place.generation = view.generation().value;
    if (view.epoch()) place.epoch = view.epoch()->value;
    if (const auto rank = e.worker ? view.rank_of(*e.worker) : std::nullopt)
      place.rank = rank->value;
  }
  pulse_.told(e);
  event_log_.tell(e, place);
  changes_.note();
}

void Supervisor::act(const End& e) {
  if (end_) return;
  end_ = e;
  links_.stop_reaching();
  done_.cancel();
}

}  // namespace dt::supervisor
