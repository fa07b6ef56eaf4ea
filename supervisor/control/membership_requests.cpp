#include "supervisor/control/membership_requests.h"

#include <utility>

#include "core/base/time.h"
#include "core/files/host_names.h"
#include "core/job/job.h"
#include "core/job/membership.h"
#include "core/job/notices.h"
#include "core/job/server_group.h"
#include "io/asio.h"
#include "io/job/spec.h"

namespace dt::supervisor {

using io::awaitable;

namespace {

constexpr double kLongestNotice_s = 366.0 * 24 * 3600;

}  // namespace

Result<std::optional<Host>> MembershipRequests::named_host(
    const std::optional<std::string>& name) const {
  if (!name) return std::optional<Host>();
  const auto lines = parse_hosts(*name, "host");
  if (!lines) return tl::unexpected(lines.error());
  if (lines->size() != 1)
    return fail(ErrorKind::kInvalid, "\"{}\" is not the name of one host", *name);
  return with_known_ways(*lines, context_.spec.known_hosts).front().host;
}

std::string MembershipRequests::objection(const ControlAsk& ask,
                                          const std::optional<Host>& host) const {
  const Notices& notices = context_.job->notices();
  if (ask.cancel) return notices.cancel_objection(host);
  if (ask.deadline_s && !(*ask.deadline_s >= 0 && *ask.deadline_s <= kLongestNotice_s))
    return "\"deadline_s\" is a number of seconds, at most a year";
  return host ? notices.objection(*host) : "";
}

Result<std::string> MembershipRequests::leave(const ControlAsk& ask) {
  const auto host = named_host(ask.host);
  if (!host) return tl::unexpected(host.error());
  const std::string why_not = objection(ask, *host);
  if (!why_not.empty()) return fail(ErrorKind::kInvalid, "{}", why_not);
  if (ask.cancel) {
    context_.post(NoticeCancelled{*host});
    return std::string();
  }
  NoticeGiven given{*host, {}, ask.why};
  if (ask.deadline_s) given.left = from_seconds(*ask.deadline_s);
  context_.post(std::move(given));
  const Notices& notices = context_.job->notices();
  std::string outlook = *host ? notices.outlook(**host) : "";
  return outlook.empty() ? notices.outlook() : outlook;  // of the master's host, too
}

std::string MembershipRequests::why_not_there(const std::optional<Host>& host) const {
  const auto& leaving = context_.job->notices().of_hosts();
  if (!host || !leaving.contains(*host)) return "";
  return fmt::format(
      "{} is leaving ({}): it can be added when it has left, or kept by: dtctl leave {} --cancel",
      *host, leaving.at(*host).why, *host);
}

std::string MembershipRequests::why_not_replaced(const Host& from, const Host& to) const {
  const Membership& membership = context_.job->membership();
  std::string why_not = membership.replace_objection(from, to);
  if (!why_not.empty()) return why_not;
  if (context_.job->phase() == "starting" && context_.job->group_restarts() == 0)
    return "no epoch has begun yet: stop the job, and start it with other hosts";
  if (from == io::host_here(context_.spec))
    return fmt::format("{} is the master's host, where the job's supervisor runs", from);
  return why_not_there(to);
}

awaitable<Result<std::string>> MembershipRequests::replace(ControlAsk ask) {
  const auto from = named_host(ask.host);
  if (!from) co_return tl::unexpected(from.error());
  const auto to = named_host(ask.to);
  if (!to) co_return tl::unexpected(to.error());
  if (!*to) co_return fail(ErrorKind::kInvalid, "\"to\" is missing");
  const std::string why_not = why_not_replaced(**from, **to);
  if (!why_not.empty()) co_return fail(ErrorKind::kInvalid, "{}", why_not);
  const std::uint32_t places = context_.job->membership().base_count(**from);
  context_.post(ReplaceAsked{**from, **to});
  const auto edited = co_await editor_.replace(**from, **to, places);
  if (!edited)
    co_return fail(edited.error().kind,
                   "{} gets the places of {}, but host_worker is as it was: {}", **to, **from,
                   edited.error().message);
  if (!context_.job->servers().serves(**from)) co_return std::string();
  co_return fmt::format("its server stays until {} goes; before you end it: dtctl leave {} --in 2m",
                        **from, **from);
}

awaitable<Result<std::string>> MembershipRequests::edit(ControlAsk ask) {
  if (!ask.host) co_return fail(ErrorKind::kInvalid, "\"host\" is missing");
  if (ask.slots < 1 || ask.slots > host_names::kMostSlots)
    co_return fail(ErrorKind::kInvalid, "\"slots\" is from 1 to {}", host_names::kMostSlots);
  if (!context_.spec.elastic)
    co_return fail(ErrorKind::kInvalid,
                   "the job was started without --elastic-training-enabled: it has no host_worker, "
                   "nothing joins it and nothing leaves it");
  if (ask.op == Op::kReplace) co_return co_await replace(std::move(ask));
  if (ask.op == Op::kAdd) {
    const auto host = named_host(ask.host);  // several are no error
    const std::string why_not = host ? why_not_there(*host) : "";
    if (!why_not.empty()) co_return fail(ErrorKind::kInvalid, "{}", why_not);
  }
  using Edit = HostWorkerEditor::Edit;
  const Edit edit = ask.op == Op::kRemove ? Edit::kRemove
                    : ask.unless_there    ? Edit::kAddUnlessThere
                                          : Edit::kAdd;
  const auto edited = co_await editor_.edit(edit, *ask.host, static_cast<std::uint32_t>(ask.slots));
  co_return edited.map([] { return std::string(); });
}

}  // namespace dt::supervisor
