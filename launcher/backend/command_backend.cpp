#include "launcher/backend/command_backend.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <map>

#include "core/base/lookup.h"
#include "core/launch/allocation.h"
#include "core/launch/holders.h"
#include "io/asio.h"
#include "io/last_words.h"
#include "io/program_output.h"
#include "io/within.h"
#include "launcher/backend/child_stream.h"
#include "launcher/backend/lines_stream.h"
#include "launcher/shell_word.h"

namespace dt::launcher {
namespace {

using io::awaitable;

/// Before the output of a script.
constexpr std::string_view kBegun = "dtlaunch:begun";
/// Of mpirun and squeue, which itself tries to reach Slurm for about 10 s.
constexpr Duration kAnswerDeadline = std::chrono::seconds(20);
constexpr Duration kLookup = std::chrono::seconds(5);

/// A literal address at which other hosts reach `name`; empty: the resolver knows none.
std::string resolve(const std::string& name) {
  io::asio::io_context context;
  boost::system::error_code ec;
  for (const auto& found : io::asio::ip::tcp::resolver(context).resolve(name, "", ec))
    if (const auto address = found.endpoint().address(); !address.is_loopback())
      return address.to_string();
  return {};
}

/// Output of a short command of this machine; where there is none, what it said instead.
awaitable<Result<std::string>> output_of(std::string name, std::vector<std::string> argv) {
  io::ProgramCall call{.argv = std::move(argv),
                       .name = std::move(name),
                       .is_without = changes_squeue,
                       .deadline = kAnswerDeadline};
  auto output = co_await io::awaited_output(std::move(call));
  if (!output) co_return tl::unexpected(output.error());
  co_return output->out.empty() ? std::move(output->words) : std::move(output->out);
}

/// The shell on the host runs `script` in its own place, so that what comes by stdin afterwards
/// belongs to the script: a shell takes whole command lists, and not a byte more is sent before
/// the answer.
awaitable<Result<FirstLine>> first_answer(ExecStream& stream, std::string script,
                                          std::string program) {
  const std::string input =
      fmt::format("echo {}; exec {} -c {}\n", kBegun, kHostShell, shell_word(script));
  auto sent = co_await stream.write(input);  // the program's end, if it is that, has the reason
  co_return co_await read_answer(stream, std::string(kBegun), program);
}

}  // namespace

/// Runs scripts on hosts by the starter's program.
class StarterExec final : public Exec {
 public:
  StarterExec(const io::asio::any_io_executor& executor, Starter starter, io::Log& log,
              const CommandLimits& limits)
      : starter_(std::move(starter)),
        limits_(&limits),
        log_(&log),
        window_(std::make_shared<io::Semaphore>(executor, limits.window)),
        asking_(std::make_shared<io::Semaphore>(executor, 1)) {}

  awaitable<Result<ExecStreamPtr>> open(Host host, std::string script) override {
    if (!host.user.empty() || host.port != 0)
      co_return fail(ErrorKind::kInvalid, "{}: {} reaches a host by its name alone", host,
                     to_text(starter_.kind));
    auto starter = co_await starter_of(host);
    if (!starter) co_return tl::unexpected(starter.error());
    auto command = starter_command(*starter, host.name);
    if (!command) co_return tl::unexpected(command.error());
    const std::string program = command->argv.front();
    auto usable = co_await check_program();
    if (!usable) co_return tl::unexpected(usable.error().at(to_string(host)));
    const auto turn = co_await window_->acquire();
    const auto without = [&command](std::string_view name) { return is_without(*command, name); };
    const ChildProgram child{.argv = command->argv, .is_without = without, .with = command->with};
    auto stream = child_stream(co_await io::asio::this_coro::executor, child);
    if (!stream) {
      const char* package = traits_of(starter_).package;
      const bool is_missing = stream.error().kind == ErrorKind::kInvalid && *package != '\0';
      co_return fail(stream.error().kind, "{}: {}{}", host, stream.error().message,
                     is_missing ? fmt::format(" (Debian: apt-get install {})", package) : "");
    }
    auto begun = co_await io::within(limits_->start, begin(host, **stream, script, program),
                                     fmt::format("{}: no sign of the command's start", program));
    waiting_.erase(host);
    if (!begun) {
      Error error = begun.error();
      const std::string words = (*stream)->stderr_tail();
      if (error.kind == ErrorKind::kTimeout && !words.empty())
        error.message += ": " + io::on_one_line(words);
      if (const std::string advice = remedy(starter_.kind, words); !advice.empty())
        error.message += ": " + advice;
      co_return tl::unexpected(error.at(to_string(host)));
    }
    // A process that srun forks ends the step when srun is killed, as it is when this process dies:
    // the agent, which the step has started, would not live on.
    if (starter_.kind == StarterKind::kSlurm) (*stream)->kill_children();
    co_await find_address(host);
    co_return unread(std::move(*stream), std::move(begun->rest));
  }

