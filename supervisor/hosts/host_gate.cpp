#include "supervisor/hosts/host_gate.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/job/job.h"
#include "core/job/membership.h"
#include "core/job/server_group.h"
#include "io/frame_channel.h"
#include "io/last_words.h"
#include "io/within.h"
#include "launcher/backend/child_stream.h"

namespace dt::supervisor {

using io::awaitable;

namespace {

/// Limit for the whole check; a read of a stalled volume has no limit.
constexpr Duration kDeadline = std::chrono::seconds(180);
constexpr std::size_t kAtOnce = 8;
/// Hosts that a newcomer connects to where there are no servers.
constexpr std::size_t kPeers = 4;

}  // namespace

Gate::Gate(SupervisorContext& context)
    : context_(context), turns_(std::make_shared<io::Semaphore>(context.executor, kAtOnce)) {}

bool Gate::is_for(const Host& host) const {
  const auto& base = context_.spec.workers;
  return context_.spec.preflight && std::ranges::find(base, host) == base.end();
}

launcher::GateRequest Gate::request_for(const Host& host) const {
  launcher::GateRequest request;
  request.spec = io::to_json(context_.spec);
  request.host = host;
  const io::JobSpec& spec = context_.spec;
  // Servers of a command of its own do not say where they listen.
  if (!spec.dmlc_roles)
    for (const auto& [id, server] : context_.job->servers().all())
      if (!server.address.empty())
        request.servers.push_back({server.host, server.address, server.port});
  if (!request.servers.empty()) return request;
  for (const Host& base : spec.workers)
    if (request.peers.size() < kPeers && context_.job->membership().anyone_runs_on(base) &&
        std::ranges::find(request.peers, base) == request.peers.end())
      request.peers.push_back(base);
  return request;
}

awaitable<launcher::GateReply> Gate::pass(Host host) {
  const auto turn = co_await turns_->acquire();
  auto request = request_for(host);
  auto asked = ask(std::move(request));
  auto reply = co_await io::within(kDeadline, std::move(asked), "the check of the host");
  if (reply) co_return std::move(*reply);
  co_return launcher::GateReply{{reply.error().message}, {}};
}

awaitable<Result<launcher::GateReply>> Gate::ask(launcher::GateRequest request) {
  launcher::ChildProgram program;
  program.path = "/proc/self/exe";
  program.argv = {"dtsupervisor", "--gate"};
  program.dies_with_us = false;  // it removes its files when its stdin ends
  auto stream = launcher::child_stream(context_.executor, program);
  if (!stream) co_return tl::unexpected(stream.error());
  const std::string words = wire::frame(request);
  auto written = co_await (*stream)->write(words);
  if (!written) co_return tl::unexpected(written.error());
  wire::FrameDecoder decoder{std::size_t{1} << 20};
  std::string buffer(std::size_t{4} << 10, '\0');
  auto frame = co_await io::receive_frame(**stream, decoder, buffer, "the check's process");
  if (!frame)
    co_return fail(ErrorKind::kUnavailable, "the check has ended without a result: {}",
                   io::on_one_line((*stream)->stderr_tail()));
  co_return wire::parse<launcher::GateReply>(frame->body);
}

}  // namespace dt::supervisor
