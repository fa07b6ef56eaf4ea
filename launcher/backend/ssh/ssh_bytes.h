/// Bytes as ssh's protocols and files write them (RFC 4251, section 5; base64 in files).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dt::launcher {

void put_u32(std::string& out, std::size_t value);
/// `bytes` has at least four.
[[nodiscard]] std::uint32_t get_u32(std::string_view bytes);
/// Length and text.
void put_string(std::string& out, std::string_view text);
/// Takes a string off the front; false: there is no whole one.
[[nodiscard]] bool take_string(std::string_view& bytes, std::string& into);

[[nodiscard]] std::string encode_base64(std::string_view bytes);
/// Empty if it is malformed.
[[nodiscard]] std::string decode_base64(std::string_view text);

}  // namespace dt::launcher
