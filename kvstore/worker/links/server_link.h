/// A worker's connection to one loop of one server: dials, proves, sends requests by priority,
/// matches answers, and after a cut connects again and sends what is unanswered once more.
///
/// Everything happens on the thread that drives the event loop.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "core/protocol/control_messages.h"
#include "kvstore/link/tcp.h"
#include "kvstore/protocol/messages.h"
#include "kvstore/worker/links/in_flight.h"
#include "kvstore/worker/links/request.h"

namespace dt::kv {

class EventLoop;

class ServerLink final : private FrameSink {
 public:
  /// The store that the link belongs to.
  class Owner {
   public:
    virtual void on_answer(ServerLink& link, Request request, Outcome outcome) = 0;
    /// Everything that could be read was handed on.
    virtual void on_idle() = 0;
    /// The server said, for the first time, how many loops it has.
    virtual void on_loops(ServerLink& link, std::uint32_t loops) = 0;
    /// What keeps the link from being connected; empty: nothing any more.
    virtual void on_trouble(ServerLink& link, const std::string& trouble) = 0;
    /// The link is of no more use, once it was connected: for longer than the limit there was no
    /// connection, or none on which anything was answered; or the server maps our memory no more.
    virtual void on_lost(ServerLink& link, const std::string& why) = 0;
    /// After close() or leave(): the connection has ended, and with it what came over it.
    virtual void on_ended(ServerLink& link) = 0;
    [[nodiscard]] virtual Generation generation() const = 0;
    /// A gradient of the chunk was encoded.
    virtual void on_encoded(const ChunkState& chunk, GradientEncoder& encoder,
                            const Compression& how) = 0;

   protected:
    ~Owner() = default;
  };
  struct Options {
    ServerAddress address;
    std::uint32_t server = 0;  ///< Index of the server.
    std::uint32_t loop = 0;
    WorkerId worker;
    std::string secret;
    Duration lost_limit{};
  };

  /// `owner` and `loop` outlive the link; run() is spawned by the caller.
  ServerLink(Options options, Owner& owner, EventLoop& loop);

  /// Serves the connection until close().
  io::awaitable<void> run();
  /// Queues a request; push_out() sends. kFinish goes after every contribution announced before.
  void enqueue(Request request);
  /// A contribution will be enqueued here some time.
  void announce_contribution() { ++contributions_unsent_; }
  /// One that was announced will not be.
  void retract_contribution() { --contributions_unsent_; }
  void push_out();
  /// Shows life, which the server answers with its own; where something else is being said, only
  /// after the last such answer.
  void beat();
  /// Bytes arrived since the last call, those of a handshake apart.
  [[nodiscard]] bool take_heard();
  /// Ends the connection for good; every request that has no answer comes back.
  std::vector<Request> close();
  /// The same, but where the server maps our memory the connection ends when the server has heard
  /// of it, and touches the memory no more.
  std::vector<Request> leave();
  /// There is no connection.
  [[nodiscard]] bool has_ended() const { return !link_; }
  /// The server was told of no memory of ours, refused all of it, or has ended the connection in
  /// answer to leave(). One that ended otherwise may be some time with the server yet.
  [[nodiscard]] bool has_let_go() const { return held_ == 0; }

  [[nodiscard]] std::uint32_t server() const { return options_.server; }
  [[nodiscard]] std::uint32_t loop() const { return options_.loop; }
  [[nodiscard]] const ServerAddress& address() const { return options_.address; }
  /// The number of epochs that everybody had finished when this worker last synchronised.
  std::uint64_t phase = 0;

 private:
  Result<std::byte*> begin(const data::Header& header) override;
  Result<void> end() override;
  void idle() override;

  io::awaitable<Result<std::shared_ptr<TcpLink>>> dial();
  io::awaitable<Result<TcpSocket>> connect();
  io::awaitable<Result<std::shared_ptr<TcpLink>>> prove(std::shared_ptr<TcpLink> link);
  io::awaitable<Error> talk(std::shared_ptr<TcpLink> link);
  io::awaitable<void> write(std::shared_ptr<TcpLink> link);
  std::vector<Request> take_unanswered();
  void share_again();
  void shared_again(const Outcome& outcome);
  void send_again();
  void fill_window();
  void transmit(const Request& request);

  Options options_;
  Owner& owner_;
  EventLoop& loop_;
  std::shared_ptr<TcpLink> link_;  ///< Null while it is not connected.
  bool was_connected_ = false;
  bool is_closed_ = false;

  bool is_heard_ = false;     ///< The present or last connection brought an answer, not only beats.
  bool awaits_beat_ = false;  ///< The server has not answered the last beat.
  std::uint64_t bytes_told_ =
      0;  ///< Read from the present connection when take_heard() was called.

  SentRequests sent_;
  std::map<std::int64_t, std::deque<Request>> ready_;  ///< By -priority.
  std::deque<Request> last_;                           ///< kFinish.
  std::size_t contributions_unsent_ = 0;
  std::size_t held_ = 0;     ///< Memories it was told of on the last connection, and not refused.
  bool is_leaving_ = false;  ///< It was told of the end, which it answers with its own.
  /// kShare requests it agreed to, by the memory's number. Sent again with number 0.
  std::map<std::uint32_t, Request> shared_;
  std::size_t unmapped_ = 0;  ///< Of shared_, those not yet agreed to on this connection.

  // The answer that is arriving.
  data::Header arriving_;
  std::string text_;
  Request* answered_ = nullptr;  ///< What it answers; null: nobody waits for it.
  bool is_direct_ = false;       ///< It goes to the caller's memory.
};

}  // namespace dt::kv
