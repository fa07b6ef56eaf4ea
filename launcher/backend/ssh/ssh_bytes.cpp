#include "launcher/backend/ssh/ssh_bytes.h"

#include <openssl/evp.h>

namespace dt::launcher {

void put_u32(std::string& out, std::size_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>((value >> shift) & 0xff);
}

std::uint32_t get_u32(std::string_view bytes) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

void put_string(std::string& out, std::string_view text) {
  put_u32(out, text.size());
  out += text;
}

bool take_string(std::string_view& bytes, std::string& into) {
  if (bytes.size() < 4) return false;
  const std::size_t size = get_u32(bytes);
  if (bytes.size() - 4 < size) return false;
  into = std::string(bytes.substr(4, size));
  bytes.remove_prefix(4 + size);
  return true;
}

std::string encode_base64(std::string_view bytes) {
  std::string out((bytes.size() + 2) / 3 * 4 + 1, '\0');  // and a NUL
  ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                    reinterpret_cast<const unsigned char*>(bytes.data()),
                    static_cast<int>(bytes.size()));
  out.pop_back();
  return out;
}

std::string decode_base64(std::string_view text) {
  std::string out(text.size(), '\0');
  const int n = ::EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                  reinterpret_cast<const unsigned char*>(text.data()),
                                  static_cast<int>(text.size()));
  if (n < 0) return {};
  std::size_t size = static_cast<std::size_t>(n);
  for (std::size_t i = text.size(); i > 0 && text[i - 1] == '=' && size > 0; --i) --size;
  out.resize(size);
  return out;
}

}  // namespace dt::launcher
