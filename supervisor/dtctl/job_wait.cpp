#include "supervisor/dtctl/job_wait.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "io/asio.h"
#include "io/job/control_client.h"
#include "io/job/spec.h"
#include "io/within.h"
#include "supervisor/dtctl/find_job.h"

namespace dt::supervisor {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

constexpr auto kLook = 100ms;  ///< Between looks for a supervisor that does not answer.
/// At least between two looks at a job: one that changes all the time costs no processor.
constexpr auto kPause = 10ms;  // tidy: allow (it limits how often the supervisor is asked)

}  // namespace

/// One `dtctl wait`.
class JobWait {
 public:
  explicit JobWait(WaitOptions options) : options_(std::move(options)) {
    counts_events_ = std::ranges::any_of(options_.conditions, &Condition::is_about_events);
  }

  /// Returns an error only if it was cancelled.
  io::awaitable<Result<Waited>> follow() {
    for (bool is_first = options_.for_start;;) {
      const auto job = find_job(*options_.volume, patience());
      if (is_first && job && job->ended) earlier_ = job->job;
      is_first = is_first && !job && job.error().kind == ErrorKind::kTimeout;
      const bool is_there = job && !(job->ended && job->job == earlier_);
      if (!is_there && !options_.for_start)
        co_return Waited{kExitNoJob, job ? fmt::format("no job is running in {}", job_dir_)
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

  [[nodiscard]] bool has_seen_job() const { return has_seen_job_; }

  /// The conditions that do not hold, and their current values.
  [[nodiscard]] std::string missing() const {
    std::string out;
    for (const Condition& c : options_.conditions)
      if (!c.holds()) out += (out.empty() ? "" : ", ") + c.shown();
    return out;
  }

 private:
  /// With the volume, whose answer is waited for in place.
  [[nodiscard]] Duration patience() const {
    if (!options_.until) return kVolumePatience;
    return std::min<Duration>(*options_.until - std::chrono::steady_clock::now(), kVolumePatience);
  }

  /// Why nobody but the job's user sees what is waited for; its end is seen by all.
  [[nodiscard]] std::optional<Error> refusal(const io::JobPointer& job) const {
    const bool is_end = std::ranges::all_of(options_.conditions, &Condition::is_about_end);
    if (is_end || !options_.volume->answers(patience())) return std::nullopt;
    return not_ours(job_dir_, job);
  }

  [[nodiscard]] bool all_hold() const {
    return std::ranges::all_of(options_.conditions, &Condition::holds);
  }

  Waited ended(const io::JobPointer& job) {
    see_status(nullptr);
    if (counts_events_) read_events(kAllEvents);
    for (Condition& c : options_.conditions) c.see_end(job.ended->exit_code);
    if (all_hold()) return {};
    return {kExitNoJob,
            fmt::format("job {} in {} ended with exit code {} ({}); not seen: {}", job.job,
                        job_dir_, job.ended->exit_code, job.ended->message, missing())};
  }

  void see_status(const json& status) {
    for (Condition& c : options_.conditions) c.see_status(status);
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
    for (Condition& c : options_.conditions) c.see_event(line);
    next_event_ = n + 1;
  }

  static constexpr std::uint64_t kAllEvents = ~std::uint64_t{0};
  /// Reads the unseen events of events.jsonl, up to number `end`.
  void read_events(std::uint64_t end) {
    const auto job = read_pointer(*options_.volume, patience());
    if (!job) return;
    std::ifstream file(io::events_file(job_dir_, job->job));
    for (std::string line; std::getline(file, line);) {
      const json event = json::parse(line, nullptr, false);
      if (event.is_object() && event.value("n", end) < end) see_event(event, line);
    }
  }

  WaitOptions options_;
  std::string job_dir_ = options_.volume->path();
  std::string earlier_;  ///< A job that had ended before, while another one is to start.
  bool has_seen_job_ = false;
  bool counts_events_ = false;
  std::uint64_t next_event_ = 0;
};

io::awaitable<Waited> wait_for_conditions(WaitOptions options) {
  const auto until = options.until;
  const std::string folder = options.volume->path();
  JobWait wait(std::move(options));
  auto following = wait.follow();
  if (!until) {
    auto followed = co_await std::move(following);
    co_return std::move(*followed);
  }
  auto followed = co_await io::within(*until - std::chrono::steady_clock::now(),
                                      std::move(following), "the conditions");
  if (followed) co_return std::move(*followed);
  Waited late{kExitLate, wait.has_seen_job()
                             ? "waited in vain for " + wait.missing()
                             : fmt::format("waited in vain: no job was started in {}", folder)};
  co_return std::move(late);
}

}  // namespace dt::supervisor
