/// A plain socket to a server that sends arbitrary bytes, authenticated or not.
#pragma once

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <string_view>

#include "io/fd.h"
#include "kvstore/link/handshake.h"
#include "kvstore/protocol/messages.h"
#include "test/kvstore/cluster.h"
#include "test/support/catch.h"

namespace dt::test {

inline std::string_view payload_of(const data::SharedPlaces& places) {
  return {reinterpret_cast<const char*>(&places), sizeof places};
}

class Stranger {
 public:
  explicit Stranger(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons(port);
    REQUIRE(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
    const timeval limit{10, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  void say(std::string_view bytes) {
    (void)::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  /// Like say(), but sends only as much as is possible without waiting; returns the number of
  /// bytes.
  std::size_t say_some(std::string_view bytes) {
    const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return n > 0 ? static_cast<std::size_t>(n) : 0;
  }
  std::string hear(std::size_t n) {
    std::string out(n, '\0');
    const ssize_t got = ::recv(fd_.get(), out.data(), n, MSG_WAITALL);
    out.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return out;
  }
  template <class Message>
  Message hear_message() {
    const std::string head = hear(wire::kFrameHeader);
    wire::Reader reader(head);
    std::uint32_t size = 0;
    reader.get(size);
    REQUIRE(size >= 2);
    return *wire::parse<Message>(hear(size - 2));
  }
  /// Reads the rest; true if the other side closed within the limit.
  bool is_closed() {
    for (;;) {
      char byte = 0;
      const ssize_t n = ::recv(fd_.get(), &byte, 1, 0);
      if (n == 0) return true;
      if (n < 0) return errno == ECONNRESET;
    }
  }
  /// Sends `frame` repeatedly until the other side accepts no byte for half a second; false if it
  /// accepted `limit` bytes.
  bool is_stopped_within(std::size_t limit, const std::string& frame) {
    std::string many;
    while (many.size() < (std::size_t{64} << 10)) many += frame;
    for (std::size_t sent = 0; sent < limit;) {
      pollfd at{fd_.get(), POLLOUT, 0};
      if (::poll(&at, 1, 500) == 0) return true;
      const std::string_view rest = std::string_view(many).substr(sent % many.size());
      const ssize_t n = ::send(fd_.get(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && errno != EAGAIN) return false;
      sent += n > 0 ? static_cast<std::size_t>(n) : 0;
    }
    return false;
  }
  /// Sends a frame and returns the header of the answer, whose payload it also reads.
  data::Header ask(data::Header header, std::string_view payload) {
    tell(header, payload);
    auto answer = data::decode(hear(data::kHeaderBytes));
    REQUIRE(answer);
    if (answer->payload > 0) hear(answer->payload);  // recv() of nothing waits
    return *answer;
  }
  void tell(data::Header header, std::string_view payload) {
    header.payload = static_cast<std::uint32_t>(payload.size());
    const auto head = data::encode(header);
    say(std::string(head.begin(), head.end()).append(payload));
  }
  void hang_up() { ::shutdown(fd_.get(), SHUT_WR); }
  /// A handshake as a worker with loop 0; reads the server's answers.
  void authenticate(WorkerId worker = WorkerId(0)) {
    const auto challenge = hear_message<data::Challenge>();
    say(wire::frame(prove(challenge.nonce, kSecret, worker)));
    CHECK(hear_message<data::ServerProof>().loops == 2);
  }
  static data::ClientProof prove(const std::string& nonce, const std::string& secret,
                                 WorkerId worker = WorkerId(0)) {
    data::ClientProof proof;
    proof.worker = worker;
    proof.nonce = kv::fresh_nonce();
    kv::Transcript transcript;
    transcript.server_nonce = nonce;
    transcript.client_nonce = proof.nonce;
    transcript.worker = worker;
    proof.mac = kv::client_mac(secret, transcript);
    return proof;
  }

 private:
  io::Fd fd_;
};

}  // namespace dt::test
