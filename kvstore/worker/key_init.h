/// Creates a worker's keys: registers them, gets the key table, allocates staging for large chunks,
/// and has every chunk created on its server.
///
/// The caller's thread; calls wait for the servers' answers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kvstore/worker/key_table.h"
#include "kvstore/worker/links/request.h"
#include "kvstore/worker/member_state.h"
#include "kvstore/worker/memory_sharing.h"

namespace dt::kv {

class Dispatch;
class ServerLinks;

class KeyInit {
 public:
  /// Waits, on the caller's thread, until all used links are connected; else an error with the
  /// reason.
  using Connected = std::function<Status()>;

  /// All of them outlive this.
  KeyInit(const ClientOptions& options, KeyTable& keys, ServerLinks& links, Dispatch& dispatch,
          MemorySharing& memory, const MemberState& member, Connected connected)
      : options_(options),
        keys_(keys),
        links_(links),
        dispatch_(dispatch),
        memory_(memory),
        member_(member),
        connected_(std::move(connected)) {}

  /// Implements Store::init().
  Status init(const Keys& keys, const Arrays& values, std::uint8_t flags);
  /// Learns all keys that the servers know. The servers have the values.
  Status learn_all();

 private:
  /// Afterwards the keys are complete, except that their chunks may not exist on the servers yet.
  Status register_keys(const data::RegisterKeys& wanted);
  /// Connects to the loops that own chunks of these keys.
  Status reach_owners(std::span<const KeyTable::Key> keys);
  Status create(std::vector<Request> requests);

  const ClientOptions& options_;
  KeyTable& keys_;
  ServerLinks& links_;
  Dispatch& dispatch_;
  MemorySharing& memory_;
  const MemberState& member_;
  Connected connected_;
};

}  // namespace dt::kv
