/// A wire one can cut, hold, read and change: connections to its port go on to another one.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "io/fd.h"

namespace dt::test {

class Proxy {
 public:
  /// What goes on instead of the bytes of one direction of a connection (counted from 0).
  using Change = std::function<std::string(std::size_t connection, bool to_server, std::string)>;

  /// `change`: its calls for one direction of one connection are in order; others come at the same
  /// time. What it uses must outlive the proxy. `receive_buffer`: the kernel's buffer of unread
  /// bytes; 0: its default.
  explicit Proxy(std::uint16_t to, Change change = {}, int receive_buffer = 0)
      : to_(to), change_(std::move(change)), listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0)
      ::setsockopt(listener_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in at = address(0);
    if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) != 0 ||
        ::listen(listener_.get(), 16) != 0)
      throw std::runtime_error("proxy: cannot listen");
    socklen_t size = sizeof at;
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&at), &size);
    port_ = ntohs(at.sin_port);
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~Proxy() {
    closing_ = true;
    hold(false);
    hold_answers(false);
    ::shutdown(listener_.get(), SHUT_RDWR);
    acceptor_.join();
    cut();
    for (auto& t : pumps_) t.join();
  }

  [[nodiscard]] std::uint16_t port() const { return port_; }
  /// Ends every connection.
  void cut() {
    std::lock_guard lock(mutex_);
    for (auto& pair : pairs_) {
      ::shutdown(pair->client.get(), SHUT_RDWR);
      ::shutdown(pair->server.get(), SHUT_RDWR);
    }
  }
  /// While held, no byte passes from clients to servers, nor does a client's end of stream.
  void hold(bool on) {
    {
      std::lock_guard lock(mutex_);
      held_ = on;
    }
    released_.notify_all();
  }
  /// While held, no byte passes from servers to clients.
  void hold_answers(bool on) {
    {
      std::lock_guard lock(mutex_);
      answers_held_ = on;
    }
    released_.notify_all();
  }
  /// Connections made from now on end with the first bytes after the handshake.
  void end_after_handshake() { doomed_ = true; }
  /// The clients' bytes so far, per connection in the order in which they were made.
  [[nodiscard]] std::vector<std::string> said() {
    std::lock_guard lock(mutex_);
    std::vector<std::string> out;
    for (auto& pair : pairs_) out.push_back(pair->said);
    return out;
  }

  /// The number of connections so far whose handshake is over: the client has the server's proof,
  /// or will read it before the end of a connection that is cut now.
  [[nodiscard]] std::size_t handshakes() {
    std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(
        std::count_if(pairs_.begin(), pairs_.end(), [](const auto& pair) {
          const std::string_view answered(pair->answered);
          const std::size_t challenge = first_frame(answered);
          return answered.size() > challenge &&
                 answered.size() >= challenge + first_frame(answered.substr(challenge));
        }));
  }

 private:
  /// More bytes than a server sends in a handshake.
  static constexpr std::size_t kHandshake = 4096;

  struct Pair {
    io::Fd client;
    io::Fd server;
    std::string said;
    std::string answered;  ///< The bytes passed to the client, at least their beginning.
    bool is_doomed = false;
    std::size_t number = 0;
  };

  /// Bytes of the frame that begins here: the client's proof, the server's challenge or proof.
  static std::size_t first_frame(std::string_view said) {
    std::uint32_t size = 0;
    if (said.size() < sizeof size) return sizeof size;
    std::memcpy(&size, said.data(), sizeof size);
    return sizeof size + size;
  }

  static sockaddr_in address(std::uint16_t port) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons(port);
    return at;
  }

  void accept_all() {
    while (!closing_) {
      io::Fd client(::accept(listener_.get(), nullptr, nullptr));
      if (!client) return;
      io::Fd server(::socket(AF_INET, SOCK_STREAM, 0));
      sockaddr_in at = address(to_);
      if (::connect(server.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) != 0) continue;
      std::lock_guard lock(mutex_);
      auto& pair = pairs_.emplace_back(std::make_unique<Pair>());
      pair->client = std::move(client);
      pair->server = std::move(server);
      pair->is_doomed = doomed_;
      pair->number = pairs_.size() - 1;
      pumps_.emplace_back(
          [this, p = pair.get()] { pump(p, p->client.get(), p->server.get(), true); });
      pumps_.emplace_back(
          [this, p = pair.get()] { pump(p, p->server.get(), p->client.get(), false); });
    }
  }

  void pump(Pair* pair, int from, int to, bool to_server) {
    std::string buffer(1 << 16, '\0');
    bool has_ended = false;  // in an orderly way: the other direction continues
    for (;;) {
      const ssize_t n = ::recv(from, buffer.data(), buffer.size(), 0);
      has_ended = n == 0;
      if (n <= 0) break;
      if (to_server) {
        std::unique_lock lock(mutex_);
        released_.wait(lock, [this] { return !held_; });
        pair->said.append(buffer.data(), static_cast<std::size_t>(n));
        if (pair->is_doomed && pair->said.size() > first_frame(pair->said)) break;
      } else {
        std::unique_lock lock(mutex_);
        released_.wait(lock, [this] { return !answers_held_; });
      }
      std::string bytes(buffer.data(), static_cast<std::size_t>(n));
      if (change_) bytes = change_(pair->number, to_server, std::move(bytes));
      if (::send(to, bytes.data(), bytes.size(), MSG_NOSIGNAL) != std::ssize(bytes)) break;
      std::lock_guard lock(mutex_);
      if (!to_server && pair->answered.size() < kHandshake)
        pair->answered.append(buffer.data(), static_cast<std::size_t>(n));
    }
    if (to_server) {
      std::unique_lock lock(mutex_);
      released_.wait(lock, [this] { return !held_; });
    }
    if (!has_ended) ::shutdown(from, SHUT_RDWR);
    ::shutdown(to, has_ended ? SHUT_WR : SHUT_RDWR);
  }

  std::uint16_t to_;
  Change change_;
  io::Fd listener_;
  std::uint16_t port_ = 0;
  std::atomic<bool> closing_ = false;
  std::atomic<bool> doomed_ = false;
  std::mutex mutex_;
  std::condition_variable released_;
  bool held_ = false;
  bool answers_held_ = false;
  std::vector<std::unique_ptr<Pair>> pairs_;
  std::vector<std::thread> pumps_;
  std::thread acceptor_;
};

}  // namespace dt::test
