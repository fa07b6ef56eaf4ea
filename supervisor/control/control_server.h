/// The server of a job's control socket (io/job/control_protocol.h): requests of dtctl and
/// dtlaunch, and the console, which clients may follow.
#pragma once

#include <boost/asio/local/stream_protocol.hpp>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/protocol/control_messages.h"
#include "io/asio.h"
#include "io/job/control_protocol.h"
#include "io/task_group.h"
#include "supervisor/control/control_request.h"

namespace dt::supervisor {

/// One thread. Serves only processes of the same user. A console that does not read loses lines and
/// gets the number of lost bytes; it never blocks anything.
class ControlServer {
 public:
  struct Options {
    std::size_t console_limit = std::size_t{4} << 20;  ///< Bytes kept for a slow console.
    std::size_t backlog = std::size_t{256} << 10;      ///< Kept for the first owner.
    std::size_t connections = 64;                      ///< At once; more are turned away.
  };
  /// Answers every request but "console" with the reply's JSON. May take its time.
  using Handler = std::function<io::awaitable<std::string>(ControlAsk request)>;

  ControlServer(io::asio::any_io_executor executor, Options options, Handler handler);
  ~ControlServer();

  /// Makes the socket, 0600, and its folder (io::make_socket_folder); replaces a socket without a
  /// listener. Once, before run().
  [[nodiscard]] Result<void> listen(const std::string& path);
  /// Serves until stop() or cancelled, then removes the socket, and its folder if that is empty.
  /// Makes it again when somebody has removed it.
  io::awaitable<void> run();
  void stop();

  /// Sends to every console, in order, from the time it connects. Output before the first owner
  /// connects is kept for that one.
  void console(std::string_view bytes, bool is_stderr = false);
  /// Sends the last message to every console, now and later; waits until they have it, at most
  /// `limit`.
  io::awaitable<void> end(io::JobEnded ended, Duration limit);

  /// The console with "owner": true has disconnected (before end()).
  std::function<void()> on_owner_gone;
  /// The socket had to be made in another folder.
  std::function<void()> on_moved;
  /// Of the socket.
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] bool has_owner() const { return owners_ > 0; }
  [[nodiscard]] const KeptOut& kept_out() const { return kept_out_; }

 private:
  struct Client;

  Result<void> open();
  io::awaitable<void> keep_socket();
  io::awaitable<void> write(std::shared_ptr<Client> client);
  io::awaitable<void> serve(std::shared_ptr<Client> client);
  io::awaitable<void> requests(std::shared_ptr<Client> client);
  void subscribe(Client& client, bool owner);
  void tell(Client& client, const io::Console& text);

  using Acceptor = boost::asio::local::stream_protocol::acceptor;

  io::asio::any_io_executor executor_;
  Options options_;
  Handler handler_;
  std::string path_;
  Acceptor acceptor_;
  io::TaskGroup group_;
  std::list<std::shared_ptr<Client>> clients_;
  std::optional<io::JobEnded> ended_;
  std::list<io::Console> backlog_;
  std::size_t backlog_bytes_ = 0;
  std::uint64_t backlog_lost_ = 0;
  bool had_owner_ = false;
  int owners_ = 0;
  KeptOut kept_out_;
  bool stopped_ = false;
};

}  // namespace dt::supervisor
