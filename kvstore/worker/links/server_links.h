/// A worker's connections to the loops of all servers: makes them, queues requests on them, asks
/// questions of some and waits for the answers, and ends them all when the store breaks.
///
/// There is a connection to the first loop of each server, and to those that connect_to() names. To
/// the others goes what all loops are asked by way of the first (kvstore/protocol/messages.h).
///
/// Threads: "the loop" is whoever runs the event loop (event_loop.h), "the caller" is the store's.
/// Which connections there are is settled when is_connected() was true once, until connect_anew().
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
  struct Options {
    WorkerId worker;
    std::string secret;
    Duration lost_limit{};
  };

  /// Everything outlives the links.
  ServerLinks(Options options, ServerLink::Owner& owner, EventLoop& loop);

  // ---- the loop
  /// Where the servers are: connects to the first list's. True: the list takes the place of the one
  /// that is connected to; leave() those servers, then connect_anew().
  [[nodiscard]] bool learn(const Servers& servers);
  /// Connects to the first loop of each server of the newest list; what was connected is forgotten.
  void connect_anew();
  /// The server has so many loops.
  void add_loops(std::uint32_t server, std::uint32_t loops);
  void note_trouble(const ServerLink& link, const std::string& trouble);
  /// Queues a request; push_out() sends what was queued.
  void send(ServerLink& link, Request request);
  void push_out();
  /// Shows life to each server.
  void beat();
  /// The servers of which bytes arrived since the last call.
  [[nodiscard]] std::vector<ServerId> take_heard();
  /// For good: nothing can be asked any more. What is unanswered comes back, with questions
  /// answered by the error.
  [[nodiscard]] std::vector<Request> close(const StoreError& error);
  /// The same until connect_anew(). A server that maps our memory may touch it as long as not
  /// have_ended().
  [[nodiscard]] std::vector<Request> leave(const StoreError& error);
  [[nodiscard]] bool have_ended() const;
  /// After leave(): a server whose connection has not ended, for people; empty: there is none.
  [[nodiscard]] std::string held_by() const;
  /// After leave(), once they have ended: no server has anything of our memory.
  [[nodiscard]] bool have_let_go() const;

  // ---- any thread
  /// Why they are closed; none: they are not.
  [[nodiscard]] std::optional<StoreError> error() const;
  [[nodiscard]] bool has_no_servers() const;
  [[nodiscard]] bool is_connected() const;
  /// Of the servers that are connected to (core/protocol/control_messages.h, Servers).
  [[nodiscard]] Generation since() const;
  [[nodiscard]] Epoch began_with() const;
  /// What is still missing, for people; empty: nothing.
  [[nodiscard]] std::string missing() const;

  // ---- the caller, once connected
  [[nodiscard]] ServerLink& at(LoopId loop) { return *links_[loop.server][loop.loop]; }
  /// Server 0's first loop: it owns the key table and the barrier.
  [[nodiscard]] ServerLink& first() { return at({0, 0}); }
  /// [server][loop]
  [[nodiscard]] std::vector<std::vector<ServerLink*>> by_loop() const;
  [[nodiscard]] std::vector<ServerLink*> all() const;
  /// Those that are connected to, or will be as soon as can be.
  [[nodiscard]] std::vector<ServerLink*> used() const;
  /// Of them, those that are not connected to so far; each once.
  [[nodiscard]] std::vector<ServerLink*> unused(std::vector<ServerLink*> of) const;
  /// Begins to connect to these; is_connected() is false until it has.
  void connect_to(const std::vector<ServerLink*>& links);
  /// Sends the request to each of the links; nobody needs to wait for the answers.
  StoreResult<Questions> tell(const std::vector<ServerLink*>& links, const Request& request);
  /// Waits for them as well. kTimeout: not everything came within the limit (0: none).
  StoreResult<Questions> ask(const std::vector<ServerLink*>& links, const Request& request,
                             Duration limit);
  /// Asks all links; an error among the answers is the result.
  StoreResult<Questions> ask_all(const Request& request, Duration limit);
  StoreResult<Outcome> ask_first(const Request& request, Duration limit);

 private:
  void begin(const std::shared_ptr<ServerLink>& link);
  [[nodiscard]] bool is_used(const ServerLink& link) const;
  io::awaitable<void> serve(std::shared_ptr<ServerLink> link);
  static std::vector<Request> give_up(std::vector<Request> unanswered, const StoreError& error);

  Options options_;
  ServerLink::Owner& owner_;
  EventLoop& loop_;

  std::vector<std::vector<std::shared_ptr<ServerLink>>> links_;  ///< [server][loop]
  std::vector<ServerLink*> to_push_out_;                         ///< The loop's.
  std::set<LoopId> used_;  ///< The caller's: beside the first ones.

  mutable std::mutex mutex_;
  // Under mutex_:
  std::optional<Servers> newest_;
  bool is_replaced_ = false;               ///< By newest_.
  std::optional<Servers> servers_;         ///< Connected to.
  std::map<LoopId, std::string> missing_;  ///< Not connected: why.
  std::optional<StoreError> error_;
};

}  // namespace dt::kv
