/// A worker's connections to the loops of all servers: creates them, queues requests on them, sends
/// queries and waits for the answers, and ends them all when the store breaks.
///
/// There is a connection to the first loop of each server, and to the loops that connect_to()
/// names. A request to all loops of a server reaches the others by way of the first
/// (kvstore/protocol/messages.h).
///
/// Threads: "the loop" is the thread that runs the event loop (event_loop.h), "the caller" is the
/// store's caller. The set of connections is fixed once is_connected() has returned true, until
/// connect_again().
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/protocol/control_messages.h"
#include "kvstore/protocol/layout.h"
#include "kvstore/worker/links/request.h"
#include "kvstore/worker/links/server_link.h"

namespace dt::kv {

class ServerLinks {
 public:
  /// Everything outlives the links.
  ServerLinks(ServerLink::Options options, ServerLink::Owner& owner, EventLoop& loop)
      : options_(std::move(options)), owner_(owner), loop_(loop) {}

  // ---- the loop
  /// The servers' addresses. Connects to the servers of the first list. True: the list replaces the
  /// present servers: call leave(), then connect_again().
  [[nodiscard]] bool learn(const Servers& servers);
  /// Connects to the first loop of each server of the newest list and drops the old links.
  void connect_again();
  /// The server has so many loops.
  void add_loops(std::uint32_t server, std::uint32_t loops);
  void note_trouble(const ServerLink& link, const std::string& trouble);
  /// Queues a request; push_out() sends what was queued.
  void send(ServerLink& link, Request request);
  void push_out();
  /// Sends a heartbeat to each server, and on each connection that stands still.
  void beat();
  /// ServerLink::lowest_unanswered() of all.
  [[nodiscard]] const Request* lowest_unanswered() const;
  /// The servers that sent bytes since the last call.
  [[nodiscard]] std::vector<ServerId> take_heard();
  /// Ends all connections for good. Returns the unanswered requests; the error answers queries.
  [[nodiscard]] std::vector<Request> close(const StoreError& error) { return finish(error, false); }
  /// The same until connect_again(). A server that maps this worker's memory may touch it until
  /// have_ended().
  [[nodiscard]] std::vector<Request> leave(const StoreError& error) { return finish(error, true); }
  [[nodiscard]] bool have_ended() const;
  /// After leave(): a server whose connection has not ended, as text for messages; empty: none.
  [[nodiscard]] std::string held_by() const;
  /// After leave(), once have_ended(): no server maps this worker's memory.
  [[nodiscard]] bool have_let_go() const;

  // ---- any thread
  /// Why they are closed; none: they are not.
  [[nodiscard]] std::optional<StoreError> error() const { return locked(error_); }
  [[nodiscard]] bool is_connected() const;
  /// The servers that it connects to; none: they are not known yet. Once known they stay known.
  [[nodiscard]] std::optional<Servers> servers() const { return locked(servers_); }
  /// The servers not connected yet, as text for messages; empty: none.
  [[nodiscard]] std::string missing() const;

  // ---- the caller, once connected
  [[nodiscard]] ServerLink& at(LoopId loop) { return *links_[loop.server][loop.loop]; }
  /// Server 0's first loop: it owns the key table and the barrier.
  [[nodiscard]] ServerLink& first() { return at({0, 0}); }
  /// [server][loop]
  [[nodiscard]] std::vector<std::vector<ServerLink*>> by_loop() const;
  [[nodiscard]] std::vector<ServerLink*> all() const;
  /// The links that are connected or connecting.
  [[nodiscard]] std::vector<ServerLink*> used() const;
  /// Begins to connect those that are not used() yet; is_connected() is false until all are
  /// connected.
  void connect_to(const std::set<ServerLink*>& links);
  /// Sends the request to each of the links and does not wait for the answers.
  StoreResult<Queries> tell(const std::vector<ServerLink*>& links, const Request& request);
  /// Waits for the answers as well. kTimeout: an answer is missing after the limit (0: no limit).
  StoreResult<Queries> ask(const std::vector<ServerLink*>& links, const Request& request,
                           Duration limit);
  /// Sends to all links; an error among the answers is the result.
  StoreResult<Queries> ask_all(const Request& request, Duration limit);
  StoreResult<Outcome> ask_first(const Request& request, Duration limit);

 private:
  template <class T>
  [[nodiscard]] T locked(const T& member) const {
    const std::lock_guard lock(mutex_);
    return member;
  }
  void begin(const std::shared_ptr<ServerLink>& link);
  [[nodiscard]] bool is_used(const ServerLink& link) const;
  io::awaitable<void> serve(std::shared_ptr<ServerLink> link);
  std::vector<Request> finish(const StoreError& error, bool leaves);

  ServerLink::Options options_;
  ServerLink::Owner& owner_;
  EventLoop& loop_;

  std::vector<std::vector<std::shared_ptr<ServerLink>>> links_;  ///< [server][loop]
  std::vector<ServerLink*> to_push_out_;                         ///< The loop's.
  std::set<LoopId> used_;  ///< The caller's: in addition to the first loops.

  mutable std::mutex mutex_;
  // Under mutex_:
  std::optional<Servers> newest_;
  bool is_replaced_ = false;               ///< newest_ replaces servers_.
  std::optional<Servers> servers_;         ///< Connected to.
  std::map<LoopId, std::string> missing_;  ///< Why a used loop is not connected.
  std::optional<StoreError> error_;
};

}  // namespace dt::kv