  [[nodiscard]] std::string address(const Host& host) const override {
    return value_in(addresses_, host);
  }
  [[nodiscard]] std::string doing(const Host& host) const { return value_in(waiting_, host); }
  [[nodiscard]] const Starter& starter() const { return starter_; }

 private:
  /// Not every mpirun can be used.
  awaitable<Result<void>> check_program() {
    if (starter_.kind != StarterKind::kMpi) co_return Result<void>();
    const auto turn = co_await asking_->acquire();
    if (is_checked_) co_return Result<void>();
    std::vector<std::string> argv = {"mpirun", "--version"};
    auto text = co_await output_of("mpirun --version", std::move(argv));
    if (!text) co_return tl::unexpected(text.error());
    auto usable = check_mpirun(*text);
    is_checked_ = usable.has_value();
    co_return usable;
  }

  /// The starter, with the Slurm job that the host is in: a node of the dtlaunch job's own, else a
  /// holder's.
  awaitable<Result<Starter>> starter_of(Host host) {
    Starter starter = starter_;
    const auto& own = starter_.nodes;
    const bool is_own = std::ranges::count(own, host.name) > 0;
    if (starter_.kind != StarterKind::kSlurm || starter_.holders_of.empty() || is_own)
      co_return std::move(starter);
    const auto called = std::chrono::steady_clock::now();
    const auto turn = co_await asking_->acquire();
    const auto holder_there = [this, &host]() -> const Machine* {
      return holders_ ? holder_on(*holders_, host.name) : nullptr;
    };
    // One that a former answer lacks may be newer.
    const bool is_good = holder_there() ? called - asked_ < limits_->queue_holds : asked_ > called;
    if (!is_good) {
      const auto begun = std::chrono::steady_clock::now();
      auto words = list_holders_words(starter_.holders_of);
      words.insert(words.begin(), "squeue");
      auto answer = co_await output_of("squeue", std::move(words));
      const auto state = co_await io::asio::this_coro::cancellation_state;
      if (state.cancelled() != io::asio::cancellation_type::none)
        co_return fail(ErrorKind::kClosed, "{}: cancelled", host);
      asked_ = begun;
      holders_ =
          answer ? parse_holders(*answer, starter_.holders_of) : tl::unexpected(answer.error());
    }
    if (const Machine* holder = holder_there())
      starter.job = holder->id;
    else if (starter.job.empty())  // srun would ask for an allocation of its own
      co_return fail(ErrorKind::kUnavailable, "{}: {}", host,
                     holders_
                         ? fmt::format("no Slurm job of this dtlaunch job runs there (squeue -n "
                                       "{}): dtctl grow asks for nodes",
                                       holders_name(starter_.holders_of))
                         : holders_.error().message);
    co_return std::move(starter);
  }

