/// Bytes on a stream: little-endian fields, length-limited, and frames around them.
///
/// A message is a struct with `static constexpr std::uint16_t kType`; all its members travel, in
/// their order. They may be integers, floating-point numbers, bool, enums over integers, Id,
/// std::string (any bytes), std::vector, std::optional, std::pair, and structs of these without a
/// base class. A type that did not always have its present members travels as another one:
/// `to_wire(value)` makes that, and `from_wire(it)` the value, or nothing. No memory is taken for a
/// length that the remaining bytes cannot hold.
///
///     frame = u32 size of the rest | u16 type | fields
#pragma once

#include <array>
#include <bit>
#include <boost/pfr/core.hpp>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/id.h"
#include "core/base/result.h"

namespace dt::wire {

inline constexpr std::size_t kFrameHeader = 6;

static_assert(std::endian::native == std::endian::little, "numbers travel as they lie in memory");

template <class T>
concept Number = std::is_arithmetic_v<T> || std::is_enum_v<T>;

/// Travels as the type that to_wire() makes of it.
template <class T>
concept Converted = requires(const T& value) {
  from_wire(to_wire(value));
};

class Writer {
 public:
  template <Number T>
  void put(T v) {
    const auto bytes = std::bit_cast<std::array<char, sizeof v>>(v);
    out_.append(bytes.data(), bytes.size());
  }
  template <class Tag, class Rep>
  void put(Id<Tag, Rep> id) {
    put(id.value);
  }
  void put(std::string_view s) {
    put(static_cast<std::uint32_t>(s.size()));
    out_.append(s);
  }
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
  template <Converted T>
  void put(const T& v) {
    put(to_wire(v));
  }
  template <class T>
  requires(std::is_aggregate_v<T> && !Converted<T>) void put(const T& v) {
    boost::pfr::for_each_field(v, [this](const auto& field) { this->put(field); });
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

  template <Number T>
  void get(T& v) {
    std::array<char, sizeof v> bytes{};
    if (!need(bytes.size())) return;
    in_.copy(bytes.data(), bytes.size());
    in_.remove_prefix(bytes.size());
    if constexpr (std::is_same_v<T, bool>) ok_ = bytes[0] == 0 || bytes[0] == 1;
    if (ok_) v = std::bit_cast<T>(bytes);
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
  template <Converted T>
  void get(T& v) {
    auto travelled = to_wire(T{});
    get(travelled);
    if (!ok_) return;
    if (auto value = from_wire(std::move(travelled)))
      v = std::move(*value);
    else
      ok_ = false;
  }
  template <class T>
  requires(std::is_aggregate_v<T> && !Converted<T>) void get(T& v) {
    boost::pfr::for_each_field(v, [this](auto& field) { this->get(field); });
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
