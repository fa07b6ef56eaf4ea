#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>

#include "io/fd.h"
#include "launcher/agent/check_answers.h"
#include "launcher/agent/machine.h"

namespace dt::launcher {
namespace {

using namespace preflight;
using boost::asio::ip::tcp;
using Clock = std::chrono::steady_clock;
using Ms = std::chrono::milliseconds;

constexpr std::size_t kSmall = 64;
constexpr int kExchanges = 100;
constexpr std::size_t kSinkPiece = std::size_t{256} << 10;
/// What the dialling side wants: its first byte.
constexpr char kEcho = 'e';  ///< kSmall bytes come back, until it sends something else.
constexpr char kSink = 's';  ///< Bytes are counted for a second, or to their end.
constexpr auto kSinkTime = std::chrono::seconds(1);
/// How long who listens waits for the other side.
constexpr Ms kPatience{5000};

/// How many bytes came, and how long that took.
struct SinkCount {
  std::uint64_t bytes = 0;
  std::uint64_t ns = 0;
};

std::optional<tcp::endpoint> to_address(const std::string& text, std::uint16_t port) {
  boost::system::error_code ec;
  const auto address = boost::asio::ip::make_address(text, ec);
  return ec ? std::nullopt : std::optional(tcp::endpoint(address, port));
}

bool wait_for(int fd, short events, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<Ms>(deadline - Clock::now()).count();
    pollfd one{fd, events, 0};
    const int n = ::poll(&one, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
    if (n > 0) return true;
    if (n == 0 || errno != EINTR) return false;
  }
}

/// All of `into`, from a descriptor that does not block.
bool read_all(int fd, char* into, std::size_t size, Clock::time_point deadline) {
  while (size > 0) {
    const ssize_t n = ::recv(fd, into, size, MSG_DONTWAIT);
    if (n > 0) {
      into += n;
      size -= static_cast<std::size_t>(n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR) || !wait_for(fd, POLLIN, deadline)) {
      return false;
    }
  }
  return true;
}

bool send_all(int fd, std::string_view bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0)
      bytes.remove_prefix(static_cast<std::size_t>(n));
    else if ((errno != EAGAIN && errno != EINTR) || !wait_for(fd, POLLOUT, deadline))
      return false;
  }
  return true;
}

