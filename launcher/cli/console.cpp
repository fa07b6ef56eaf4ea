#include "launcher/cli/console.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>

#include <algorithm>
#include <boost/asio/signal_set.hpp>
#include <deque>
#include <filesystem>
#include <utility>

#include "core/protocol/exit_code.h"
#include "io/asio.h"
#include "io/fd.h"
#include "io/job/control_client.h"
#include "io/job/control_protocol.h"
#include "io/notice_signals.h"
#include "io/stop_signals.h"
#include "io/task_group.h"
#include "launcher/cli/terminal.h"
#include "launcher/job_programs.h"
#include "launcher/shell_word.h"
#include "launcher/supervisor_process.h"

namespace dt::launcher {
namespace {

using namespace std::chrono_literals;
using io::Level;

constexpr std::size_t kMostRestarts = 5;
constexpr auto kRestartWindow = 60s;
constexpr auto kNextTry = 2s;
constexpr auto kReapLimit = 20s;
/// TERM sooner after the first one is the same one.
constexpr auto kOneSignal = 1s;

io::Fd lock_shared(const std::string& path) {
  io::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file) ::flock(file.get(), LOCK_SH | LOCK_NB);
  return file;
}

using Started = tl::expected<std::unique_ptr<SupervisorProcess>, StartFailure>;

class Console {
 public:
  Console(boost::asio::io_context& context, io::JobSpec spec)
      : spec_(std::move(spec)),
        terminal_(context.get_executor()),
        signals_(context),
        tasks_(context.get_executor()),
        stop_wanted_(context, io::kNever) {}

  JobRun run(boost::asio::io_context& context, SupervisorStart how) {
    io::add_stop_signals(signals_);
    struct sigaction present {};
    if (::sigaction(SIGTSTP, nullptr, &present) == 0 && present.sa_handler != SIG_IGN)
      signals_.add(SIGTSTP);
    if (takes_notices_)
      for (const int number : io::kNoticeSignals)
        if (number != SIGTERM) signals_.add(number);
    tasks_.spawn(watch_signals());
    tasks_.spawn(send_stops());
    tasks_.spawn(main(how));
    context.run();
    JobRun done{exit_code_, std::nullopt};
    if (allocation_ends_) done.ordered = kExitHostsGone;
    if (stops_wanted_ > 0) done.ordered = kExitInterrupted;
    return done;
  }

 private:
  io::awaitable<void> main(SupervisorStart how) {
    try {
      exit_code_ = co_await drive(how);
    } catch (const std::exception& e) {
      say(Level::kError, "dtlaunch failed: {}", e.what());
      exit_code_ = kExitFailure;
    }
    signals_.cancel();
    tasks_.cancel();
  }

  /// The job's life as dtlaunch sees it.
  io::awaitable<int> drive(SupervisorStart how) {
    auto started = co_await SupervisorProcess::start(spec_, how);
    if (!started) {
      say(Level::kError, started.error().why);
      // A job that was to be resumed may run elsewhere: its journal stays.
      forget_job(how == SupervisorStart::kNew && started.error().exit_code == kExitJobRunning);
      co_return started.error().exit_code;
    }
    process_ = std::move(*started);
    if (process_->is_of_job()) say(Level::kInfo, kOwnPrograms);
    if (spec_.detached && stops_wanted_ == 0) {
      co_await terminal_.write(false, detached_text());  // read or not: the job runs
      co_return kExitOk;
    }
    hold_ = lock_shared(spec_file(spec_));
    for (;;) {
      auto ended = co_await follow();
      if (ended) {
        co_await process_->wait(kReapLimit);
        forget_job(false);
        explain_one_word(ended->exit_code);
        co_return ended->exit_code;
      }
      auto death = co_await process_->wait(2s);
      if (!death) {
        if (++lost_connections_ > 10) co_return give_up("it does not answer");
        continue;
      }
      const auto since = std::chrono::steady_clock::now();
      while (death) {
        if (!may_restart()) co_return give_up("it died too often");
        say(Level::kWarning, "The supervisor died ({}); starting it again, {} of {} within {} s",
            to_string(*death), restarts_.size(), kMostRestarts, kRestartWindow.count());
        auto again = co_await start_again(since);
        if (!again && again.error().exit_code == kExitJobRunning) break;  // dtctl resume's
        if (!again && !again.error().killed) co_return give_up(again.error().why);
        death = again ? std::nullopt : again.error().killed;
        if (again) process_ = std::move(*again);
      }
    }
  }

