#include "launcher/check/command.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/signal_set.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <random>

#include "core/preflight/judge.h"
#include "core/preflight/report.h"
#include "core/protocol/exit_code.h"
#include "io/asio.h"
#include "io/log.h"
#include "launcher/check/check.h"
#include "launcher/reach/ways.h"

namespace dt::launcher {
namespace {

using preflight::Findings;
using preflight::Verdict;

int refuse_check(const Error& error) {
  fmt::print(stderr, "dtlaunch: {}\n", error.message);
  return kExitFailure;
}

std::string new_word() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}", random(), random(), random());
}

CheckPlan plan_of(const CheckRequest& request) {
  CheckPlan plan;
  plan.is_full = request.is_full;
  plan.files = request.files;
  for (const HostSlots& one : sum_slots(request.lines)) plan.hosts.push_back(one.host);
  return plan;
}

/// The lines whose hosts have passed, as the user wrote them.
Result<void> write_good(const CheckRequest& request, const Verdict& verdict) {
  std::ofstream file(request.write_good, std::ios::trunc);
  for (const HostLine& line : request.lines) {
    const auto at = std::find(verdict.hosts.begin(), verdict.hosts.end(), line.host);
    if (at == verdict.hosts.end() ||
        verdict.has_failed(static_cast<std::size_t>(at - verdict.hosts.begin())))
      continue;
    file << line_of(line.host);
    if (line.slots) file << " slots=" << *line.slots;
    file << '\n';
  }
  file.flush();
  if (!file) return fail(ErrorKind::kIo, "--write-good {}: cannot be written", request.write_good);
  return {};
}

/// While it lives, a connection that has ended is an error of the write.
class BrokenPipes {
 public:
  BrokenPipes() : before_(::signal(SIGPIPE, SIG_IGN)) {}
  ~BrokenPipes() { ::signal(SIGPIPE, before_); }
  BrokenPipes(const BrokenPipes&) = delete;
  BrokenPipes& operator=(const BrokenPipes&) = delete;

 private:
  sighandler_t before_;
};

int exit_code_of(const Verdict& verdict) {
  if (verdict.has_unreachable()) return kExitUnreachable;
  return verdict.has_failed() ? kExitCheckFailed : kExitOk;
}

void print(const CheckRequest& request, const Findings& findings, const Verdict& verdict,
           double took) {
  const int code = exit_code_of(verdict);
  if (request.as_json) {
    const std::string text = preflight::json_text(findings, verdict, code);
    std::fputs(text.c_str(), request.is_before_launch ? stderr : stdout);
    return;
  }
  if (!request.is_before_launch) {
    std::fputs(preflight::table_text(verdict).c_str(), stdout);
    return;
  }
  if (code != kExitOk) return void(std::fputs(preflight::table_text(verdict).c_str(), stderr));
  fmt::print(stderr, "dtlaunch: preflight: {} host(s) are good ({:.1f} s)\n", verdict.hosts.size(),
             took);
  std::fputs(preflight::remarks_text(verdict).c_str(), stderr);
}

}  // namespace

int run_check(const io::JobSpec& spec, const CheckRequest& request) {
  const BrokenPipes are_errors;
  const auto began = std::chrono::steady_clock::now();
  std::optional<VolumeProbe> probe;
  if (!spec.no_shared_folder && spec.sync_dst_dir.empty()) {
    auto made = VolumeProbe::make(spec.job_dir, new_word());
    if (!made) return refuse_check(made.error());
    probe.emplace(std::move(*made));
  }
  io::asio::io_context context(1);
  io::FdLog log(STDERR_FILENO);
  const auto ways = make_ways(context, spec, log);
  boost::asio::signal_set signals(context, SIGINT, SIGTERM, SIGHUP);
  signals.async_wait([&probe](const boost::system::error_code& ec, int) {
    if (ec) return;
    if (probe) probe->remove();
    std::_Exit(kExitInterrupted);  // hosts' programs end with their connections
  });
  Findings findings;
  std::exception_ptr broken;
  const auto done = [&](std::exception_ptr error, Findings found) {
    broken = error;
    findings = std::move(found);
    context.stop();
  };
  io::asio::co_spawn(context, check_hosts(*ways, spec, plan_of(request), probe ? &*probe : nullptr),
                     done);
  context.run();
  if (broken) std::rethrow_exception(broken);
  const Verdict verdict = preflight::judge(findings);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  print(request, findings, verdict, took.count());
  std::fflush(stdout);
  if (!request.write_good.empty())
    if (auto written = write_good(request, verdict); !written) return refuse_check(written.error());
  return exit_code_of(verdict);
}

}  // namespace dt::launcher