void send_at_once(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void echo(int fd) {
  std::array<char, kSmall> bytes{};
  while (read_all(fd, bytes.data(), bytes.size(), Clock::now() + kPatience) && bytes[0] == kEcho)
    if (!send_all(fd, {bytes.data(), bytes.size()}, Clock::now() + kPatience)) return;
  if (bytes[0] != kSink) return;
  SinkCount count;
  std::string piece(kSinkPiece, '\0');
  const auto start = Clock::now();
  while (wait_for(fd, POLLIN, start + kSinkTime)) {
    const ssize_t n = ::recv(fd, piece.data(), piece.size(), MSG_DONTWAIT);
    if (n <= 0) break;
    count.bytes += static_cast<std::uint64_t>(n);
    if (Clock::now() > start + kSinkTime) break;
  }
  count.ns = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
  send_all(fd, {reinterpret_cast<const char*>(&count), sizeof count}, Clock::now() + kPatience);
  // Until the other side has read it: closing with unread bytes would throw it away.
  while (wait_for(fd, POLLIN, Clock::now() + kPatience) &&
         ::recv(fd, piece.data(), piece.size(), MSG_DONTWAIT) > 0)
    continue;
}

void serve(int listener, const std::string& word) {
  for (;;) {
    io::Fd one(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (!one && errno != EINTR && errno != ECONNABORTED) return;
    if (!one) continue;
    std::thread([fd = std::move(one), word] {
      send_at_once(fd.get());
      if (send_all(fd.get(), word, Clock::now() + kPatience)) echo(fd.get());
    }).detach();
  }
}

/// A connection to `place` that is being made.
io::Fd begin_dial(const Place& place, std::string& why_not) {
  const auto address = to_address(place.address, place.port);
  if (!address) {
    why_not = fmt::format("{} is no address", place.address);
    return {};
  }
  const int family = address->protocol().family();
  io::Fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto size = static_cast<socklen_t>(address->size());
  if (fd && (::connect(fd.get(), address->data(), size) == 0 || errno == EINPROGRESS)) return fd;
  why_not = std::strerror(errno);
  return {};
}

/// What is wrong with the connection, at whose other end a listener sends `word`; empty: nothing.
std::string end_dial(int fd, const std::string& word, Clock::time_point deadline,
                     std::uint32_t limit_ms) {
  if (!wait_for(fd, POLLOUT, deadline))
    return fmt::format("no answer within {:.1f} s", limit_ms / 1e3);
  int number = 0;
  socklen_t size = sizeof number;
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &number, &size);
  if (number != 0) return std::strerror(number);
  std::string said(word.size(), '\0');
  const auto until = std::max(deadline, Clock::now() + Ms(500));
  if (!word.empty() && (!read_all(fd, said.data(), said.size(), until) || said != word))
    return "something else answers there";
  return {};
}

/// The median of the round trips; an empty text, or why not.
std::string measure_latency(int fd, double& latency_us) {
  std::vector<double> trips;
  std::string bytes(kSmall, kEcho);
  for (int i = 0; i < kExchanges; ++i) {
    const auto start = Clock::now();
    const auto until = start + kPatience;
    if (!send_all(fd, bytes, until) || !read_all(fd, bytes.data(), bytes.size(), until))
      return "the connection broke";
    trips.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  std::ranges::nth_element(trips, trips.begin() + kExchanges / 2);
  latency_us = trips[kExchanges / 2];
  return {};
}

std::string measure_bandwidth(int fd, std::uint64_t bytes, Clock::time_point deadline,
                              double& rate) {
  const std::string piece(kSinkPiece, '\0');
  if (!send_all(fd, std::string(kSmall, kSink), deadline)) return "the connection broke";
  // Until all is sent, or the other side's count comes.
  while (bytes > 0) {
    pollfd one{fd, POLLIN | POLLOUT, 0};
    const auto left = std::chrono::ceil<Ms>(deadline - Clock::now()).count();
    if (left <= 0 || ::poll(&one, 1, static_cast<int>(left)) <= 0) break;
    if ((one.revents & (POLLIN | POLLERR | POLLHUP)) != 0) break;
    const ssize_t n = ::send(fd, piece.data(), std::min<std::uint64_t>(bytes, piece.size()),
                             MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR) return std::strerror(errno);
    bytes -= static_cast<std::uint64_t>(std::max<ssize_t>(n, 0));
  }
  ::shutdown(fd, SHUT_WR);
  SinkCount count;
  if (!read_all(fd, reinterpret_cast<char*>(&count), sizeof count, Clock::now() + kPatience))
    return "the other side has not counted what came";
  // What is not sent yet would be in the way of the next measurement.
  const linger at_once{1, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  rate = count.ns > 0 ? static_cast<double>(count.bytes) * 1e9 / static_cast<double>(count.ns) : 0;
  return {};
}

}  // namespace

Listening listen_for_check(const AskListen& question) {
  Listening said;
  said.address = question.address;
  if (!question.interface.empty()) said.address = address_of_interface(question.interface);
  if (said.address.empty()) {
    said.why = fmt::format("it has no interface {}, or that has no address", question.interface);
    return said;
  }
  for (const std::uint16_t port : question.ports) {
    auto address = to_address(said.address, port);
    if (!address) {
      said.why = fmt::format("{} is no address", said.address);
      return said;
    }
    io::Fd fd(::socket(address->protocol().family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    auto size = static_cast<socklen_t>(address->size());
    if (::bind(fd.get(), address->data(), size) != 0 || ::listen(fd.get(), SOMAXCONN) != 0 ||
        ::getsockname(fd.get(), address->data(), &size) != 0) {
      said.why = fmt::format("it cannot listen at {} port {}: {}", said.address, port,
                             std::strerror(errno));
      return said;
    }
    said.ports.push_back(address->port());
    std::thread([listener = std::move(fd), word = question.word] {
      serve(listener.get(), word);
    }).detach();
  }
  return said;
}

Dialled dial_for_check(const AskDial& question) {
  Dialled said;
  said.why_not.resize(question.places.size());
  std::vector<io::Fd> dials;
  for (std::size_t i = 0; i < question.places.size(); ++i)
    dials.push_back(begin_dial(question.places[i], said.why_not[i]));
  const auto deadline = Clock::now() + Ms(question.limit_ms);
  for (std::size_t i = 0; i < dials.size(); ++i)
    if (dials[i])
      said.why_not[i] = end_dial(dials[i].get(), question.word, deadline, question.limit_ms);
  return said;
}

Measured measure_for_check(const AskMeasure& question) {
  Measured said;
  const io::Fd fd = begin_dial(question.place, said.why);
  if (!fd) return said;
  constexpr std::uint32_t kDialMs = 2000;
  said.why = end_dial(fd.get(), question.word, Clock::now() + Ms(kDialMs), kDialMs);
  if (!said.why.empty()) return said;
  send_at_once(fd.get());
  said.why = measure_latency(fd.get(), said.latency_us);
  if (said.why.empty())
    said.why = measure_bandwidth(fd.get(), question.bytes, Clock::now() + Ms(question.limit_ms),
                                 said.bytes_per_second);
  return said;
}

}  // namespace dt::launcher
