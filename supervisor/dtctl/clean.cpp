#include <boost/asio/use_future.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/files/ranges.h"
#include "core/protocol/exit_code.h"
#include "io/asio.h"
#include "io/fd.h"
#include "io/job/control_client.h"
#include "io/job/control_protocol.h"
#include "io/line_prefixer.h"
#include "io/log.h"
#include "io/semaphore.h"
#include "io/task_group.h"
#include "io/within.h"
#include "launcher/reach/host_ways.h"
#include "supervisor/dtctl/commands.h"
#include "supervisor/dtctl/hosts_choice.h"
#include "supervisor/dtctl/job_standing.h"

namespace dt::supervisor {
namespace {

using namespace std::chrono_literals;

constexpr const char* kCleanUsage =
    R"(Ends what a job left on hosts after a crash: agents, guards and processes with
the job's mark (TERM, after 5 s KILL), their sockets and locks, segments of
shared memory, old programs. Only what is yours; never by a program's name.
Without --job: the folder's job. A job that may be alive is left alone.
)";
constexpr const char* kCleanMore = R"(
Exit codes: 0 nothing is left; 1 something is, or the job was refused; 65 a host
was not reached.
)";

/// For a job that is stopped by force to end.
constexpr auto kStop = 20s;
/// TERM, KILL, and the look at all files.
constexpr Duration kCleaning = 60s;

struct CleanOptions {
  std::string job_dir;
  io::Words jobs;
  bool all_jobs = false;
  bool dry_run = false;
  bool force = false;
  std::uint32_t parallel = 64;
};

io::Flags clean_flags(CleanOptions& options, HostsChoice& choice) {
  // clang-format off
  io::Flags flags = {{"Jobs", {
      {.name = "job", .value = "JOB", .to = &options.jobs,
       .help = "this job, by its name (20261120-223000-1a2b3c4d); may be given again"},
      {.name = "all-jobs", .to = &options.all_jobs,
       .help = "all jobs of yours that cannot be alive"},
      {.name = "dry-run", .to = &options.dry_run, .help = "only print what would be done"},
      {.name = "force", .to = &options.force,
       .help = "with --job: also one that may be alive; its supervisor here is stopped first"},
      {.name = "parallel", .value = "N", .to = &options.parallel, .least = 1, .most = 4096,
       .help = "on at most so many hosts at a time ({})"},
  }}, ctl::common_flags(options.job_dir)};
  // clang-format on
  for (io::FlagGroup& group : hosts_flags(choice)) flags.push_back(std::move(group));
  return flags;
}

/// dtagent's words.
std::vector<std::string> agent_words(const CleanOptions& options,
                                     const std::vector<JobHere>& here) {
  std::vector<std::string> words = {"dtagent", "--clean"};
  for (const std::string& job : options.jobs) words.insert(words.end(), {"--only", job});
  for (const JobHere& job : here) {
    if (job.standing == Standing::kLeft) words.insert(words.end(), {"--left", job.name});
    if (options.all_jobs && job.standing == Standing::kRuns)
      words.insert(words.end(), {"--spare", job.name});
  }
  if (options.dry_run) words.emplace_back("--dry-run");
  if (options.force) words.emplace_back("--force");
  return words;
}

class CleanRound {
 public:
  CleanRound(io::asio::io_context& context, const ChosenHosts& chosen,
             std::vector<std::string> words, std::size_t parallel)
      : context_(context),
        hosts_(chosen.hosts),
        words_(std::move(words)),
        ways_(launcher::make_ways(context, chosen.spec, log_)),
        window_(std::make_shared<io::Semaphore>(context.get_executor(), parallel)),
        tasks_(context.get_executor()) {}

  /// The exit code.
  int run() {
    for (const Host& host : hosts_) tasks_.spawn(clean(host));
    auto finished = io::asio::co_spawn(context_, finish(), io::asio::use_future);
    context_.run();
    finished.get();
    for (const std::string& why : failed_) fmt::print(stderr, "dtctl: {}\n", io::printable(why));
    if (!has_done_ && failed_.empty())
      fmt::print("nothing to do on {} host{}\n", hosts_.size(), hosts_.size() == 1 ? "" : "s");
    if (!unreached_.empty())
      fmt::print(stderr, "dtctl: not reached: {}\n", in_few_words(unreached_));
    if (!unreached_.empty()) return kExitUnreachable;
    return failed_.empty() ? kExitOk : kExitFailure;
  }

 private:
  io::awaitable<void> clean(Host host) {
    const auto turn = co_await window_->acquire();
    auto stream = co_await ways_->open(host, words_);
    if (!stream) {
      failed_.push_back(at_host(host, stream.error().message));
      unreached_.push_back(host);
      co_return;
    }
    auto done = co_await io::within(kCleaning, show(host, **stream), "dtagent --clean");
    if (!done) failed_.push_back(at_host(host, done.error().message));
  }

