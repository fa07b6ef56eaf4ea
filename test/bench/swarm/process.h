/// A process of a swarm's host: it says what a dtserver, or a worker that trains with the kvstore,
/// says to the supervisor. It has no operating system process.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "core/protocol/control_messages.h"
#include "io/asio.h"
#include "test/bench/swarm/world.h"

namespace dt::swarm {

class Process {
 public:
  /// Passes a message on to the supervisor.
  using Say = std::function<void(wire::Frame)>;

  Process(io::asio::any_io_executor executor, World& world, ProcessId id, Say say)
      : world_(world), id_(id), say_(std::move(say)), wake_(std::move(executor)) {}
  virtual ~Process() = default;
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  [[nodiscard]] ProcessId id() const { return id_; }
  /// From its start to its end.
  virtual io::awaitable<ExitStatus> live() = 0;
  /// A message of the supervisor.
  virtual void take(const ToProcess& message) = 0;
  /// live() returns soon, and says nothing more.
  void end() {
    is_ending_ = true;
    wake_.cancel();
  }

 protected:
  template <class Message>
  void say(const Message& message) {
    if (!is_ending_) say_(wire::Frame{Message::kType, wire::body_of(message)});
  }
  [[nodiscard]] bool is_ending() const { return is_ending_; }
  /// Until then, or until something has come.
  io::awaitable<void> pause_until(Time until);
  void wake() { wake_.cancel(); }

  World& world_;

 private:
  ProcessId id_;
  Say say_;
  io::asio::steady_timer wake_;
  bool is_ending_ = false;
};

/// Null for a role that a swarm has not. `address`: the host's.
[[nodiscard]] std::unique_ptr<Process> make_process(io::asio::any_io_executor executor,
                                                    World& world, ProcessId id, std::string address,
                                                    Process::Say say);

}  // namespace dt::swarm
