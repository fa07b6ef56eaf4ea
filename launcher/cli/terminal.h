/// dtlaunch's stdout and stderr, which may be slow (a pager that does not read) or gone.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <string>
#include <string_view>

#include "io/awaitable.h"
#include "io/log.h"

namespace dt::launcher {

/// The descriptors' own settings stay as they are: other processes share them.
class Terminal {
 public:
  explicit Terminal(boost::asio::any_io_executor executor);

  /// Writes everything; waits, without blocking the thread, while the reader is slow. False once
  /// the terminal is gone.
  io::awaitable<bool> write(bool is_stderr, std::string bytes);
  /// A line of dtlaunch's own on stderr, dropped when it cannot be taken at once.
  void say(io::Level level, std::string_view text);
  [[nodiscard]] bool is_gone() const { return gone_; }

 private:
  boost::asio::posix::stream_descriptor out_;
  boost::asio::posix::stream_descriptor err_;
  bool gone_ = false;
};

}  // namespace dt::launcher