  io::awaitable<Result<void>> show(Host host, io::ByteStream& stream) {
    io::LinePrefixer lines(fmt::format("[{}] ", host));
    std::string piece(std::size_t{64} << 10, '\0');
    for (;;) {
      auto n = co_await stream.read(piece);
      const bool is_end = !n || *n == 0;
      const std::string text =
          is_end ? lines.finish() : lines.feed(std::string_view(piece).substr(0, *n));
      has_done_ = has_done_ || !text.empty();
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
      if (!n) co_return tl::unexpected(n.error());
      if (is_end) co_return Result<void>();
    }
  }

  io::awaitable<void> finish() {
    co_await tasks_.join();
    context_.stop();
  }

  io::asio::io_context& context_;
  io::FdLog log_{STDERR_FILENO};
  std::vector<Host> hosts_;
  std::vector<std::string> words_;
  std::unique_ptr<launcher::Backend> ways_;
  std::shared_ptr<io::Semaphore> window_;
  io::TaskGroup tasks_;
  std::vector<std::string> failed_;
  std::vector<Host> unreached_;
  bool has_done_ = false;
};

/// Asks the job's supervisor to kill everything, and waits for its end.
io::awaitable<Result<void>> stop_by_force(std::string socket) {
  auto client = co_await io::ControlClient::connect(socket);
  if (!client) co_return tl::unexpected(client.error());
  const nlohmann::json request{{"op", "stop"},
                               {"force", true},
                               {"why", "dtctl clean --force"},
                               {"control", io::kControlVersion}};
  auto reply = co_await (*client)->ask(request.dump());
  if (!reply) co_return tl::unexpected(reply.error());
  while (io::somebody_listens(socket).value_or(false)) co_await io::sleep_for(100ms);
  co_return Result<void>();
}

Result<void> end_supervisor(const JobHere& job) {
  if (!io::somebody_listens(job.socket).value_or(false))
    return fail(ErrorKind::kUnavailable,
                "job {}: dtlaunch or a supervisor that does not answer lives on this machine: end "
                "it there (Ctrl-C in its terminal, or kill), then clean again",
                job.name);
  io::asio::io_context context(1);
  auto stopped = io::asio::co_spawn(
      context, io::within(kStop, stop_by_force(job.socket), "its end"), io::asio::use_future);
  context.run();
  return stopped.get().map_error([&job](const Error& e) { return e.at("job " + job.name); });
}

/// Why a job that lives is not cleaned; with --force it is stopped.
Result<void> settle(const CleanOptions& options, const std::vector<JobHere>& here) {
  for (const JobHere& job : here) {
    if (job.standing != Standing::kRuns) continue;
    if (options.all_jobs) {
      fmt::print("job {} is running: left alone\n", job.name);
      continue;
    }
    if (!options.force)
      return fail(ErrorKind::kDenied,
                  "job {} is running: its supervisor answers here. dtctl stop ends it in order; "
                  "dtctl clean --job {} --force kills it",
                  job.name, job.name);
    if (options.dry_run) continue;
    if (auto ended = end_supervisor(job); !ended) return ended;
  }
  return {};
}

}  // namespace

int clean_main(io::Program program, const std::string& job_dir, const io::Words& words) {
  program.usage += kCleanUsage;
  program.more = kCleanMore;
  CleanOptions options;
  options.job_dir = job_dir;
  HostsChoice scratch;
  const io::Flags first_flags = clean_flags(options, scratch);
  const auto given = io::parse(program, first_flags, words);
  if (!given) return io::refuse(program, given.error());
  if (const auto text = io::answer(program, first_flags, *given))
    return std::fputs(text->c_str(), stdout) < 0;
  const auto refused = [&](const std::string& why) {
    return io::refuse(program, {ErrorKind::kInvalid, why});
  };
  if (options.all_jobs && !options.jobs.empty())
    return refused("--job and --all-jobs exclude each other");
  if (options.force && options.jobs.empty()) return refused("--force is for --job JOB");
  CleanOptions again;
  const auto flags_of = [&](HostsChoice& choice) { return clean_flags(again, choice); };
  const auto chosen = choose_hosts(absolute_folder(options.job_dir), program, words, flags_of);
  if (!chosen) return refused(chosen.error().message);
  if (options.jobs.empty() && !options.all_jobs) {
    if (chosen->job.empty())
      return refused("which job? --job JOB, --all-jobs, or a folder with a job");
    options.jobs.push_back(chosen->job);
  }
  // Their locks are held until the hosts are clean: meanwhile none can be resumed.
  std::vector<JobHere> here;
  for (const std::string& job : options.all_jobs ? jobs_here() : options.jobs)
    here.push_back(look_at_job(job));
  if (auto settled = settle(options, here); !settled) {
    fmt::print(stderr, "dtctl: {}\n", settled.error().message);
    return kExitFailure;
  }
  io::asio::io_context context(1);
  return CleanRound(context, *chosen, agent_words(options, here), options.parallel).run();
}

}  // namespace dt::supervisor
