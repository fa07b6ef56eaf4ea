/// The common parts of the raw exchanges: sockets, sizes, sums.
#pragma once

#include <poll.h>

#include <cstddef>
#include <span>

#include "core/base/time.h"
#include "io/fd.h"
#include "test/bench/kv/stream.h"
#include "test/bench/kv/values.h"

namespace dt::bench {

/// Bytes of a system call. Measured: 256 KB to 4 MB are equal, less is slower.
inline constexpr std::size_t kCall = std::size_t{512} << 10;
/// Bytes that are still in the second-level cache when they are added.
inline constexpr std::size_t kScratch = std::size_t{256} << 10;
/// A connection's turn ends after this many bytes, so that the others' positions stay near.
inline constexpr std::size_t kTurn = std::size_t{1} << 20;

/// into[i] += from[i]
using AddFloats = void (*)(float* __restrict into, const float* __restrict from, std::size_t n);
/// into[i] = a[i] + b[i]
using SumFloats = void (*)(float* __restrict into, const float* __restrict a,
                           const float* __restrict b, std::size_t n);
/// The fastest versions for this processor.
[[nodiscard]] AddFloats best_add();
[[nodiscard]] SumFloats best_sum();

/// A TCP connection over loopback, both ends of it; reno, no Nagle.
struct SocketPair {
  io::Fd connected;
  io::Fd accepted;
};
[[nodiscard]] SocketPair connected_pair();

/// poll(), after having polled without sleeping for `busy`. A signal ends it as well.
void wait_for(std::span<pollfd> polls, Duration busy);

/// Sends the stream's bytes from `sent` to `end`, as many as the socket accepts now.
void send(const io::Fd& fd, const Stream& stream, const Buffer& from, std::size_t& sent,
          std::size_t end);
/// Receives the stream's bytes from `received` on that have arrived; ends after kTurn bytes.
void receive(const io::Fd& fd, const Stream& stream, const Buffer& into, std::size_t& received);

/// Throws errno's value as a socket's error.
[[noreturn]] void fail_socket(int number);
/// Whether errno is EAGAIN or similar.
[[nodiscard]] bool would_block();

/// `bytes`, rounded down to whole floats.
[[nodiscard]] constexpr std::size_t whole_floats(std::size_t bytes) {
  return bytes & ~(sizeof(float) - 1);
}

}  // namespace dt::bench
