#include "launcher/backend/ssh/ssh.h"

#include "launcher/backend/ssh/internal.h"

namespace dt::launcher {

SshBackend::SshBackend(asio::any_io_executor executor, io::SshOptions options,
                       std::vector<std::string> bundle, io::Log& log, SshLimits limits)
    : impl_(std::make_shared<Impl>(std::move(executor), std::move(options), std::move(bundle), log,
                                   limits)) {}

SshBackend::~SshBackend() {
  // Connections in use live on with their streams; the idle ones end here.
  for (const auto& [host, all] : impl_->pool)
    for (const auto& one : all)
      if (one->session && one->users == 0)
        one->session->close({ErrorKind::kClosed, "the launcher is going away"});
}

awaitable<Result<std::string>> SshBackend::address(Host host) {
  const auto self = impl_;
  if (const auto at = self->pool.find(host); at != self->pool.end())
    for (const auto& one : at->second)
      if (one->session && one->session->alive()) co_return one->address;
  const Target target = self->target_of(host);
  auto found = co_await self->resolve(target);
  if (!found) co_return tl::unexpected(found.error());
  co_return found->front().address().to_string();
}

awaitable<Result<CommandResult>> SshBackend::run(Host host, std::string shell_command,
                                                 std::string input, Duration deadline) {
  const auto self = impl_;
  co_return co_await self->run(host, shell_command, input, deadline);
}

void SshBackend::disconnect(const Host& host) {
  const auto at = impl_->pool.find(host);
  if (at == impl_->pool.end()) return;
  for (const auto& one : at->second)
    if (one->session) one->session->close({ErrorKind::kUnavailable, "disconnected"});
}

std::string SshBackend::doing(const Host& host) const {
  if (impl_->copying.count(host) == 0 || !impl_->bundle) return {};
  std::size_t bytes = 0;
  for (const BundleFile& file : impl_->bundle->files) bytes += file.bytes.size();
  return fmt::format("the programs are copied to it ({:.1f} MB)", static_cast<double>(bytes) / 1e6);
}

std::size_t SshBackend::connections() const {
  std::size_t count = 0;
  for (const auto& [host, all] : impl_->pool)
    for (const auto& one : all) count += one->session && one->session->alive() ? 1U : 0U;
  return count;
}

}  // namespace dt::launcher
