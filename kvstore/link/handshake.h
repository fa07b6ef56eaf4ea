/// Mutual authentication of a data connection, before any other frame.
///
///     server -> client   Challenge(nonce_s)
///     client -> server   ClientProof(server, worker, loop, nonce_c, HMAC("client", ...))
///     server -> client   ServerProof(loops, HMAC("server", ...))
///
/// The HMAC covers both nonces, the role's name and both ends' ids: a proof cannot be replayed (the
/// nonces are fresh), reflected (the role differs) or used for another worker or server.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.h"
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
};

[[nodiscard]] std::string client_mac(std::string_view secret, const Transcript& transcript);
[[nodiscard]] std::string server_mac(std::string_view secret, const Transcript& transcript,
                                     std::uint32_t loops);
/// Takes a time that does not depend on where they differ.
[[nodiscard]] bool same_mac(std::string_view a, std::string_view b);

}  // namespace dt::kv
