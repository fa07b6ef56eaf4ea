#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "io/asio.h"
#include "io/job/control_client.h"
#include "io/job/spec.h"
#include "io/within.h"
#include "supervisor/dtctl/commands.h"
#include "supervisor/dtctl/condition.h"
#include "supervisor/dtctl/job_standing.h"

namespace dt::supervisor::ctl {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

constexpr auto kLook = 100ms;  ///< Between looks for a supervisor that does not answer.
/// At least between two looks at a job: one that changes all the time costs no processor.
constexpr auto kPause = 10ms;  // tidy: allow (it limits how often the supervisor is asked)

}  // namespace

struct Waited {
  int exit_code = 0;     ///< kExitOk: all conditions held.
  std::string why = {};  ///< They did not hold.
};

/// One `dtctl wait`.
class JobWait {
 public:
  /// `conditions`: all have to hold at once; at least one.
  JobWait(Arguments args, std::vector<Condition> conditions)
      : args_(std::move(args)), conditions_(std::move(conditions)) {}

  /// Returns an error only if it was cancelled.
  io::awaitable<Result<Waited>> follow() {
    for (bool is_first = args_.start;;) {
      const auto job = find_job(*args_.volume, patience());
      if (is_first && job && job->ended) earlier_ = job->job;
      is_first = is_first && !job && job.error().kind == ErrorKind::kTimeout;
      const bool is_there = job && !(job->ended && job->job == earlier_);
      if (!is_there && !args_.start)
        co_return Waited{kExitNoJob, job ? fmt::format("no job is running in {}", args_.job_dir)
                                         : job.error().message};
      has_seen_job_ = has_seen_job_ || is_there;
      if (is_there && job->ended) co_return ended(*job);
      if (is_there) {
        auto watched = co_await watch(job->socket);
        if (watched) co_return std::move(*watched);
        if (const auto why = refusal(*job)) co_return Waited{kExitNoJob, why->message};
      }
      auto cancelled = co_await io::asio::this_coro::cancellation_state;
      if (cancelled.cancelled() != io::asio::cancellation_type::none)
        co_return fail(ErrorKind::kClosed, "cancelled");
      // Its supervisor has just ended, has died, or is not there yet.
      see_status(nullptr);
      co_await io::sleep_for(kLook);
    }
  }

  /// Of --timeout.
  [[nodiscard]] Duration left() const {
    return args_.begun + args_.timeout - std::chrono::steady_clock::now();
  }
  /// What it is at the end of --timeout.
  [[nodiscard]] Waited late() const {
    return {kExitLate,
            has_seen_job_ ? "waited in vain for " + missing()
                          : fmt::format("waited in vain: no job was started in {}", args_.job_dir)};
  }

 private:
  /// The conditions that do not hold, and their current values.
  [[nodiscard]] std::string missing() const {
    std::string out;
    for (const Condition& c : conditions_)
      if (!c.holds()) out += (out.empty() ? "" : ", ") + c.shown();
    return out;
  }

  /// With the volume, whose answer is waited for in place.
  [[nodiscard]] Duration patience() const {
    return args_.timeout > Duration{} ? std::min(left(), kVolumePatience) : kVolumePatience;
  }

  /// Why nobody but the job's user sees what is waited for; its end is seen by all.
  [[nodiscard]] std::optional<Error> refusal(const io::JobPointer& job) const {
    const bool is_end = std::ranges::all_of(conditions_, &Condition::is_about_end);
    if (is_end || !args_.volume->answers(patience())) return std::nullopt;
    return not_ours(args_.job_dir, job);
  }

  [[nodiscard]] bool all_hold() const {
    return std::ranges::all_of(conditions_, &Condition::holds);
  }

  Waited ended(const io::JobPointer& job) {
    see_status(nullptr);
    if (counts_events_) read_events(kAllEvents);
    for (Condition& c : conditions_) c.see_end(job.ended->exit_code);
    if (all_hold()) return {};
    return {kExitNoJob,
            fmt::format("job {} in {} ended with exit code {} ({}); not seen: {}", job.job,
                        args_.job_dir, job.ended->exit_code, job.ended->message, missing())};
  }

