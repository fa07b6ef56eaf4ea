#include "launcher/check/run.h"

#include <unistd.h>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <optional>
#include <random>
#include <utility>

#include "core/protocol/exit_code.h"
#include "io/asio.h"
#include "io/at_end.h"
#include "io/log.h"
#include "io/stop_signals.h"
#include "io/volume_answers.h"
#include "launcher/reach/host_ways.h"

namespace dt::launcher {
namespace {

std::string new_word() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}", random(), random(), random());
}

Result<VolumeProbe> make_probe(const std::string& job_dir) {
  if (auto there = io::volume_answers(job_dir, job_dir); !there)
    return tl::unexpected(there.error());
  return VolumeProbe::make(job_dir, new_word());
}

}  // namespace

Result<preflight::Findings> run_checks(const io::JobSpec& spec, CheckPlan plan, int owner) {
  // Meanwhile a connection that has ended is an error of the write.
  const sighandler_t before = ::signal(SIGPIPE, SIG_IGN);
  const io::AtEnd broken_pipes([before] { ::signal(SIGPIPE, before); });
  std::optional<VolumeProbe> probe;
  if (!spec.no_shared_folder && spec.sync_dst_dir.empty()) {
    auto made = make_probe(spec.job_dir);
    if (!made) return tl::unexpected(made.error());
    probe.emplace(std::move(*made));
  }
  io::asio::io_context context(1);
  io::FdLog log(STDERR_FILENO);
  const auto ways = make_ways(context, spec, log);
  const auto give_up = [&probe](const boost::system::error_code& ec) {
    if (ec) return;
    if (probe) probe->remove();
    std::_Exit(kExitInterrupted);  // hosts' programs end with their connections
  };
  boost::asio::signal_set signals(context);
  io::add_stop_signals(signals);
  signals.async_wait([&](const boost::system::error_code& ec, int) { give_up(ec); });
  io::asio::posix::stream_descriptor end(context);
  if (owner >= 0) {
    end.assign(::dup(owner));
    end.async_wait(io::asio::posix::stream_descriptor::wait_read, give_up);
  }
  preflight::Findings findings;
  std::exception_ptr broken;
  const auto done = [&](std::exception_ptr error, preflight::Findings found) {
    broken = error;
    findings = std::move(found);
    context.stop();
  };
  io::asio::co_spawn(context, check_hosts(*ways, spec, std::move(plan), probe ? &*probe : nullptr),
                     done);
  context.run();
  if (broken) std::rethrow_exception(broken);
  return findings;
}

}  // namespace dt::launcher
