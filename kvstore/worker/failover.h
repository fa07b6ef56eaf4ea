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
  /// All of them outlive this.
  Failover(const ClientOptions& options, ServerLinks& links, Dispatch& dispatch, KeyTable& keys,
           MemorySharing& memory, KeyInit& key_init, EventLoop& loop, KeyInit::Connected connected)
      : options_(options),
        links_(links),
        dispatch_(dispatch),
        keys_(keys),
        memory_(memory),
        key_init_(key_init),
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

  const ClientOptions& options_;
  ServerLinks& links_;
  Dispatch& dispatch_;
  KeyTable& keys_;
  MemorySharing& memory_;
  KeyInit& key_init_;
  EventLoop& loop_;
  KeyInit::Connected connected_;

  // The loop's.
  bool is_leaving_ = false;
  unsigned changes_ = 0;
  std::vector<Request> unanswered_;  ///< Complete when no old server can touch their memory.
  StoreError error_;
};

}  // namespace dt::kv
