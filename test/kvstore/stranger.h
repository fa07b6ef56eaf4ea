/// A plain socket to a server that sends arbitrary bytes, authenticated or not.
#pragma once

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>
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
  explicit Stranger(std::uint16_t port, const std::string& to = "127.0.0.1",
                    const std::string& from = "0.0.0.0")
      : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const sockaddr_in here = address(from, 0);
    REQUIRE(::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&here), sizeof here) == 0);
    const sockaddr_in at = address(to, port);
    REQUIRE(::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
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
  /// Sends a frame and returns the header of the next answer, whose payload it also reads.
  data::Header ask(data::Header header, std::string_view payload) {
    tell(header, payload);
    return hear_answer();
  }
  /// The header of the next answer, whose payload it also reads.
  data::Header hear_answer() {
    const std::string head = hear(data::kHeaderBytes);
    const auto answer = data::decode(head);
    REQUIRE(answer);
    if (tags_in_)
      REQUIRE(kv::same_tag(tags_in_->header(head.data()), hear(data::kTagBytes).data()));
    if (answer->payload == 0) return *answer;  // recv() of nothing waits
    last_payload = hear(answer->payload);
    if (!tags_in_) return *answer;
    tags_in_->add(last_payload.data(), last_payload.size());
    REQUIRE(kv::same_tag(tags_in_->payload(), hear(data::kTagBytes).data()));
    return *answer;
  }
  void tell(data::Header header, std::string_view payload) { say(frame(header, payload)); }
  /// The bytes of the next frame to the server, with its tags.
  [[nodiscard]] std::string frame(data::Header header, std::string_view payload) {
    header.payload = static_cast<std::uint32_t>(payload.size());
    const auto head = data::encode(header);
    std::string bytes(head.begin(), head.end());
    const auto add = [&bytes](const kv::Tag& tag) { bytes.append(tag.data(), tag.size()); };
    if (tags_out_) add(tags_out_->header(head.data()));
    bytes.append(payload);
    if (!tags_out_ || payload.empty()) return bytes;
    tags_out_->add(payload.data(), payload.size());
    add(tags_out_->payload());
    return bytes;
  }
  std::string last_payload;  ///< Of the last answer that had one.
  void hang_up() { ::shutdown(fd_.get(), SHUT_WR); }
  /// A handshake as a worker with loop 0; reads the server's answers.
  void authenticate(WorkerId worker = WorkerId(0), bool wants_tags = false) {
    const auto challenge = hear_message<data::Challenge>();
    const auto proof = prove(challenge.nonce, kSecret, worker, wants_tags);
    say(wire::frame(proof));
    const auto answer = hear_message<data::ServerProof>();
    CHECK(answer.loops == 2);
    has_tags = answer.has_tags;
    if (!wants_tags) return;
    REQUIRE(has_tags);
    const auto keys = kv::frame_keys(kSecret, transcript_of(challenge.nonce, proof), answer);
    tags_out_.emplace(keys.to_server);
    tags_in_.emplace(keys.to_worker);
  }
  bool has_tags = false;  ///< What the server answered.
  static data::ClientProof prove(const std::string& nonce, const std::string& secret,
                                 WorkerId worker = WorkerId(0), bool wants_tags = false) {
    data::ClientProof proof;
    proof.worker = worker;
    proof.wants_tags = wants_tags;
    proof.nonce = kv::fresh_nonce();
    proof.mac = kv::client_mac(secret, transcript_of(nonce, proof));
    return proof;
  }
  static kv::Transcript transcript_of(const std::string& nonce, const data::ClientProof& proof) {
    kv::Transcript transcript;
    transcript.server_nonce = nonce;
    transcript.client_nonce = proof.nonce;
    transcript.worker = proof.worker;
    transcript.wants_tags = proof.wants_tags;
    return transcript;
  }

 private:
  static sockaddr_in address(const std::string& text, std::uint16_t port) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    REQUIRE(::inet_pton(AF_INET, text.c_str(), &at.sin_addr) == 1);
    return at;
  }

  io::Fd fd_;
  std::optional<kv::FrameTags> tags_out_;
  std::optional<kv::FrameTags> tags_in_;
};

}  // namespace dt::test
