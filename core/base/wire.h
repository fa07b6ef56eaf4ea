/// Bytes on a stream: little-endian fields, length-limited, and frames around them.
///
/// A message is a struct with `static constexpr std::uint16_t kType` and `DT_FIELDS(a, b, c)`.
/// Fields may be integers, bool, enums over integers, Id, std::string (any bytes), std::vector,
/// std::optional, std::pair, and structs with DT_FIELDS. Nothing is ever cast from memory, and no
/// memory is taken for a length that the remaining bytes cannot hold.
///
///     frame = u32 size of the rest | u16 type | fields
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/id.h"
#include "core/base/result.h"
#include "core/base/time.h"

/// Lists the members that travel, once, for writing and for reading.
#define DT_FIELDS(...)                              \
  auto fields() { return ::std::tie(__VA_ARGS__); } \
  auto fields() const { return ::std::tie(__VA_ARGS__); }

namespace dt::wire {

inline constexpr std::size_t kFrameHeader = 6;

template <class T>
concept Fielded = requires(T& t) {
  t.fields();
};

class Writer {
 public:
  template <std::integral T>
  void put(T v) {
    using U = std::make_unsigned_t<std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>>;
    auto u = static_cast<U>(v);
    for (std::size_t i = 0; i < sizeof(U); ++i)
      out_.push_back(static_cast<char>((static_cast<std::uint64_t>(u) >> (8 * i)) & 0xff));
  }
  template <class T>
  requires std::is_enum_v<T>
  void put(T v) { put(static_cast<std::underlying_type_t<T>>(v)); }
  void put(double v) { put(std::bit_cast<std::uint64_t>(v)); }
  void put(float v) { put(std::bit_cast<std::uint32_t>(v)); }
  void put(Time t) { put(t.time_since_epoch().count()); }
  template <class Tag, class Rep>
  void put(Id<Tag, Rep> id) {
    put(id.value);
  }
  void put(std::string_view s) {
    put(static_cast<std::uint32_t>(s.size()));
    out_.append(s);
  }
  void put(const std::string& s) { put(std::string_view(s)); }
  template <class T>
  void put(const std::vector<T>& v) {
    put(static_cast<std::uint32_t>(v.size()));
    for (const auto& e : v) put(e);
  }
  template <class T>
  void put(const std::optional<T>& v) {
    put(v.has_value());
    if (v) put(*v);
  }
  template <class A, class B>
  void put(const std::pair<A, B>& v) {
    put(v.first);
    put(v.second);
  }
  template <Fielded T>
  void put(const T& v) {
    std::apply([this](const auto&... f) { (this->put(f), ...); }, v.fields());
  }
  [[nodiscard]] std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

/// Reads what Writer wrote. After the first short or malformed field every `get` leaves its target
/// alone and `ok()` is false for good.
class Reader {
 public:
  explicit Reader(std::string_view in) : in_(in) {}
  [[nodiscard]] bool ok() const { return ok_; }
  /// Everything was read, and nothing is left over.
  [[nodiscard]] bool done() const { return ok_ && in_.empty(); }

  template <std::integral T>
  void get(T& v) {
    using U = std::make_unsigned_t<std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>>;
    if (!need(sizeof(U))) return;
    std::uint64_t u = 0;
    for (std::size_t i = 0; i < sizeof(U); ++i)
      u |= static_cast<std::uint64_t>(static_cast<unsigned char>(in_[i])) << (8 * i);
    in_.remove_prefix(sizeof(U));
    if constexpr (std::is_same_v<T, bool>) {
      if (u > 1) return void(ok_ = false);
      v = u != 0;
    } else {
      v = static_cast<T>(static_cast<U>(u));
    }
  }
  template <class T>
  requires std::is_enum_v<T>
  void get(T& v) {
    std::underlying_type_t<T> u{};
    get(u);
    if (ok_) v = static_cast<T>(u);
  }
  void get(double& v) {
    std::uint64_t u = 0;
    get(u);
    if (ok_) v = std::bit_cast<double>(u);
  }
  void get(float& v) {
    std::uint32_t u = 0;
    get(u);
    if (ok_) v = std::bit_cast<float>(u);
  }
  void get(Time& t) {
    Duration::rep n = 0;
    get(n);
    if (ok_) t = Time(Duration(n));
  }
  template <class Tag, class Rep>
  void get(Id<Tag, Rep>& id) {
    get(id.value);
  }
  void get(std::string& s) {
    std::uint32_t n = 0;
    get(n);
    if (!need(n)) return;
    s.assign(in_.substr(0, n));
    in_.remove_prefix(n);
  }
  template <class T>
  void get(std::vector<T>& v) {
    std::uint32_t n = 0;
    get(n);
    if (!need(n)) return;  // every element takes at least one byte
    v.clear();
    for (std::uint32_t i = 0; i < n && ok_; ++i) get(v.emplace_back());
  }
  template <class T>
  void get(std::optional<T>& v) {
    bool has = false;
    get(has);
    v.reset();
    if (ok_ && has) get(v.emplace());
  }
  template <class A, class B>
  void get(std::pair<A, B>& v) {
    get(v.first);
    get(v.second);
  }
  template <Fielded T>
  void get(T& v) {
    std::apply([this](auto&... f) { (this->get(f), ...); }, v.fields());
  }

 private:
  bool need(std::size_t n) {
    if (ok_ && in_.size() < n) ok_ = false;
    return ok_;
  }
  std::string_view in_;
  bool ok_ = true;
};

/// A whole frame: its type and its fields' bytes.
struct Frame {
  std::uint16_t type = 0;
  std::string body;
  friend bool operator==(const Frame&, const Frame&) = default;
};

template <class Message>
[[nodiscard]] std::string body_of(const Message& message) {
  Writer w;
  w.put(message);
  return w.take();
}

/// The bytes of a frame with this type and body.
[[nodiscard]] std::string frame(std::uint16_t type, std::string_view body);

/// The bytes of a frame that carries `message`.
template <class Message>
[[nodiscard]] std::string frame(const Message& message) {
  return frame(Message::kType, body_of(message));
}

/// The message in a body; kProtocol when fields are missing, malformed or left over.
template <class Message>
[[nodiscard]] Result<Message> parse(std::string_view body) {
  Message message;
  Reader r(body);
  r.get(message);
  if (!r.done())
    return fail(ErrorKind::kProtocol, "malformed message of type {} ({} bytes)", Message::kType,
                body.size());
  return message;
}

/// Cuts a byte stream into frames. Memory never exceeds what has been fed plus one frame.
class FrameDecoder {
 public:
  /// `max_body`: a longer announced frame is an error before any memory is taken for it.
  explicit FrameDecoder(std::size_t max_body = std::size_t{16} << 20) : max_body_(max_body) {}
  void feed(std::string_view bytes);
  /// The next whole frame, nothing if more bytes are needed, kProtocol once the stream is broken
  /// (it stays broken).
  [[nodiscard]] Result<std::optional<Frame>> next();

 private:
  std::size_t max_body_;
  std::string buffer_;
  std::size_t read_ = 0;
};

}  // namespace dt::wire
