#include "supervisor/files/error_file.h"

#include <nlohmann/json.hpp>

namespace dt::supervisor {
namespace {

using nlohmann::json;

/// "message" is a text, or an object that has one.
std::string message_of(const json& object) {
  if (object.is_string()) return object.get<std::string>();
  if (!object.is_object()) return {};
  const auto inner = object.find("message");
  if (inner == object.end()) return {};
  if (inner->is_string()) return inner->get<std::string>();
  const auto innermost = inner->is_object() ? inner->find("message") : inner->end();
  const bool has_text = inner->is_object() && innermost != inner->end() && innermost->is_string();
  return has_text ? innermost->get<std::string>() : std::string();
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