  awaitable<Result<FirstLine>> begin(Host host, ExecStream& stream, std::string script,
                                     std::string program) {
    using namespace io::asio::experimental::awaitable_operators;
    auto race =
        first_answer(stream, std::move(script), program) || watch_delay(host, stream, program);
    auto first = co_await std::move(race);
    if (first.index() == 0) co_return std::move(std::get<0>(first));
    co_return fail(ErrorKind::kClosed, "given up");
  }

  awaitable<void> watch_delay(Host host, ExecStream& stream, std::string program) {
    co_await io::sleep_for(limits_->patience);
    const std::string words = io::on_one_line(stream.stderr_tail());
    if (waits_for_host(starter_.kind, words)) {
      waiting_[host] = fmt::format("{} waits: {}", program, words);
      log_->warn("{}: {} waits: {}: {}", host, program, words, remedy(starter_.kind, words));
    }
    io::asio::steady_timer never(co_await io::asio::this_coro::executor, io::kNever);
    co_await never.async_wait(io::tok);
  }

  awaitable<void> find_address(Host host) {
    if (addresses_.contains(host)) co_return;
    std::function<Result<std::string>()> work = [name = host.name]() -> Result<std::string> {
      return resolve(name);
    };
    const auto address = co_await lookups_.finish_within(kLookup, std::move(work), host.name);
    addresses_[host] = address.value_or("");
  }

  Starter starter_;
  const CommandLimits* limits_;
  io::Log* log_;
  io::ThreadPool lookups_{4};
  std::shared_ptr<io::Semaphore> window_;
  std::shared_ptr<io::Semaphore> asking_;  ///< mpirun or squeue.
  bool is_checked_ = false;
  Result<std::vector<Machine>> holders_;
  std::chrono::steady_clock::time_point asked_;  ///< When squeue was called for them.
  std::map<Host, std::string> addresses_;
  std::map<Host, std::string> waiting_;  ///< Hosts that are waited for, and why.
};

/// Each part uses those above it. Every coroutine of the backend holds all of them.
struct CommandBackend::Parts {
  Parts(const io::asio::any_io_executor& executor, Starter starter, std::vector<std::string> bundle,
        io::Log& log, CommandLimits lim)
      : limits(lim),
        exec(executor, std::move(starter), log, limits),
        bring_up(executor, std::move(bundle), exec, limits.bring_up, threads, log) {}

  CommandLimits limits;
  io::ThreadPool threads{4};
  StarterExec exec;
  BringUp bring_up;
};

CommandBackend::CommandBackend(io::asio::any_io_executor executor, Starter starter,
                               std::vector<std::string> bundle, io::Log& log, CommandLimits limits)
    : parts_(
          std::make_shared<Parts>(executor, std::move(starter), std::move(bundle), log, limits)) {}
CommandBackend::~CommandBackend() = default;

awaitable<Result<io::StreamPtr>> CommandBackend::open(Host host, std::vector<std::string> argv) {
  const auto parts = parts_;
  const StarterTraits traits = traits_of(parts->exec.starter());
  const bool starts = std::ranges::count(argv, "--start") > 0;
  if (traits.passes_lines) argv.emplace_back("--lines");
  if (traits.ends_daemons && starts) argv.emplace_back("--stay");
  if (traits.fails_with_command) argv.emplace_back("--aside");
  auto stream = co_await parts->bring_up.open(host, std::move(argv));
  if (!stream || !traits.passes_lines) co_return std::move(stream);
  co_return lines_stream(std::move(*stream));
}

std::string CommandBackend::address(const Host& host) const { return parts_->exec.address(host); }

std::string CommandBackend::doing(const Host& host) const {
  const std::string copies = parts_->bring_up.doing(host);
  return copies.empty() ? parts_->exec.doing(host) : copies;
}

std::string CommandBackend::reach_command(const Host& host) const {
  const auto command = starter_command(parts_->exec.starter(), host.name);
  if (!command) return {};
  std::string line;
  for (const std::string& word : command->argv) line += shell_word(word) + " ";
  return line + "</dev/null";
}

Exec* CommandBackend::exec(const Host&) { return &parts_->exec; }

}  // namespace dt::launcher
