/// Mutual authentication of a data connection, before any other frame.
///
///     server -> client   Challenge(nonce_s)
///     client -> server   ClientProof(server, worker, loop, wants_tags, nonce_c, HMAC("client",
///     ...)) server -> client   ServerProof(loops, has_tags, HMAC("server", ...))
///
/// The HMAC covers both nonces, the role's name, both ends' ids and what each says: a proof cannot
/// be replayed (the nonces are fresh), reflected (the role differs), used for another worker or
/// server, or changed. So whether frames have tags is agreed: if either end requires them, they
/// have, and who alters that on the way ends the connection.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.h"
#include "kvstore/link/frame_tags.h"
#include "kvstore/protocol/messages.h"

namespace dt::kv {

/// kNonceBytes from the system's random source.
[[nodiscard]] std::string fresh_nonce();

struct Transcript {
  std::string server_nonce;
  std::string client_nonce;
  ServerId server;
  WorkerId worker;
  std::uint32_t loop = 0;
  bool wants_tags = false;
  bool was_deceived = false;
};

[[nodiscard]] std::string client_mac(std::string_view secret, const Transcript& transcript);
/// `answer`: all but its mac.
[[nodiscard]] std::string server_mac(std::string_view secret, const Transcript& transcript,
                                     const data::ServerProof& answer);
/// The keys of the connection's frames: no other connection has them.
[[nodiscard]] FrameKeys frame_keys(std::string_view secret, const Transcript& transcript,
                                   const data::ServerProof& answer);
/// Takes a time that does not depend on where they differ.
[[nodiscard]] bool same_mac(std::string_view a, std::string_view b);

}  // namespace dt::kv
