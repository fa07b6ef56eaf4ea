#include "kvstore/server/listener.h"

#include <utility>

#include "io/within.h"
#include "kvstore/link/event_loop.h"
#include "kvstore/link/handshake.h"

namespace dt::kv {

using Tcp = io::asio::ip::tcp;

Listener::Listener(const ServerOptions& options, EventLoop& loop, OnAdmitted on_admitted)
    : options_(options),
      loop_(loop),
      on_admitted_(std::move(on_admitted)),
      acceptor_(loop.context()) {}

void Listener::close() {
  boost::system::error_code ec;
  acceptor_.close(ec);
}

Result<void> Listener::start() {
  boost::system::error_code ec;
  const auto address = io::asio::ip::make_address(options_.bind, ec);
  if (ec) return fail(ErrorKind::kInvalid, "DT_BIND '{}' is not a literal address", options_.bind);
  const Tcp::endpoint at(address, options_.port);
  acceptor_.open(at.protocol(), ec);
  if (!ec) acceptor_.set_option(Tcp::acceptor::reuse_address(true), ec);
  if (!ec) acceptor_.bind(at, ec);
  if (!ec) acceptor_.listen(io::asio::socket_base::max_listen_connections, ec);
  if (ec)
    return fail(ErrorKind::kUnavailable,
                "server {} cannot listen on {} port {}: {}; free the port or choose another with "
                "--server-port",
                options_.id, options_.bind, options_.port, ec.message());
  port_ = acceptor_.local_endpoint().port();
  loop_.spawn(accept());
  return {};
}

io::awaitable<void> Listener::accept() {
  for (;;) {
    auto accepted = co_await acceptor_.async_accept(io::tok);
    const auto& ec = std::get<0>(accepted);
    if (ec == io::asio::error::operation_aborted || !acceptor_.is_open()) co_return;
    if (ec) {  // out of descriptors: open connections go on
      co_await io::sleep_for(std::chrono::milliseconds(100));
      continue;
    }
    if (strangers_.size() >= options_.max_strangers) {  // the oldest is the least likely to succeed
      strangers_.front()->close();
      strangers_.pop_front();
    }
    auto link = std::make_shared<TcpConnection>(std::move(std::get<1>(accepted)));
    strangers_.push_back(link);
    loop_.spawn(admit(std::move(link)));
  }
}

io::awaitable<void> Listener::admit(std::shared_ptr<TcpConnection> link) {
  auto work = authenticate(link);
  auto admitted = co_await io::within(options_.handshake_limit, std::move(work), "handshake");
  std::erase(strangers_, link);
  if (!admitted || !link->is_open()) {
    ++refused_;
    link->close();
    co_return;
  }
  admitted->protocol = acceptor_.local_endpoint().protocol();
  admitted->descriptor = link->release();
  on_admitted_(*admitted);
}

io::awaitable<Result<Listener::Admitted>> Listener::authenticate(
    std::shared_ptr<TcpConnection> link) {
  data::Challenge challenge;
  challenge.nonce = fresh_nonce();
  link->send_text(wire::frame(challenge));
  auto sent = co_await link->flush();
  if (!sent) co_return tl::unexpected(sent.error());
  auto frame = co_await link->read_frame(data::kMaxHandshakeFrame);
  if (!frame) co_return tl::unexpected(frame.error());
  if (frame->type != data::ClientProof::kType) co_return fail(ErrorKind::kProtocol, "not a proof");
  auto proof = wire::parse<data::ClientProof>(frame->body);
  if (!proof) co_return tl::unexpected(proof.error());
  const Transcript transcript{.server_nonce = challenge.nonce,
                              .client_nonce = proof->nonce,
                              .server = options_.id,
                              .worker = proof->worker,
                              .loop = proof->loop,
                              .wants_tags = proof->wants_tags,
                              .was_deceived = proof->was_deceived};
  const bool good = proof->server == options_.id && proof->nonce.size() == data::kNonceBytes &&
                    same_mac(proof->mac, client_mac(options_.secret, transcript));
  if (!good || proof->loop >= options_.loops || link->buffered() > 0)
    co_return fail(ErrorKind::kDenied, "wrong proof");
  data::ServerProof answer;
  answer.loops = options_.loops;
  answer.has_tags = proof->wants_tags || wants_tags(options_.data_auth, link->is_inside_machine());
  answer.mac = server_mac(options_.secret, transcript, answer);
  link->send_text(wire::frame(answer));
  sent = co_await link->flush();
  if (!sent) co_return tl::unexpected(sent.error());
  Admitted admitted;
  admitted.loop = proof->loop;
  admitted.worker = proof->worker;
  admitted.was_deceived = proof->was_deceived;
  if (answer.has_tags) admitted.keys = frame_keys(options_.secret, transcript, answer);
  co_return std::move(admitted);
}

}  // namespace dt::kv
