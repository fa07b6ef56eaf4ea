#include "launcher/reach/host_ways.h"

#include "io/subprocess.h"
#include "launcher/backend/command_backend.h"
#include "launcher/backend/local.h"
#include "launcher/backend/ssh/ssh.h"
#include "launcher/bundle_use.h"

namespace dt::launcher {
namespace {

/// What reaches hosts in that way.
std::unique_ptr<Backend> make_way(io::asio::io_context& context, const io::JobSpec& spec,
                                  StarterKind kind, io::Log& log) {
  if (kind == StarterKind::kLocal) return std::make_unique<LocalBackend>();
  if (kind != StarterKind::kSsh)
    return std::make_unique<CommandBackend>(context.get_executor(), io::starter_for(spec, kind),
                                            bundle_files(), log);
  SshLimits limits;
  limits.handshake = 2 * spec.ssh.connect_timeout;
  return std::make_unique<SshBackend>(context.get_executor(), spec.ssh, bundle_files(), log,
                                      limits);
}

}  // namespace

std::unique_ptr<WaysBackend> make_ways(io::asio::io_context& context, const io::JobSpec& spec,
                                       io::Log& log) {
  const auto shared = std::make_shared<const io::JobSpec>(spec);
  return std::make_unique<WaysBackend>(
      [shared](const Host& host) { return io::way_to(*shared, host); },
      [shared](const Host& host) {
        return remark_on_way(host, shared->launcher, shared->allocation);
      },
      [shared, &context, &log](StarterKind kind) { return make_way(context, *shared, kind, log); });
}

}  // namespace dt::launcher
