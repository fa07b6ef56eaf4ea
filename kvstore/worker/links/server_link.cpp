#include "kvstore/worker/links/server_link.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "io/within.h"
#include "kvstore/link/event_loop.h"
#include "kvstore/link/handshake.h"
#include "kvstore/worker/links/server_links.h"

namespace dt::kv {

namespace {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;

/// Bytes queued on a connection beyond which the next request waits, ordered by priority. An urgent
/// request waits for at most these bytes and the chunk that is being sent.
constexpr std::size_t kSendWindow = std::size_t{128} << 10;
/// Bytes of gradients that are compressed before the compressed ones are sent.
constexpr std::size_t kCompressAtOnce = std::size_t{1} << 20;
constexpr Duration kDialLimit = 5s;
constexpr Duration kFirstRetry = 50ms;
constexpr Duration kLongestRetry = 1s;
/// A connection that lasted this long counts as alive even if nothing was answered on it: other
/// workers' contributions may have been missing.
constexpr Duration kStands = 5s;

}  // namespace

ServerLink::ServerLink(Options options, ServerAddress address, LoopId to, ServerLinks& links,
                       Owner& owner, EventLoop& loop)
    : options_(std::move(options)),
      address_(std::move(address)),
      to_(to),
      links_(links),
      owner_(owner),
      loop_(loop) {}

std::string ServerLink::name() const {
  return fmt::format("server {} at {} port {}", address_.server, address_.address, address_.port);
}

// ---------------------------------------------------------------- connection

io::awaitable<Result<TcpSocket>> ServerLink::connect() {
  boost::system::error_code bad;
  const auto literal = io::asio::ip::make_address(address_.address, bad);
  if (bad) co_return fail(ErrorKind::kInvalid, "'{}' is not a literal address", address_.address);
  TcpSocket socket(co_await io::asio::this_coro::executor);
  const io::asio::ip::tcp::endpoint at(literal, address_.port);
  auto [ec] = co_await socket.async_connect(at, io::tok);
  if (ec == io::asio::error::no_descriptors)
    co_return fail(
        ErrorKind::kUnavailable,
        "no file descriptor is left for the connection: a worker needs one for each loop "
        "of each server; raise the hard limit on its host (ulimit -Hn)");
  if (ec) co_return tl::unexpected(io::asio_error(ec, "connect"));
  co_return std::move(socket);
}

io::awaitable<Result<std::shared_ptr<TcpConnection>>> ServerLink::prove(
    std::shared_ptr<TcpConnection> link) {
  auto frame = co_await link->read_frame(data::kMaxHandshakeFrame);
  if (!frame) co_return tl::unexpected(frame.error());
  auto challenge = wire::parse<data::Challenge>(frame->body);
  if (frame->type != data::Challenge::kType || !challenge)
    co_return fail(ErrorKind::kProtocol, "something that is not a kvstore server answers there");
  if (challenge->version != data::kVersion)
    co_return fail(ErrorKind::kProtocol, "the server speaks version {} of the protocol, not {}",
                   challenge->version, data::kVersion);
  const Transcript transcript{
      .server_nonce = challenge->nonce,
      .client_nonce = fresh_nonce(),
      .server = address_.server,
      .worker = options_.worker,
      .loop = to_.loop,
      .wants_tags = wants_tags(options_.data_auth, link->is_inside_machine()),
      .was_deceived = was_deceived_};
  const data::ClientProof proof{.server = transcript.server,
                                .worker = transcript.worker,
                                .loop = transcript.loop,
                                .wants_tags = transcript.wants_tags,
                                .was_deceived = transcript.was_deceived,
                                .nonce = transcript.client_nonce,
                                .mac = client_mac(options_.secret, transcript)};
  link->send_text(wire::frame(proof));
  auto sent = co_await link->flush();
  if (!sent) co_return tl::unexpected(sent.error());
  frame = co_await link->read_frame(data::kMaxHandshakeFrame);
  if (!frame)
    co_return fail(ErrorKind::kDenied, "it refused us (another job's secret?): {}",
                   frame.error().message);
  const auto answer = wire::parse<data::ServerProof>(frame->body);
  const bool good = frame->type == data::ServerProof::kType && answer &&
                    same_mac(answer->mac, server_mac(options_.secret, transcript, *answer));
  if (!good || answer->loops == 0 || answer->loops > 4096)
    co_return fail(ErrorKind::kDenied, "it does not know this job's secret");
  if (transcript.wants_tags && !answer->has_tags)
    co_return fail(ErrorKind::kDenied, "it does not authenticate frames (--data-auth)");
  if (answer->has_tags) {
    const FrameKeys keys = frame_keys(options_.secret, transcript, *answer);
    link->add_tags(keys.to_server, keys.to_worker);
  }
  was_deceived_ = false;
  if (!is_closed_ && !std::exchange(was_connected_, true))
    links_.add_loops(to_.server, answer->loops);
  co_return std::move(link);
}

io::awaitable<Result<std::shared_ptr<TcpConnection>>> ServerLink::dial() {
  auto connecting = connect();
  auto socket = co_await io::within(kDialLimit, std::move(connecting), "connect");
  if (!socket) co_return tl::unexpected(socket.error());
  tune(*socket);
  auto proving = prove(std::make_shared<TcpConnection>(std::move(*socket)));
  co_return co_await io::within(kDialLimit, std::move(proving), "handshake");
}

io::awaitable<void> ServerLink::write(std::shared_ptr<TcpConnection> link) {
  co_await link->write_loop();
}

io::awaitable<void> ServerLink::run() {
  auto alive = SteadyClock::now();
  Duration pause = kFirstRetry;
  while (!is_closed_) {
    const bool connected_before = was_connected_;
    auto dialled = co_await dial();
    if (is_closed_) co_return;
    std::string trouble;
    if (dialled) {
      const auto began = SteadyClock::now();
      const Error error = co_await talk(*dialled);
      if (is_closed_) {
        owner_.on_ended(*this);
        co_return;
      }
      trouble = error.message;
      const auto now = SteadyClock::now();
      const bool was_asked = !sent_.empty() || !ready_.empty() || !last_.empty();
      const bool was_of_use = is_heard_ || !was_asked || now - began > kStands;
      if (was_of_use) {
        alive = now;
        pause = kFirstRetry;
      }
    } else {
      trouble = dialled.error().message;
    }
    links_.note_trouble(*this, trouble);
    if (connected_before && SteadyClock::now() - alive > options_.lost_limit) {
      const auto limit = seconds(options_.lost_limit);
      owner_.on_lost(*this, fmt::format("cannot be reached for {:.0f} s: {}", limit, trouble));
      co_return;
    }
    co_await io::sleep_for(pause);
    pause = std::min(pause * 2, kLongestRetry);
  }
}

/// Serves one connection until it ends; returns the reason.
io::awaitable<Error> ServerLink::talk(std::shared_ptr<TcpConnection> link) {
  link_ = link;
  is_heard_ = false;
  awaits_beat_ = false;
  still_beats_ = 0;
  bytes_told_ = link->bytes_read();
  held_ = 0;
  link->on_written([this] { fill_window(); });
  loop_.spawn(write(link));
  share_again();
  links_.note_trouble(*this, "");
  show(link->is_inside_machine() ? "connected, on this machine" : "connected");
  push_out();
  Error error = co_await loop_.receive(*link, *this);
  show(is_closed_ ? "closed" : "the connection broke: " + error.message);
  was_deceived_ = error.kind == ErrorKind::kProtocol;
  if (is_leaving_) held_ = 0;
  link_.reset();
  link->on_written({});
  link->close();
  co_return error;
}

void ServerLink::show(const std::string& what) const {
  if (options_.connections)
    options_.connections->info("worker {}: {}, loop {}: {}", options_.worker, name(), to_.loop,
                               what);
}

/// The server maps memory again for each connection. Requests that name it wait for the answers.
void ServerLink::share_again() {
  unmapped_ = shared_.size();
  for (const auto& [number, request] : shared_) transmit(request);
  if (unmapped_ == 0) send_again();
}

void ServerLink::shared_again(const Outcome& outcome) {
  const bool is_refused = outcome.error && shared_.contains(outcome.header.chunk);
  if (is_refused)
    return owner_.on_lost(*this, fmt::format("does not map this worker's memory any more, after a "
                                             "reconnection: {}",
                                             outcome.error->message));
  if (--unmapped_ > 0) return;
  send_again();
  push_out();
}

void ServerLink::send_again() {
  for (const Request* request : sent_.all()) transmit(*request);
}

std::vector<Request> ServerLink::finish(bool leaves) {
  is_closed_ = true;
  is_leaving_ = leaves && link_ && held_ > 0;
  if (is_leaving_)
    link_->finish();
  else if (link_)
    link_->close();
  std::vector<Request> all;
  for (Request* request : sent_.all()) all.push_back(sent_.take(*request));
  for (auto& [priority, requests] : ready_)
    for (auto& request : requests) all.push_back(std::move(request));
  for (auto& request : last_) all.push_back(std::move(request));
  ready_.clear();
  last_.clear();
  return all;
}

// ---------------------------------------------------------------- requests out

void ServerLink::enqueue(Request request) {
  request.header.worker = options_.worker;
  if (request.header.type == data::Type::kUnshare) shared_.erase(request.header.chunk);
  // A loop that is asked by way of this one has had no contributions from here.
  const bool is_behind =
      request.header.type == data::Type::kFinish && request.header.key != data::kForLoop;
  if (is_behind)
    last_.push_back(std::move(request));
  else
    ready_[-static_cast<std::int64_t>(request.header.priority)].push_back(std::move(request));
}

void ServerLink::push_out() {
  fill_window();
  if (link_) link_->write_now();
}

void ServerLink::fill_window() {
  std::size_t compressed = 0;
  while (link_ && unmapped_ == 0 && link_->is_open() && link_->queued_bytes() < kSendWindow) {
    Request request;
    if (!ready_.empty()) {
      auto& first = ready_.begin()->second;
      request = std::move(first.front());
      first.pop_front();
      if (first.empty()) ready_.erase(ready_.begin());
    } else if (!last_.empty() && contributions_unsent_ == 0) {
      request = std::move(last_.front());
      last_.pop_front();
    } else {
      return;
    }
    if (contributes(request.header.type)) --contributions_unsent_;
    request.header.generation = owner_.generation();
    const bool copies = request.staging && request.from;
    if (copies) std::memcpy(request.staging, request.from, request.into_bytes);
    if (request.encoder) {
      const auto* gradient = static_cast<const float*>(request.from);
      GradientEncoder& encoder = *std::exchange(request.encoder, nullptr);
      request.from = encoder
                         .encode(request.compression, gradient, request.into_bytes / sizeof(float),
                                 request.header.samples > 0)
                         .data();
      owner_.on_encoded(*request.chunk, encoder, request.compression);
      compressed += request.into_bytes;
    }
    transmit(sent_.add(std::move(request)));
    if (copies || compressed >= kCompressAtOnce)
      return;  // the server can begin: write_now() calls again when this is written
  }
}

/// `request` stays where it is until it is answered.
void ServerLink::transmit(const Request& request) {
  const bool is_shared = (request.header.flags & data::kShared) != 0;
  if (request.header.type == data::Type::kShare) ++held_;
  link_->send(request.header, is_shared ? &request.places : request.from, request.header.payload,
              request.keep);
}

const Request* ServerLink::lowest_unanswered() {
  const Request* lowest = nullptr;
  if (unanswered_for_ < 2) return lowest;
  for (const Request* one : sent_.all()) {
    const data::Type type = one->header.type;
    const bool may_wait = contributes(type) || type == data::Type::kInit ||
                          type == data::Type::kRegister || type == data::Type::kBarrier ||
                          type == data::Type::kSetOptimizer;
    if (may_wait && (!lowest || key_of(*one) < key_of(*lowest))) lowest = one;
  }
  return lowest;
}

void ServerLink::beat(bool is_sign_of_life) {
  unanswered_for_ = sent_.empty() ? 0 : unanswered_for_ + 1;
  if (!link_ || is_closed_) return;
  const std::size_t unacked = link_->unacked_bytes();
  const bool is_still = link_->bytes_moved() == bytes_moved_ && unacked >= bytes_unacked_;
  still_beats_ = is_still ? still_beats_ + 1 : 0;
  bytes_unacked_ = unacked;
  bytes_moved_ = link_->bytes_moved();
  if (awaits_beat_ && still_beats_ >= options_.unanswered_beats) {
    show("does not answer a heartbeat");
    return link_->close();
  }
  // Thousands of connections stand still while their workers wait for one.
  const bool may_lack_one =
      !awaits_beat_ && !sent_.empty() && still_beats_ >= 2 * options_.unanswered_beats;
  if (is_sign_of_life ? awaits_beat_ && link_->queued_bytes() > 0 : !may_lack_one) return;
  if (!std::exchange(awaits_beat_, true)) still_beats_ = 0;
  link_->send({.type = data::Type::kBeat, .worker = options_.worker});
  link_->write_now();
  bytes_moved_ = link_->bytes_moved();
}

bool ServerLink::take_heard() {
  if (!link_) return false;
  const std::uint64_t now = link_->bytes_read();
  return now != std::exchange(bytes_told_, now);
}

// ---------------------------------------------------------------- answers in

Result<std::byte*> ServerLink::begin(const data::Header& header) {
  arriving_ = header;
  // The second answer to a request that was sent twice matches none: its payload is skipped.
  answered_ = sent_.find(header.request);
  is_direct_ = answered_ && header.type == data::Type::kValue && answered_->into &&
               !(header.flags & data::kShared);
  if (is_direct_ && header.payload != answered_->into_bytes)
    return fail(ErrorKind::kProtocol, "an answer of the wrong size");
  if (is_direct_) return static_cast<std::byte*>(answered_->into);
  text_.resize(header.payload);
  return reinterpret_cast<std::byte*>(text_.data());
}

Result<void> ServerLink::end() {
  if (is_closed_) return {};
  if (arriving_.type == data::Type::kBeat) {
    awaits_beat_ = false;
    return {};
  }
  is_heard_ = true;
  unanswered_for_ = 0;
  const bool is_shared_again = arriving_.request == 0 && unmapped_ > 0;
  if (!answered_ && !is_shared_again) return {};
  Outcome outcome;
  outcome.header = arriving_;
  if (!is_direct_) outcome.text = std::move(text_);
  if (arriving_.type == data::Type::kFailed) {
    const auto failure = wire::parse<data::Failure>(outcome.text);
    outcome.error = failure ? StoreError{failure->code, failure->message}
                            : StoreError{Code::kInternal, "the server's error is malformed"};
  }
  const bool is_share = is_shared_again || answered_->header.type == data::Type::kShare;
  if (is_share && outcome.error) --held_;
  if (is_shared_again) {
    shared_again(outcome);
    return {};
  }
  Request request = sent_.take(*answered_);
  if (request.staging && request.into && arriving_.type == data::Type::kValue && !is_direct_)
    std::memcpy(request.into, request.staging, request.into_bytes);
  if (request.header.type == data::Type::kShare && arriving_.type == data::Type::kDone) {
    Request again = request;
    again.query.reset();
    again.header.request = 0;
    shared_[again.header.chunk] = std::move(again);
  }
  owner_.on_answer(*this, std::move(request), std::move(outcome));
  return {};
}

void ServerLink::idle() { links_.push_out(); }

}  // namespace dt::kv
