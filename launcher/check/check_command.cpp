#include "launcher/check/check_command.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>

#include "core/base/quantity.h"
#include "core/preflight/judge.h"
#include "core/preflight/report.h"
#include "core/protocol/exit_code.h"
#include "launcher/check/check.h"

namespace dt::launcher {
namespace {

using preflight::Findings;
using preflight::Verdict;

CheckOutcome refuse_check(const Error& error) {
  fmt::print(stderr, "dtlaunch: {}\n", error.message);
  return {kExitFailure, std::nullopt};
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
    const auto at = std::ranges::find(verdict.hosts, line.host);
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

int exit_code_of(const Verdict& verdict) {
  if (verdict.has_unreachable()) return kExitUnreachable;
  return verdict.has_failed() ? kExitCheckFailed : kExitOk;
}

void print(const CheckRequest& request, const Findings& findings, const Verdict& verdict,
           double took) {
  const int code = exit_code_of(verdict);
  std::FILE* const out = request.is_before_launch ? stderr : stdout;
  if (request.as_json)
    return void(std::fputs(preflight::json_text(findings, verdict, code).c_str(), out));
  if (!request.is_before_launch || code != kExitOk)
    return void(std::fputs(preflight::table_text(verdict).c_str(), out));
  fmt::print(stderr, "dtlaunch: preflight: {} {} good ({:.1f} s)\n",
             count_text(verdict.hosts.size(), "host"), verdict.hosts.size() == 1 ? "is" : "are",
             took);
  std::fputs(preflight::remarks_text(verdict).c_str(), stderr);
}

}  // namespace

CheckOutcome run_check(const io::JobSpec& spec, const CheckRequest& request) {
  const auto began = std::chrono::steady_clock::now();
  const auto findings = run_checks(spec, plan_of(request));
  if (!findings) return refuse_check(findings.error());
  const Verdict verdict = preflight::judge(*findings);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  print(request, *findings, verdict, took.count());
  std::fflush(stdout);
  if (!request.write_good.empty())
    if (auto written = write_good(request, verdict); !written) return refuse_check(written.error());
  return {exit_code_of(verdict), preflight::reference_of(*findings, verdict)};
}

}  // namespace dt::launcher
