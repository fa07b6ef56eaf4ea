// A stranger on a server's port that sends anything instead of a proof: it gets only the challenge,
// is counted, and the server continues.

#include <arpa/inet.h>
#include <openssl/crypto.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "io/fd.h"
#include "io/log.h"
#include "kvstore/protocol/messages.h"
#include "kvstore/server/server.h"
#include "test/fuzz/target.h"

using namespace dt;

namespace {

/// The server's whole answer to a stranger that sends `bytes` and ends.
std::string answers_to(std::string_view bytes, std::uint16_t port) {
  const io::Fd fd(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  at.sin_port = htons(port);
  DT_CHECK(::connect(fd.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) == 0, "connect");
  const timeval limit{20, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) break;  // it was closed
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  ::shutdown(fd.get(), SHUT_WR);
  std::string said;
  for (char part[512];;) {
    const ssize_t n = ::recv(fd.get(), part, sizeof part, 0);
    if (n == 0 || (n < 0 && errno == ECONNRESET)) return said;
    if (n < 0 && errno == EINTR) continue;  // the fuzzer's timer
    DT_CHECK(n > 0, "the server closes the connection in time");
    said.append(part, static_cast<std::size_t>(n));
  }
}

}  // namespace

DT_FUZZ_TARGET(handshake)
(const std::uint8_t* bytes, std::size_t size) {
  static const auto server = [] {
    // Before the server's threads do it: cleanup runs in reverse order of initialisation.
    OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CONFIG, nullptr);
    kv::ServerOptions options;
    options.secret = std::string(32, 's');
    options.loops = 2;
    return std::move(*kv::Server::start(options));
  }();
  static std::uint64_t strangers = 0;
  const std::string said = answers_to({reinterpret_cast<const char*>(bytes), size}, server->port());
  const std::string challenge = wire::frame(data::Challenge{data::kVersion, std::string(32, 'n')});
  DT_CHECK(said.size() <= challenge.size(), "a stranger hears the challenge and no more");
  DT_CHECK(server->counters().refused_strangers == ++strangers, "a stranger is counted");
  return 0;
}