  /// A supervisor that ends with a reason, such as a stalled volume, is started again as long as
  /// the hosts go on without one.
  io::awaitable<Started> start_again(std::chrono::steady_clock::time_point since) {
    const auto until = since + spec_.rules.orphan_timeout;
    std::string told;
    for (;;) {
      auto again = co_await SupervisorProcess::start(spec_, SupervisorStart::kResume);
      if (again || again.error().killed || again.error().exit_code == kExitJobRunning ||
          std::chrono::steady_clock::now() + kNextTry > until)
        co_return again;
      if (std::exchange(told, again.error().why) != again.error().why)
        say(Level::kWarning,
            "The supervisor cannot go on yet: {}; it is tried again as long as the hosts go on "
            "without one ({} s, --orphan-timeout)",
            again.error().why, seconds(spec_.rules.orphan_timeout));
      co_await io::sleep_for(kNextTry);
    }
  }

  /// Shows the console until the job has ended; nothing when the connection ended before.
  io::awaitable<std::optional<io::JobEnded>> follow() {
    auto connected = co_await io::ControlClient::connect(process_->socket());
    if (!connected) co_return std::nullopt;
    client_ = std::move(*connected);
    auto reply = co_await client_->ask(R"({"op":"console","owner":true})");
    std::optional<io::JobEnded> ended;
    if (reply) {
      stops_sent_ = 0;          // a new supervisor may not know that its predecessor was to stop
      is_notice_sent_ = false;  // nor that the allocation ends
      stop_wanted_.cancel();
      is_connected_ = true;
      ended = co_await show_frames();
    }
    is_connected_ = false;
    client_->close();
    co_return ended;
  }

  io::awaitable<std::optional<io::JobEnded>> show_frames() {
    for (;;) {
      auto frame = co_await client_->receive();
      if (!frame) co_return std::nullopt;
      if (frame->type == io::JobEnded::kType) {
        auto ended = wire::parse<io::JobEnded>(frame->body);
        if (!ended) co_return std::nullopt;
        co_return std::move(*ended);
      }
      if (frame->type == io::ControlReply::kType) {
        const auto reply = wire::parse<io::ControlReply>(frame->body);
        if (reply && reply->json.find("\"error\"") != std::string::npos)
          say(Level::kWarning, "The supervisor says: {}", reply->json);
      }
      if (frame->type != io::Console::kType) continue;
      auto text = wire::parse<io::Console>(frame->body);
      if (!text) co_return std::nullopt;
      lost_connections_ = 0;
      const bool was_gone = terminal_.is_gone();
      const bool shown = co_await terminal_.write(text->is_stderr, std::move(text->bytes));
      if (!shown && !was_gone) want_stop(1, "output no longer read");
    }
  }

  io::awaitable<void> watch_signals() {
    for (;;) {
      auto [ec, number] = co_await signals_.async_wait(io::tok);
      if (ec) co_return;
      const bool is_notice =
          std::ranges::find(io::kNoticeSignals, number) != io::kNoticeSignals.end();
      if (takes_notices_ && is_notice && take_notice(number)) continue;
      if (number == SIGTSTP) {
        say(Level::kInfo, "The job goes on; fg shows it again");
        ::raise(SIGSTOP);
        continue;
      }
      if (!orders_.is_new(std::chrono::steady_clock::now())) continue;
      want_stop(stops_wanted_ + 1, number == SIGINT    ? "Ctrl-C"
                                   : number == SIGTERM ? "dtlaunch got TERM"
                                                       : "terminal closed (HUP)");
    }
  }

  /// The job's allocation ends: false if that is a second TERM, which is an order to stop.
  bool take_notice(int number) {
    const auto now = std::chrono::steady_clock::now();
    if (stops_wanted_ > 0) return number != SIGTERM;
    const bool is_second = term_at_ && now - *term_at_ >= kOneSignal;
    if (number == SIGTERM && is_second) return false;
    if (number == SIGTERM && !term_at_) term_at_ = now;
    if (allocation_ends_) return true;
    allocation_ends_ = now + std::chrono::nanoseconds(spec_.notice_grace);
    say(Level::kWarning,
        "{}: this allocation ends in {} s (--notice-grace); the job saves a checkpoint if it can "
        "and ends; TERM again or Ctrl-C stops it now",
        ::sigabbrev_np(number), seconds(spec_.notice_grace));
    stop_wanted_.cancel();
    return true;
  }

  [[nodiscard]] std::string notice_request() const {
    const auto left = *allocation_ends_ - std::chrono::steady_clock::now();
    return fmt::format(R"({{"op":"leave","deadline_s":{:.3f},"why":"its allocation ends",)"
                       R"("control":{}}})",
                       std::max(0.0, std::chrono::duration<double>(left).count()),
                       io::kControlVersion);
  }