  void see_status(const json& status) {
    for (Condition& c : conditions_) c.see_status(status);
  }

  /// Until the conditions hold; nothing when the supervisor answers no more.
  io::awaitable<std::optional<Waited>> watch(std::string socket) {
    auto client = co_await io::ControlClient::connect(std::move(socket));
    if (!client) co_return std::nullopt;
    for (std::uint64_t change = 0;;) {
      // The number first: later changes are seen in the next round.
      auto changes = co_await ask(client->get(), "changes", change);
      if (!changes) co_return std::nullopt;
      const bool can_tell = changes->value("ok", false);
      if (can_tell) change = changes->value("changes", change);
      if (counts_events_) {
        auto events = co_await ask(client->get(), "events", next_event_);
        if (!events) co_return std::nullopt;
        see_events(*events);
      }
      auto status = co_await ask(client->get(), "status", 0);
      if (!status) co_return std::nullopt;
      // One that is just starting refuses, and has no status yet.
      if (status->value("ok", true)) {
        see_status(*status);
        if (all_hold()) co_return Waited{};
      }
      co_await io::sleep_for(can_tell ? Duration(kPause) : Duration(kLook));
    }
  }

  /// An object; nothing if the supervisor does not answer.
  static io::awaitable<std::optional<json>> ask(io::ControlClient* client, std::string op,
                                                std::uint64_t from) {
    const json request{{"op", std::move(op)}, {"from", from}};
    auto reply = co_await client->ask(request.dump());
    if (!reply) co_return std::nullopt;
    json answer = json::parse(*reply, nullptr, false);
    if (!answer.is_object()) co_return std::nullopt;
    co_return std::move(answer);
  }

  void see_events(const json& reply) {
    const auto list = reply.find("events");
    if (list == reply.end() || !list->is_array()) return;
    if (!list->empty()) {
      // A supervisor keeps only its own events, and only the newest.
      const std::uint64_t first = list->front().value("n", next_event_);
      if (first > next_event_) read_events(first);
    }
    for (const json& event : *list)
      see_event(event, event.dump(-1, ' ', false, json::error_handler_t::replace));
  }

  void see_event(const json& event, const std::string& line) {
    const std::uint64_t n = event.value("n", std::uint64_t{0});
    if (n < next_event_) return;
    for (Condition& c : conditions_) c.see_event(line);
    next_event_ = n + 1;
  }

  static constexpr std::uint64_t kAllEvents = ~std::uint64_t{0};
  /// Reads the unseen events of events.jsonl, up to number `end`.
  void read_events(std::uint64_t end) {
    const auto job = read_pointer(*args_.volume, patience());
    if (!job) return;
    std::ifstream file(io::events_file(args_.job_dir, job->job));
    for (std::string line; std::getline(file, line);) {
      const json event = json::parse(line, nullptr, false);
      if (event.is_object() && event.value("n", end) < end) see_event(event, line);
    }
  }

  Arguments args_;
  std::vector<Condition> conditions_;
  std::string earlier_;  ///< A job that had ended before, while another one is to start.
  bool has_seen_job_ = false;
  bool counts_events_ = std::ranges::any_of(conditions_, &Condition::is_about_events);
  std::uint64_t next_event_ = 0;
};

io::awaitable<int> wait(Arguments args) {
  if (args.words.empty()) throw wrong_words(args);
  std::vector<Condition> conditions;
  for (const std::string& word : args.words)
    conditions.push_back(need(Condition::parse(word), kExitUsage));
  JobWait wait(args, std::move(conditions));
  auto following = wait.follow();
  if (args.timeout > Duration{})
    following = io::within(wait.left(), std::move(following), "the conditions");
  const auto followed = co_await std::move(following);
  const Waited waited = followed ? *followed : wait.late();
  if (waited.exit_code != kExitOk) fmt::print(stderr, "dtctl: {}\n", waited.why);
  co_return waited.exit_code;
}

}  // namespace dt::supervisor::ctl
