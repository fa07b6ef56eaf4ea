/// Hundreds or thousands of hosts in one process, behind one unix socket: as many agents with their
/// workers and servers, none of which is an operating system process. The supervisor reaches them
/// by SwarmBackend. A host is there when it is asked for, whatever its name.
#pragma once

#include <boost/asio/local/stream_protocol.hpp>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "io/asio.h"
#include "io/task_group.h"
#include "test/bench/swarm/host.h"
#include "test/bench/swarm/world.h"

namespace dt::swarm {

/// The backend's first message on a connection: the attach command. A lost host does not answer.
struct Reach {
  static constexpr std::uint16_t kType = 1000;
  std::string host;
  bool starts = false;
};
struct Reached {
  static constexpr std::uint16_t kType = 1001;
};

/// One thread.
class Swarm {
 public:
  Swarm(io::asio::any_io_executor executor, std::string socket);

  [[nodiscard]] Result<void> listen();
  /// Serves until stop().
  io::awaitable<void> run();
  void stop();
  /// These hosts lose their power at once.
  void lose(const std::vector<std::string>& hosts);
  /// All that were lost boot again.
  void bring_back();

  [[nodiscard]] World& world() { return world_; }
  /// Agents that have a supervisor.
  [[nodiscard]] std::size_t attached() const;

 private:
  io::awaitable<void> accept();
  io::awaitable<void> meet(io::UnixSocket socket);
  SwarmHost& host(const std::string& name);

  io::asio::any_io_executor executor_;
  std::string socket_;
  World world_;
  io::TaskGroup tasks_;
  io::asio::local::stream_protocol::acceptor acceptor_;
  std::map<std::string, SwarmHost> hosts_;
};

}  // namespace dt::swarm