  /// 1: stop; 2: at once; 3: leave. `why`: the reason of the job's end.
  void want_stop(int count, std::string_view why) {
    if (count <= stops_wanted_) return;
    stops_wanted_ = count;
    if (stop_why_.empty()) stop_why_ = why;
    if (count == 1)
      say(Level::kWarning,
          "Stopping the job: processes get TERM and up to {} s; Ctrl-C again kills them at once",
          seconds(spec_.rules.stop_grace));
    if (count == 2) say(Level::kWarning, "Killing every process of the job");
    if (count >= 3) leave();
    stop_wanted_.cancel();
  }

  io::awaitable<void> send_stops() {
    while (exit_code_ < 0) {
      if (is_connected_ && allocation_ends_ && !std::exchange(is_notice_sent_, true)) {
        const auto client = client_;
        co_await client->send(notice_request());
        continue;
      }
      if (is_connected_ && stops_sent_ < stops_wanted_) {
        stops_sent_ = stops_wanted_;
        std::string request =
            fmt::format(R"({{"op":"stop","force":{},"why":"{}"}})", stops_sent_ > 1, stop_why_);
        const auto client = client_;
        co_await client->send(std::move(request));
        continue;
      }
      co_await stop_wanted_.async_wait(io::tok);
    }
  }

  [[noreturn]] void leave() {
    say(Level::kError,
        "Leaving without waiting: the supervisor{} and processes on the hosts may still be there; "
        "clean up with: dtctl stop --force --job-dir {}",
        process_ ? fmt::format(" (pid {})", process_->pid()) : "", shell_word(spec_.job_dir));
    std::_Exit(kExitInterrupted);
  }

  bool may_restart() {
    const auto now = std::chrono::steady_clock::now();
    while (!restarts_.empty() && now - restarts_.front() > kRestartWindow) restarts_.pop_front();
    if (restarts_.size() >= kMostRestarts) return false;
    restarts_.push_back(now);
    return true;
  }

  /// The socket's folder, if nothing is in it any more; with `state`, what was written for a job
  /// that never began.
  void forget_job(bool state) {
    std::error_code ignored;
    std::filesystem::remove(
        std::filesystem::path(process_ ? process_->socket() : spec_.socket).parent_path(), ignored);
    if (state) std::filesystem::remove_all(spec_.state_dir, ignored);
  }

  void explain_one_word(int exit_code) {
    const std::string& command = spec_.command.front();
    if (exit_code == kExitCommandFailed && spec_.command.size() == 1 &&
        command.find(' ') != command.npos)
      say(Level::kError, "The command was one quoted word; write it without the quotes: {}",
          command);
  }

  int give_up(std::string_view why) {
    say(Level::kError,
        "The supervisor is lost: {}; its log is {}. Hosts stop everything by themselves within "
        "{} s (--orphan-timeout)",
        why, supervisor_log(spec_), seconds(spec_.rules.orphan_timeout));
    return kExitSupervisorLost;
  }

  std::string detached_text() const {
    const std::string folder = shell_word(spec_.job_dir);
    return fmt::format(
        "Job {} is on its way (supervisor pid {}).\n"
        "  dtctl status --job-dir {}\n"
        "  dtctl console --job-dir {}    its output from now on\n"
        "  dtctl stop --job-dir {}\n",
        spec_.job, process_->pid(), folder, folder, folder);
  }

  template <class... Args>
  void say(Level level, fmt::format_string<Args...> text, Args&&... args) {
    terminal_.say(level, fmt::format(text, std::forward<Args>(args)...));
  }
  void say(Level level, const std::string& text) { terminal_.say(level, text); }

  io::JobSpec spec_;
  Terminal terminal_;
  boost::asio::signal_set signals_;
  io::StopOrders orders_;
  io::TaskGroup tasks_;
  std::unique_ptr<SupervisorProcess> process_;
  io::Fd hold_;  ///< Shows dtctl clean that a dead supervisor is started again.
  std::shared_ptr<io::ControlClient> client_;  ///< Shared with a request being sent.
  bool is_connected_ = false;
  int lost_connections_ = 0;
  std::deque<std::chrono::steady_clock::time_point> restarts_;
  int stops_wanted_ = 0;
  int stops_sent_ = 0;
  std::string_view stop_why_;              ///< The first reason; a literal without quotes.
  boost::asio::steady_timer stop_wanted_;  ///< Cancelled to wake send_stops().
  const bool takes_notices_ = spec_.notice_grace > Duration{} && io::is_in_allocation();
  std::optional<std::chrono::steady_clock::time_point> term_at_;  ///< The first TERM, as a notice.
  std::optional<std::chrono::steady_clock::time_point> allocation_ends_;
  bool is_notice_sent_ = false;
  int exit_code_ = -1;
};

}  // namespace

JobRun run_job(const io::JobSpec& spec, SupervisorStart how) {
  ::signal(SIGPIPE, SIG_IGN);
  boost::asio::io_context context(1);
  Console console(context, spec);
  return console.run(context, how);
}

}  // namespace dt::launcher
