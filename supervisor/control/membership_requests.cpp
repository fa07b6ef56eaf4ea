#include "supervisor/control/membership_requests.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/time.h"
#include "core/job/job.h"
#include "core/job/notices.h"
#include "io/asio.h"
#include "io/clock.h"

namespace dt::supervisor {

using io::awaitable;

namespace {

constexpr std::uint64_t kMostSlots = 10'000;
constexpr double kLongestNotice_s = 366.0 * 24 * 3600;

}  // namespace

Result<std::optional<Host>> MembershipRequests::named_host(const ControlAsk& ask) const {
  if (!ask.host) return std::optional<Host>();
  const auto lines = parse_hosts(*ask.host, "host");
  if (!lines) return tl::unexpected(lines.error());
  if (lines->size() != 1)
    return fail(ErrorKind::kInvalid, "\"{}\" is not the name of one host", *ask.host);
  return with_known_ways(*lines, context_.spec.known_hosts).front().host;
}

std::string MembershipRequests::objection(const ControlAsk& ask,
                                          const std::optional<Host>& host) const {
  const Notices& notices = context_.job->notices();
  std::string why_not;
  if (ask.cancel)
    why_not = notices.cancel_objection(host);
  else if (ask.deadline_s && !(*ask.deadline_s >= 0 && *ask.deadline_s <= kLongestNotice_s))
    why_not = "\"deadline_s\" is a number of seconds, at most a year";
  else if (host)
    why_not = notices.objection(*host);
  if (why_not.empty() && context_.job->ending()) why_not = "the job is ending";
  return why_not;
}

std::string MembershipRequests::leave(const ControlAsk& ask) {
  const auto host = named_host(ask);
  if (!host) return error_reply(host.error().message);
  const std::string why_not = objection(ask, *host);
  if (!why_not.empty()) return error_reply(why_not);
  if (ask.cancel) {
    context_.post(NoticeCancelled{*host});
    return nlohmann::json{{"ok", true}}.dump();
  }
  NoticeGiven given{*host, {}, ask.why};
  if (ask.deadline_s) given.left = from_seconds(*ask.deadline_s);
  context_.post(std::move(given));
  const Notices& notices = context_.job->notices();
  std::string outlook = *host ? notices.outlook(**host) : "";
  if (outlook.empty()) outlook = notices.outlook();  // of the master's host, too
  return nlohmann::json{{"ok", true}, {"note", outlook}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}

awaitable<Result<void>> MembershipRequests::edit(ControlAsk ask) {
  if (!ask.host) co_return fail(ErrorKind::kInvalid, "\"host\" is missing");
  if (ask.slots < 1 || ask.slots > kMostSlots)
    co_return fail(ErrorKind::kInvalid, "\"slots\" is from 1 to {}", kMostSlots);
  if (!context_.spec.elastic)
    co_return fail(ErrorKind::kInvalid,
                   "the job was started without --elastic-training-enabled: it has no host_worker, "
                   "nothing joins it and nothing leaves it");
  if (ask.op == Op::kAdd) {
    const auto& leaving = context_.job->notices().of_hosts();
    const auto host = named_host(ask);
    if (host && *host && leaving.contains(**host))
      co_return fail(
          ErrorKind::kInvalid,
          "{} is leaving ({}): it can be added when it has left, or kept by: dtctl leave "
          "{} --cancel",
          **host, leaving.at(**host).why, **host);
  }
  using Edit = HostWorkerEditor::Edit;
  const Edit edit = ask.op == Op::kRemove ? Edit::kRemove
                    : ask.unless_there    ? Edit::kAddUnlessThere
                                          : Edit::kAdd;
  co_return co_await editor_.edit(edit, *ask.host, static_cast<std::uint32_t>(ask.slots));
}

}  // namespace dt::supervisor
