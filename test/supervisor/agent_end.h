/// A test's own agent: records a link's messages and answers a few of them.
#pragma once

#include <algorithm>
#include <boost/asio/local/connect_pair.hpp>
#include <memory>
#include <optional>
#include <vector>

#include "core/protocol/control_messages.h"
#include "io/frame_channel.h"
#include "launcher/backend/backend.h"
#include "test/supervisor/loop.h"

namespace dt::test {

/// The agent's end of one connection: collects what the link sends.
struct AgentEnd {
  AgentEnd(Loop& loop, io::UnixSocket socket, bool started, bool alive)
      : with_start(started),
        obeys(alive),
        channel(loop.context.get_executor(), io::unix_stream(std::move(socket))) {
    loop.group.spawn(read());
    loop.group.spawn(channel.write_loop());
  }
  io::awaitable<void> read() {
    for (;;) {
      auto frame = co_await channel.receive();
      if (!frame) break;
      types.push_back(frame->type);
      if (frame->type == Shutdown::kType) {
        const auto shutdown = wire::parse<Shutdown>(frame->body);
        takes_over = shutdown->takes_over;
        grace = shutdown->grace_ms;
      }
      if (obeys && frame->type == AgentHello::kType) say_state();
      if (obeys && frame->type == Shutdown::kType) channel.close();
    }
    closed = true;
  }
  void say_state() {
    AgentState state;
    state.boot_id = "boot";
    state.incarnation = 7;
    channel.send(state);
  }
  [[nodiscard]] bool was_told(std::uint16_t type) const {
    return std::find(types.begin(), types.end(), type) != types.end();
  }
  bool with_start;
  bool obeys;  ///< Answers AgentHello and closes on Shutdown by itself.
  io::FrameChannel channel;
  std::vector<std::uint16_t> types;
  std::optional<std::uint32_t> grace;
  bool takes_over = false;
  bool closed = false;
};

/// A backend's open(): a connection whose other end is appended to `ends`.
inline std::unique_ptr<io::ByteStream> make_job_control(
    Loop& loop, const std::vector<std::string>& argv, std::vector<std::unique_ptr<AgentEnd>>& ends,
    bool obeys = false) {
  io::UnixSocket ours(loop.context);
  io::UnixSocket theirs(loop.context);
  io::asio::local::connect_pair(ours, theirs);
  const bool started = std::find(argv.begin(), argv.end(), "--start") != argv.end();
  ends.push_back(std::make_unique<AgentEnd>(loop, std::move(theirs), started, obeys));
  return io::unix_stream(std::move(ours));
}

}  // namespace dt::test
