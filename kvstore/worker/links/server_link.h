/// A worker's connection to one loop of one server: connects, authenticates, sends requests by
/// priority, matches answers; after the connection breaks it reconnects and resends unanswered
/// requests.
///
/// Everything happens on the thread that drives the event loop.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "core/protocol/control_messages.h"
#include "io/log.h"
#include "kvstore/link/data_auth.h"
#include "kvstore/link/tcp.h"
#include "kvstore/protocol/layout.h"
#include "kvstore/protocol/messages.h"
#include "kvstore/worker/links/in_flight.h"
#include "kvstore/worker/links/request.h"

namespace dt::kv {

class EventLoop;
class ServerLinks;

class ServerLink final : private FrameSink {
 public:
  /// The store that the link belongs to.
  class Owner {
   public:
    virtual void on_answer(ServerLink& link, Request request, Outcome outcome) = 0;
    /// The link has failed after it was connected: for longer than the limit there was no
    /// connection, or none with an answer; or the server refused to map this worker's memory after
    /// a reconnection.
    virtual void on_lost(ServerLink& link, const std::string& why) = 0;
    /// After finish(): the connection has ended; nothing more is received.
    virtual void on_ended(ServerLink& link) = 0;
    [[nodiscard]] virtual Generation generation() const = 0;
    /// A gradient of the chunk was encoded.
    virtual void on_encoded(const ChunkState& chunk, GradientEncoder& encoder,
                            const Compression& how) = 0;

   protected:
    ~Owner() = default;
  };
  struct Options {
    WorkerId worker;
    std::string secret;
    Duration lost_limit{};
    unsigned unanswered_beats = 6;  ///< Calls of beat() until a silent connection is ended.
    DataAuth data_auth = DataAuth::kAuto;
    io::Log* connections = nullptr;  ///< Gets a line when one comes or goes; may be null.
  };

  /// To the loop `to` of the server at this address. References outlive the link; run() is spawned
  /// by the caller.
  ServerLink(Options options, ServerAddress address, LoopId to, ServerLinks& links, Owner& owner,
             EventLoop& loop);

  /// Serves the connection until finish().
  io::awaitable<void> run();
  /// Queues a request; push_out() sends it. kFinish is sent after all contributions announced
  /// before.
  void enqueue(Request request);
  /// A contribution will be enqueued here later.
  void announce_contribution() { ++contributions_unsent_; }
  /// An announced contribution will not be enqueued.
  void retract_contribution() { --contributions_unsent_; }
  void push_out();
  /// To be called at a steady pace. Sends a heartbeat, which the server answers; while other frames
  /// are queued, only if the last heartbeat was answered. Unless it `is_sign_of_life`, one is sent
  /// only now and then, while requests are unanswered and no byte moves: a frame that was removed
  /// behind all others shows at the next one's tag. A connection on which a heartbeat is unanswered
  /// and no byte moves is ended.
  void beat(bool is_sign_of_life);
  /// If no request was answered at the last two calls of beat(): of those that may wait for other
  /// workers, the one of the lowest key; null: none.
  [[nodiscard]] const Request* lowest_unanswered();
  /// Whether bytes arrived since the last call, not counting a handshake's.
  [[nodiscard]] bool take_heard();
  /// Ends the connection for good; returns all unanswered requests. `leaves`: if the server maps
  /// this worker's memory, the connection ends only after the server has read the end of the stream
  /// and no longer touches the memory.
  std::vector<Request> finish(bool leaves);
  /// There is no connection.
  [[nodiscard]] bool has_ended() const { return !link_; }
  /// No memory was announced to the server, it refused all of it, or it ended the connection in
  /// answer to finish(). If the connection ended otherwise, the server may still map the memory.
  [[nodiscard]] bool has_let_go() const { return held_ == 0; }

  [[nodiscard]] LoopId to() const { return to_; }
  [[nodiscard]] const ServerAddress& address() const { return address_; }
  /// "server 1 at 10.0.0.2 port 4000"
  [[nodiscard]] std::string name() const;
  /// The number of epochs that all workers had finished when this worker last synchronised.
  std::uint64_t phase = 0;

 private:
  Result<std::byte*> begin(const data::Header& header) override;
  Result<void> end() override;
  void idle() override;

  io::awaitable<Result<std::shared_ptr<TcpConnection>>> dial();
  io::awaitable<Result<TcpSocket>> connect();
  io::awaitable<Result<std::shared_ptr<TcpConnection>>> prove(std::shared_ptr<TcpConnection> link);
  io::awaitable<Error> talk(std::shared_ptr<TcpConnection> link);
  io::awaitable<void> write(std::shared_ptr<TcpConnection> link);
  void show(const std::string& what) const;
  void share_again();
  void shared_again(const Outcome& outcome);
  void send_again();
  void fill_window();
  void transmit(const Request& request);

  Options options_;
  ServerAddress address_;
  LoopId to_;
  ServerLinks& links_;
  Owner& owner_;
  EventLoop& loop_;
  std::shared_ptr<TcpConnection> link_;  ///< Null while it is not connected.
  bool was_connected_ = false;
  bool is_closed_ = false;
  bool was_deceived_ = false;  ///< data::ClientProof::was_deceived, for the next connection.

  bool is_heard_ = false;  ///< The present or last connection brought an answer, not only beats.
  unsigned unanswered_for_ = 0;  ///< Calls of beat() since a request was answered.
  bool awaits_beat_ = false;     ///< The server has not answered the last beat.
  unsigned still_beats_ = 0;     ///< Calls of beat() since a byte moved, other than those of beats.
  std::uint64_t bytes_moved_ = 0;  ///< On the connection, after the last beat().
  std::size_t bytes_unacked_ = 0;  ///< By the peer's kernel, before the last beat().
  std::uint64_t bytes_told_ =
      0;  ///< Read from the present connection when take_heard() was called.

  SentRequests sent_;
  std::map<std::int64_t, std::deque<Request>> ready_;  ///< By -priority.
  std::deque<Request> last_;                           ///< kFinish.
  std::size_t contributions_unsent_ = 0;
  std::size_t held_ = 0;     ///< Memories announced on the last connection that were not refused.
  bool is_leaving_ = false;  ///< This side has ended its stream; the server answers with its end.
  /// kShare requests that the server accepted, by the memory's number. Resent with number 0.
  std::map<std::uint32_t, Request> shared_;
  std::size_t unmapped_ = 0;  ///< Requests in shared_ not yet accepted on this connection.

  // The answer that is arriving.
  data::Header arriving_;
  std::string text_;
  Request* answered_ = nullptr;  ///< The request that it answers; null: none, it is skipped.
  bool is_direct_ = false;       ///< It goes to the caller's memory.
};

}  // namespace dt::kv
