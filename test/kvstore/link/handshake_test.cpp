#include "kvstore/link/handshake.h"

#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "kvstore/link/data_auth.h"
#include "kvstore/link/tcp.h"
#include "test/support/catch.h"
#include "test/support/own_address.h"

using namespace dt;
using namespace dt::kv;

namespace handshake {

namespace {

using Tcp = io::asio::ip::tcp;

/// Whether a connection between these addresses of this machine counts as inside it.
bool is_inside(const std::string& from, const std::string& to) {
  io::asio::io_context context;
  Tcp::acceptor acceptor(context, Tcp::endpoint(io::asio::ip::make_address(to), 0));
  Tcp::socket socket(context, Tcp::endpoint(io::asio::ip::make_address(from), 0));
  socket.connect(acceptor.local_endpoint());
  const auto accepted = acceptor.accept();
  const bool inside = is_inside_machine(socket);
  CHECK(is_inside_machine(accepted) == inside);
  return inside;
}

}  // namespace

TEST_CASE("handshake: proofs and keys depend on the secret and on all that both ends said",
          "[handshake]") {
  struct Said {
    std::string secret = std::string(32, 's');
    Transcript transcript{.server_nonce = std::string(data::kNonceBytes, '1'),
                          .client_nonce = std::string(data::kNonceBytes, '2'),
                          .server = ServerId(3),
                          .worker = WorkerId(4)};
    data::ServerProof answer{.loops = 5, .has_tags = false, .mac = {}};
  };
  const std::vector<std::function<void(Said&)>> client_changes = {
      [](Said&) {},
      [](Said& s) { s.secret[31] = 't'; },
      [](Said& s) { s.transcript.server_nonce[31] = '3'; },
      [](Said& s) { s.transcript.client_nonce[31] = '3'; },
      [](Said& s) { std::swap(s.transcript.client_nonce, s.transcript.server_nonce); },
      [](Said& s) { s.transcript.server = ServerId(5); },
      [](Said& s) { s.transcript.worker = WorkerId(5); },
      [](Said& s) { s.transcript.loop = 1; },
      [](Said& s) { s.transcript.wants_tags = true; },
      [](Said& s) { s.transcript.was_deceived = true; }};
  auto changes = client_changes;
  changes.emplace_back([](Said& s) { s.answer.loops = 6; });
  changes.emplace_back([](Said& s) { s.answer.has_tags = true; });
  std::set<std::string> all;
  for (const auto& change : client_changes) {
    Said said;
    change(said);
    all.insert(client_mac(said.secret, said.transcript).substr(0, sizeof(FrameKey)));
  }
  CHECK(all.size() == client_changes.size());
  all.clear();
  for (const auto& change : changes) {
    Said said;
    change(said);
    const auto keys = frame_keys(said.secret, said.transcript, said.answer);
    all.insert(std::string(keys.to_server.begin(), keys.to_server.end()));
    all.insert(std::string(keys.to_worker.begin(), keys.to_worker.end()));
    const auto mac = server_mac(said.secret, said.transcript, said.answer);
    all.insert(mac.substr(0, sizeof(FrameKey)));
  }
  CHECK(all.size() == 3 * changes.size());
}

TEST_CASE("data auth: who wants tags", "[handshake]") {
  const bool inside = true;
  CHECK(wants_tags(DataAuth::kFrames, inside));
  CHECK(wants_tags(DataAuth::kFrames, !inside));
  CHECK_FALSE(wants_tags(DataAuth::kAuto, inside));
  CHECK(wants_tags(DataAuth::kAuto, !inside));
  CHECK_FALSE(wants_tags(DataAuth::kHandshake, inside));
  CHECK_FALSE(wants_tags(DataAuth::kHandshake, !inside));
}

TEST_CASE(
    "data auth: a connection is inside the machine between loopback addresses and from an "
    "address to itself",
    "[handshake]") {
  CHECK(is_inside("127.0.0.1", "127.0.0.1"));
  CHECK(is_inside("127.0.0.1", "127.0.0.2"));
  const std::string own = test::own_address();
  if (own.empty()) {
    WARN("this machine has no address but loopback's: another one's cannot be shown");
    return;
  }
  CHECK(is_inside(own, own));
  CHECK_FALSE(is_inside("127.0.0.1", own));
}

}  // namespace handshake
