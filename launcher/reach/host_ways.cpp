#include "launcher/reach/host_ways.h"

#include <map>

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

class WaysBackend final : public Backend {
 public:
  WaysBackend(io::asio::io_context& context, const io::JobSpec& spec, io::Log& log)
      : context_(context), spec_(spec), log_(log) {}

  io::awaitable<Result<io::StreamPtr>> open(Host host, std::vector<std::string> argv) override {
    auto opened = co_await of(host).open(host, std::move(argv));
    if (opened) co_return std::move(opened);
    // What a person has to know of the way when it fails.
    const std::string remark = remark_on_way(host, spec_.launcher, spec_.allocation);
    if (remark.empty()) co_return std::move(opened);
    co_return fail(opened.error().kind, "{} ({})", opened.error().message, remark);
  }
  [[nodiscard]] std::string address(const Host& host) const override {
    return of(host).address(host);
  }
  [[nodiscard]] std::string doing(const Host& host) const override { return of(host).doing(host); }
  [[nodiscard]] Exec* exec(const Host& host) override { return of(host).exec(host); }
  void disconnect(const Host& host) override { of(host).disconnect(host); }
  [[nodiscard]] std::string reach_command(const Host& host) const override {
    return of(host).reach_command(host);
  }
  [[nodiscard]] std::string remote_shell(const Host& host) const override {
    return of(host).remote_shell(host);
  }

 private:
  [[nodiscard]] Backend& of(const Host& host) const {
    const StarterKind kind = io::way_to(spec_, host);
    auto& backend = backends_[kind];
    if (!backend) backend = make_way(context_, spec_, kind, log_);
    return *backend;
  }

  io::asio::io_context& context_;
  const io::JobSpec spec_;
  io::Log& log_;
  mutable std::map<StarterKind, std::unique_ptr<Backend>> backends_;
};

}  // namespace

std::unique_ptr<Backend> make_ways(io::asio::io_context& context, const io::JobSpec& spec,
                                   io::Log& log) {
  return std::make_unique<WaysBackend>(context, spec, log);
}

}  // namespace dt::launcher
