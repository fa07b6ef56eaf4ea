/// The agent's socket: it accepts connections and identifies them.
#pragma once

#include <boost/asio/local/stream_protocol.hpp>
#include <functional>
#include <string>

#include "core/protocol/control_messages.h"
#include "io/asio.h"
#include "io/log.h"
#include "io/task_group.h"
#include "launcher/agent/processes.h"
#include "launcher/agent/supervisor_link.h"

namespace dt::launcher {

/// Accepts connections of this user and gives each, by its first message, to the agent. All others
/// are closed and counted.
class Listener {
 public:
  /// They return when the connection is over.
  struct Handlers {
    std::function<io::awaitable<void>(Channel, AgentHello)> supervisor;
    std::function<io::awaitable<void>(Channel, ProcessPtr)> process;
  };
  /// `kept_out`: where connections that are refused are counted.
  Listener(io::asio::io_context& context, std::string path, const Processes& processes,
           KeptOut& kept_out, io::Log& log);

  /// Makes the socket.
  [[nodiscard]] Result<void> listen();
  /// Makes it again, at this place; connections that were accepted stay.
  [[nodiscard]] Result<void> listen_again(const std::string& path);
  /// Accepts until it is closed; each connection is a task of `tasks`.
  io::awaitable<void> run(io::TaskGroup& tasks, Handlers handlers);
  /// Removes the socket.
  void close();

 private:
  [[nodiscard]] bool may_connect(io::UnixSocket& socket) const;
  io::awaitable<void> serve(io::UnixSocket socket, io::TaskGroup& tasks);
  /// False: it is neither a supervisor nor a process of this agent.
  io::awaitable<bool> hand_over(Channel channel, const wire::Frame& first, io::TaskGroup& tasks);

  std::string path_;
  const Processes* processes_;
  KeptOut* kept_out_;
  io::Log* log_;
  io::asio::local::stream_protocol::acceptor acceptor_;
  Handlers handlers_;
  bool is_closed_ = false;
  std::size_t strangers_ = 0;  ///< Connections that have not identified themselves.
};

}  // namespace dt::launcher
