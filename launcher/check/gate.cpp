#include "launcher/check/gate.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "core/base/wire.h"
#include "core/protocol/exit_code.h"
#include "io/fd.h"
#include "io/job/spec.h"

namespace dt::launcher {
namespace {

Result<GateRequest> read_request(int in) {
  wire::FrameDecoder decoder{std::size_t{64} << 20};
  std::array<char, 16384> piece{};
  for (;;) {
    auto frame = decoder.next();
    if (!frame) return tl::unexpected(frame.error());
    if (*frame) return wire::parse<GateRequest>((*frame)->body);
    const ssize_t n = ::read(in, piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return fail(ErrorKind::kClosed, "no request comes");
    decoder.feed({piece.data(), static_cast<std::size_t>(n)});
  }
}

Result<preflight::NewcomerVerdict> pass(GateRequest request, int in) {
  const auto spec = io::spec_from_json(request.spec);
  if (!spec) return tl::unexpected(spec.error());
  if (!spec->preflight) return fail(ErrorKind::kInvalid, "the job was started without --preflight");
  CheckPlan plan;
  plan.is_of_newcomers = true;
  plan.hosts = {std::move(request.host)};
  plan.servers = std::move(request.servers);
  plan.peers = std::move(request.peers);
  for (const preflight::FileFacts& file : spec->preflight->command.files)
    plan.files.push_back(file.name);
  auto found = run_checks(*spec, std::move(plan), in);
  if (!found) return tl::unexpected(found.error());
  return preflight::judge_newcomer(*spec->preflight, std::move(*found));
}

/// A way to each server may fail.
std::vector<std::string> first_ones(std::vector<std::string> sentences) {
  constexpr std::size_t kMost = 3;
  if (sentences.size() <= kMost) return sentences;
  const std::size_t more = sentences.size() - kMost;
  sentences.resize(kMost);
  sentences.push_back(fmt::format("and {} more", more));
  return sentences;
}

}  // namespace

int gate_main(int in, int out) {
  ::prctl(PR_SET_NAME, "dtsuper-gate");  // it was run as /proc/self/exe
  auto request = read_request(in);
  if (!request) return kExitFailure;
  auto verdict = pass(std::move(*request), in);
  GateReply reply;
  if (!verdict) {
    reply.failed.push_back(verdict.error().message);
  } else {
    reply.failed = first_ones(std::move(verdict->failed));
    reply.warnings = first_ones(std::move(verdict->warnings));
  }
  return io::write_all(out, wire::frame(reply)) ? kExitOk : kExitFailure;
}

}  // namespace dt::launcher
