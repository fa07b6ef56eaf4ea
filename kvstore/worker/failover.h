/// What a worker does when the supervisor replaces the servers after one was lost. All requests to
/// the old servers fail, each once and without delay. At its next boundary the worker connects to
/// the new servers, which have the values of a checkpoint, and gets the key table from them.
///
///     connected --a newer list--> leaving --the old connections have ended--> left
///         ^                          all calls: DTKV_ROLLBACK                   |
///         `------------- reconnect(): connect, keys, memory, chunks ----------------'
///
/// A list that comes at any point takes the place of the one before it.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kvstore/worker/key_init.h"

namespace dt::kv {

class EventLoop;

class Failover {
 public:
  /// Waits, on the caller's thread, until the servers are connected; else an error with the reason.
  using Connected = std::function<Status()>;

  struct Options {
    std::uint64_t chunk_bytes = 0;
    WorkerId worker;
    /// How long lost servers of this host may keep this worker's memory.
    Duration let_go_limit{};
    /// Called after let_go_limit, on the loop. The old servers may still write into the caller's
    /// memory, so the process must not continue.
    std::function<void(const std::string& why)> end_process;
  };

  Failover(Options options, ServerLinks& links, Dispatch& dispatch, KeyTable& keys,
           MemorySharing& memory, KeyInit& setup, EventLoop& loop, Connected connected)
      : options_(std::move(options)),
        links_(links),
        dispatch_(dispatch),
        keys_(keys),
        memory_(memory),
        setup_(setup),
        loop_(loop),
        connected_(std::move(connected)) {}

  // ---- the loop
  /// The supervisor's list of servers; the same list may come twice.
  void on_servers(const Servers& servers);
  /// After leave(): a connection has ended, or copies to or from devices have.
  void on_ended();

  // ---- the caller
  /// After DTKV_ROLLBACK: connects to the newest servers. Compression residuals are dropped; the
  /// keys are those that the servers know.
  Status reconnect();

 private:
  Status begin_anew();
  void end_if_held(unsigned change);

  Options options_;
  ServerLinks& links_;
  Dispatch& dispatch_;
  KeyTable& keys_;
  MemorySharing& memory_;
  KeyInit& setup_;
  EventLoop& loop_;
  Connected connected_;

  // The loop's.
  bool is_leaving_ = false;
  unsigned changes_ = 0;
  std::vector<Request> unanswered_;  ///< Complete when no old server can touch their memory.
  StoreError error_;
};

}  // namespace dt::kv
