/// How a supervisor reaches the hosts of a swarm: a unix socket each, in place of an ssh channel.
/// All of the supervisor is as it is in production: this is one more backend
/// (launcher/backend/backend.h), which no program but the benchmark is linked with, and
/// make_supervisor() takes any. What ssh itself costs, in time and memory, is not seen here:
/// launch_bench.sh measures that.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/semaphore.h"
#include "launcher/backend/backend.h"

namespace dt::swarm {

class SwarmBackend final : public launcher::Backend {
 public:
  SwarmBackend(io::asio::any_io_executor executor, std::string socket);

  io::awaitable<Result<std::unique_ptr<io::ByteStream>>> open(
      Host host, std::vector<std::string> argv) override;
  [[nodiscard]] std::string address(const Host& host) const override;

 private:
  std::string socket_;
  std::shared_ptr<io::Semaphore> window_;  ///< Connections that are being made.
};

}  // namespace dt::swarm
