/// Stores that go past the caches. Part of level.h.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace dt::kv {
namespace {

#if defined(__AVX512F__)
using Line = __m512i;
Line load(const std::byte* from) { return _mm512_loadu_si512(from); }
void stream(std::byte* to, Line line) { _mm512_stream_si512(reinterpret_cast<Line*>(to), line); }
#elif defined(__AVX2__)
using Line = __m256i;
Line load(const std::byte* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(from));
}
void stream(std::byte* to, Line line) { _mm256_stream_si256(reinterpret_cast<Line*>(to), line); }
#elif defined(__x86_64__)
using Line = __m128i;
Line load(const std::byte* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(from));
}
void stream(std::byte* to, Line line) { _mm_stream_si128(reinterpret_cast<Line*>(to), line); }
#endif

void copy_streaming(void* out, const void* from, std::size_t bytes) {
#if defined(__x86_64__)
  constexpr std::size_t kCacheLine = 64;
  auto* to = static_cast<std::byte*>(out);
  const auto* of = static_cast<const std::byte*>(from);
  // Whole cache lines only: a part of one would be read from memory first.
  std::size_t head = (kCacheLine - reinterpret_cast<std::uintptr_t>(to) % kCacheLine) % kCacheLine;
  if (head > bytes) head = bytes;
  if (head > 0) __builtin_memcpy(to, of, head);
  std::size_t at = head;
  for (; at + kCacheLine <= bytes; at += kCacheLine)
    for (std::size_t i = 0; i < kCacheLine; i += sizeof(Line))
      stream(to + at + i, load(of + at + i));
  if (at < bytes) __builtin_memcpy(to + at, of + at, bytes - at);
  _mm_sfence();  // streamed stores become visible to others in order again
#else
  if (bytes > 0) __builtin_memcpy(out, from, bytes);
#endif
}

}  // namespace
}  // namespace dt::kv
