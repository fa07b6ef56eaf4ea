#include "test/bench/kv/raw_parts.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

#include "test/bench/kv/failure.h"

namespace dt::bench {

namespace {

// The same loop for each kind of processor; the compiler vectorises it.
#define DT_FLOAT_LOOPS(suffix, attribute)                                           \
  attribute void add_##suffix(float* __restrict into, const float* __restrict from, \
                              std::size_t n) {                                      \
    for (std::size_t i = 0; i < n; ++i) into[i] += from[i];                         \
  }                                                                                 \
  attribute void sum_##suffix(float* __restrict into, const float* __restrict a,    \
                              const float* __restrict b, std::size_t n) {           \
    for (std::size_t i = 0; i < n; ++i) into[i] = a[i] + b[i];                      \
  }

DT_FLOAT_LOOPS(any, )
#if defined(__x86_64__)
DT_FLOAT_LOOPS(avx2, [[gnu::target("avx2")]])
#if defined(__clang__)  // which has the width as an option of the whole file only
DT_FLOAT_LOOPS(avx512, [[gnu::target("avx512f")]])
#else
DT_FLOAT_LOOPS(avx512, [[gnu::target("avx512f,prefer-vector-width=512")]])
#endif
#endif

struct Loops {
  AddFloats add = add_any;
  SumFloats sum = sum_any;
};

Loops best() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return {add_avx512, sum_avx512};
  if (__builtin_cpu_supports("avx2")) return {add_avx2, sum_avx2};
#endif
  return {};
}

/// Measured: if a connection's bytes in flight fit into the cache, the exchange needs a tenth less
/// CPU than with buffers that the kernel sizes, or with larger ones.
constexpr int kSocketBuffer = 512 << 10;

void tune(const io::Fd& fd) {
  const int on = 1;
  (void)::setsockopt(fd.get(), SOL_SOCKET, SO_SNDBUF, &kSocketBuffer, sizeof kSocketBuffer);
  (void)::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &kSocketBuffer, sizeof kSocketBuffer);
  (void)::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  (void)::setsockopt(fd.get(), IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
}

/// Pieces of a system call.
constexpr std::size_t kPieces = 64;

}  // namespace

void fail_socket(int number) { throw Failure(errno_error(number, "raw exchange: socket")); }

AddFloats best_add() { return best().add; }
SumFloats best_sum() { return best().sum; }

void wait_for(std::span<pollfd> polls, Duration busy) {
  const auto poll = [polls](int limit) {
    const int ready = ::poll(polls.data(), polls.size(), limit);
    if (ready < 0 && errno != EINTR) fail_socket(errno);
    return ready;
  };
  if (busy > Duration::zero()) {
    const auto end = std::chrono::steady_clock::now() + busy;
    do {
      if (poll(0) != 0) return;
      ::sched_yield();  // the other process may need this processor
    } while (std::chrono::steady_clock::now() < end);
  }
  (void)poll(-1);
}

void send(const io::Fd& fd, const Stream& stream, const Buffer& from, std::size_t& sent,
          std::size_t end) {
  std::array<iovec, kPieces> pieces;
  while (sent < end) {
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = stream.gather(from.bytes(), sent, std::min(kCall, end - sent), pieces);
    const auto n = ::sendmsg(fd.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && would_block()) return;
    if (n < 0) fail_socket(errno);
    sent += static_cast<std::size_t>(n);
  }
}

void receive(const io::Fd& fd, const Stream& stream, const Buffer& into, std::size_t& received) {
  std::array<iovec, kPieces> pieces;
  for (const std::size_t turn_end = received + kTurn;
       received < std::min(turn_end, stream.bytes());) {
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = stream.gather(into.bytes(), received, kCall, pieces);
    const auto n = ::recvmsg(fd.get(), &message, MSG_DONTWAIT);
    if (n < 0 && would_block()) return;
    if (n <= 0) fail_socket(n < 0 ? errno : ECONNRESET);
    received += static_cast<std::size_t>(n);
  }
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

SocketPair connected_pair() {
  const io::Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  auto* address = reinterpret_cast<sockaddr*>(&at);
  tune(listener);
  if (!listener || ::bind(listener.get(), address, size) != 0 || ::listen(listener.get(), 1) != 0 ||
      ::getsockname(listener.get(), address, &size) != 0)
    fail_socket(errno);
  SocketPair pair;
  pair.connected = io::Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  tune(pair.connected);
  if (!pair.connected || ::connect(pair.connected.get(), address, size) != 0) fail_socket(errno);
  pair.accepted = io::Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!pair.accepted) fail_socket(errno);
  tune(pair.accepted);
  return pair;
}

}  // namespace dt::bench
