// A member that sends anything, on a real connection: a server, its handshake, a chunk and a
// shared memory, then arbitrary bytes as frames. The server closes the connection or answers,
// writes nothing outside of the memory, and continues to serve another worker. On a connection
// whose frames have tags the same bytes do nothing and are counted.

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <string_view>

#include "io/fd.h"
#include "io/log.h"
#include "kvstore/link/handshake.h"
#include "kvstore/link/shared_memory.h"
#include "kvstore/protocol/messages.h"
#include "kvstore/server/server.h"
#include "test/fuzz/target.h"

using namespace dt;

namespace {

const std::string kSecret(32, 's');
constexpr std::size_t kElements = 16;
constexpr std::size_t kMemoryBytes = 8192;

/// A worker's connection to loop 0.
class Member {
 public:
  Member(std::uint16_t port, WorkerId worker, bool wants_tags = false)
      : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons(port);
    DT_CHECK(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) == 0, "connect");
    const int yes = 1;
    ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    const timeval limit{20, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    const auto challenge = hear_message<data::Challenge>();
    data::ClientProof proof;
    proof.worker = worker;
    proof.wants_tags = wants_tags;
    proof.nonce = kv::fresh_nonce();
    kv::Transcript transcript;
    transcript.wants_tags = wants_tags;
    transcript.server_nonce = challenge.nonce;
    transcript.client_nonce = proof.nonce;
    transcript.worker = worker;
    proof.mac = kv::client_mac(kSecret, transcript);
    say(wire::frame(proof));
    const auto answer = hear_message<data::ServerProof>();
    DT_CHECK(answer.loops == 1 && answer.has_tags == wants_tags, "a good proof is accepted");
  }

  void say(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return;  // it was closed
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  void say(data::Header header, std::string_view payload) {
    header.payload = static_cast<std::uint32_t>(payload.size());
    const auto head = data::encode(header);
    say(std::string(head.data(), head.size()).append(payload));
  }
  std::string hear(std::size_t n) {
    std::string out(n, '\0');
    for (std::size_t heard = 0; heard < n;) {
      const ssize_t got = receive(out.data() + heard, n - heard);
      DT_CHECK(got > 0, "the server answers");
      heard += static_cast<std::size_t>(got);
    }
    return out;
  }
  data::Header hear_answer() {
    const auto answer = data::decode(hear(data::kHeaderBytes));
    DT_CHECK(answer, "an answer has a good header");
    if (answer->payload > 0) hear(answer->payload);
    return *answer;
  }
  /// Ends sending; reads the server's remaining answers to their end.
  void finish() {
    ::shutdown(fd_.get(), SHUT_WR);
    char bytes[4096];
    for (;;) {
      const ssize_t n = receive(bytes, sizeof bytes);
      if (n == 0 || (n < 0 && errno == ECONNRESET)) return;
      DT_CHECK(n > 0, "the server closes the connection in time");
    }
  }

 private:
  /// The fuzzer's timer interrupts a call that has a limit, whatever the flags of its handler.
  ssize_t receive(char* into, std::size_t most) {
    for (;;) {
      const ssize_t got = ::recv(fd_.get(), into, most, 0);
      if (got >= 0 || errno != EINTR) return got;
    }
  }
  template <class Message>
  Message hear_message() {
    const std::string head = hear(wire::kFrameHeader);
    wire::Reader reader(head);
    std::uint32_t size = 0;
    reader.get(size);
    DT_CHECK(size >= 2 && size < 1024, "a handshake's message");
    return *wire::parse<Message>(hear(size - 2));
  }

  io::Fd fd_;
};

data::Header header_of(data::Type type, WorkerId worker) {
  data::Header header;
  header.type = type;
  header.worker = worker;
  header.generation = Generation(1);
  return header;
}

std::unique_ptr<kv::Server> start_server() {
  kv::ServerOptions options;
  options.secret = kSecret;
  auto server = kv::Server::start(options);
  DT_CHECK(server, "a server starts");
  ServerCommit commit;
  commit.generation = Generation(1);
  commit.contributors = {WorkerId(0), WorkerId(1)};
  std::promise<bool> adopted;
  (*server)->commit(commit, [&adopted](bool yes) { adopted.set_value(yes); });
  DT_CHECK(adopted.get_future().get(), "the first commit is adopted");
  return std::move(*server);
}

}  // namespace

DT_FUZZ_TARGET(data_connection)
(const std::uint8_t* bytes, std::size_t size) {
  static const auto memory = *kv::SharedMemory::create(kMemoryBytes, true);
  const auto server = start_server();
  {
    Member member(server->port(), WorkerId(0));
    auto init = header_of(data::Type::kInit, WorkerId(0));
    init.samples = kElements;
    member.say(init, std::string(kElements * sizeof(float), '\0'));
    DT_CHECK(member.hear_answer().type == data::Type::kDone, "a chunk is made");
    member.say(header_of(data::Type::kShare, WorkerId(0)), wire::body_of(memory->describe(0)));
    DT_CHECK(member.hear_answer().type == data::Type::kDone, "a memory is shared");
    member.say({reinterpret_cast<const char*>(bytes), size});
    member.finish();
  }
  const auto dropped = server->counters().dropped_connections;
  {
    Member member(server->port(), WorkerId(0), true);
    member.say({reinterpret_cast<const char*>(bytes), size});
    member.finish();  // the server has counted by its close
  }
  const bool is_frame = size >= data::kHeaderBytes + data::kTagBytes;
  DT_CHECK(server->counters().dropped_connections == dropped + (is_frame ? 1 : 0),
           "a frame without its tag is counted");
  Member other(server->port(), WorkerId(1));
  other.say(header_of(data::Type::kPull, WorkerId(1)), {});
  DT_CHECK(other.hear_answer().type == data::Type::kValue, "another worker is served");
  return 0;
}
