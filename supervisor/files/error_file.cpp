#include "supervisor/files/error_file.h"

#include <nlohmann/json.hpp>

namespace dt::supervisor {
namespace {

using nlohmann::json;

/// The text itself, or "message" of the object: a text, or an object that has one.
std::string message_of(const json& value, int objects = 2) {
  if (value.is_string()) return value.get<std::string>();
  const auto inner = value.find("message");
  return objects > 0 && inner != value.end() ? message_of(*inner, objects - 1) : "";
}

}  // namespace

std::string error_message(std::string_view text) {
  constexpr std::size_t kMost = 300;
  const json parsed = json::parse(text, nullptr, false);
  std::string out;
  for (const char c : message_of(parsed)) {
    const bool is_space = static_cast<unsigned char>(c) <= 0x20 || c == 0x7f;
    if (is_space && (out.empty() || out.back() == ' ')) continue;
    out += is_space ? ' ' : c;
    if (out.size() < kMost) continue;
    // Not in the middle of a character.
    while (!out.empty() && (static_cast<unsigned char>(out.back()) & 0xc0) == 0x80) out.pop_back();
    if (!out.empty() && static_cast<unsigned char>(out.back()) >= 0x80) out.pop_back();
    return out + "...";
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

}  // namespace dt::supervisor
