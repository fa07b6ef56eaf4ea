/// A server's listening socket: each connection has a bounded time to prove that it knows the job's
/// secret (link/handshake.h), and is then passed to on_admitted. The number of connections that
/// have not authenticated is bounded.
///
/// The first loop's thread, once started.
#pragma once

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "io/asio.h"
#include "kvstore/link/frame_tags.h"
#include "kvstore/link/tcp.h"
#include "kvstore/server/server_options.h"

namespace dt::kv {

class EventLoop;

class Listener {
 public:
  /// A worker's connection to one of the server's loops. The descriptor is the receiver's.
  struct Admitted {
    std::uint32_t loop = 0;
    WorkerId worker;
    std::optional<FrameKeys> keys;  ///< None: frames have no tags.
    bool was_deceived = false;      ///< data::ClientProof::was_deceived
    io::asio::ip::tcp protocol = io::asio::ip::tcp::v4();
    int descriptor = -1;
  };
  using OnAdmitted = std::function<void(const Admitted&)>;

  /// `options` and `loop` outlive this.
  Listener(const ServerOptions& options, EventLoop& loop, OnAdmitted on_admitted);

  /// Listens; to be called before the loop runs. The error is a message for the user.
  Result<void> start();
  void close();

  // ---- any thread, once started
  [[nodiscard]] std::uint16_t port() const { return port_; }
  /// Connections that did not authenticate.
  [[nodiscard]] std::uint64_t refused() const { return refused_; }

 private:
  io::awaitable<void> accept();
  io::awaitable<void> admit(std::shared_ptr<TcpConnection> link);
  /// Its protocol and descriptor are not known yet.
  io::awaitable<Result<Admitted>> authenticate(std::shared_ptr<TcpConnection> link);

  const ServerOptions& options_;
  EventLoop& loop_;
  OnAdmitted on_admitted_;
  io::asio::ip::tcp::acceptor acceptor_;
  std::deque<std::shared_ptr<TcpConnection>> strangers_;  ///< Oldest first.
  std::atomic<std::uint64_t> refused_ = 0;
  std::uint16_t port_ = 0;
};

}  // namespace dt::kv
