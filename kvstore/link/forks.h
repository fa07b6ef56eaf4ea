/// What fork() must not pass on: a connection that is also open in a child hides this process's
/// death from the servers, and two processes must not use one connection.
///
/// A handler that fork() runs in the child (pthread_atfork) closes every descriptor of the stores.
/// It only makes system calls: other threads may have held any lock but this file's. Programs that
/// are started by exec inherit nothing, since all descriptors are close-on-exec.
#pragma once

#include <cstdint>

#include "core/base/result.h"
#include "io/asio.h"

namespace dt::kv {

/// Number of forks between the process that first called this and this process. An object of a
/// process with another number belongs to a parent. Installs the handler.
[[nodiscard]] std::uint32_t fork_count();

/// A descriptor that a child closes. Any thread.
class ClosedInChild {
 public:
  /// `fd` stays open for this object's lifetime.
  explicit ClosedInChild(int fd);
  ~ClosedInChild();
  ClosedInChild(const ClosedInChild&) = delete;
  ClosedInChild& operator=(const ClosedInChild&) = delete;

 private:
  int fd_;
};

/// An event loop whose descriptors a child closes: those that it waits for (sockets, timer,
/// wake-up), whenever they were opened, and its epoll set. The kernel lists them in
/// /proc/self/fdinfo; without /proc a child keeps them.
class ContextClosedInChild {
 public:
  /// Before any thread runs `context`, which outlives this object.
  explicit ContextClosedInChild(io::asio::io_context& context);
  ~ContextClosedInChild();
  ContextClosedInChild(const ContextClosedInChild&) = delete;
  ContextClosedInChild& operator=(const ContextClosedInChild&) = delete;

 private:
  int epoll_;  ///< -1: not found.
};

}  // namespace dt::kv
