#include "io/line_prefixer.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/result.h"

namespace dt::io {
namespace {

/// Length of "ESC [ digits and semicolons m" at the front of `text`, or 0.
std::size_t colour_length(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  const std::size_t end = text.find_first_not_of("0123456789;", 2);
  return end != std::string_view::npos && text[end] == 'm' ? end + 1 : 0;
}

/// Length of the control character at the front of `text`, or 0. U+0080 to U+009F are some, too:
/// some terminals take them for the beginning of a sequence, as ESC is; some take the bytes alone.
std::size_t control_length(std::string_view text, bool is_inside) {
  const auto c = static_cast<unsigned char>(text[0]);
  if (c == 0xc2 && text.size() > 1 && static_cast<unsigned char>(text[1]) < 0xa0) return 2;
  return (c < 0x20 && c != '\t') || c == 0x7f || (c >= 0x80 && c < 0xa0 && !is_inside) ? 1 : 0;
}

/// Size of a UTF-8 character that begins so.
std::size_t character_size(char lead) {
  const auto c = static_cast<unsigned char>(lead);
  return c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
}

bool is_inner(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

bool is_plain(char c) { return (c >= ' ' && c < '\x7f') || c == '\t'; }

std::string printable(std::string_view text, bool with_colours) {
  std::string out;
  std::size_t inner = 0;  // bytes of a character that are to come
  while (!text.empty()) {
    // Most lines are nothing else.
    const std::string_view run(text.begin(), std::ranges::find_if_not(text, is_plain));
    out += run;
    text.remove_prefix(run.size());
    if (!run.empty()) inner = 0;
    if (text.empty()) break;
    inner = is_inner(text[0]) ? inner : character_size(text[0]);
    const std::size_t control = control_length(text, inner > 0);
    const std::size_t colour = colour_length(text);
    inner -= std::min(inner, std::max<std::size_t>(control, 1));
    if (control == 0 || colour > 0)
      out += text.substr(0, with_colours || colour == 0 ? std::max<std::size_t>(colour, 1) : 0);
    else
      for (const char c : text.substr(0, control))
        out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    text.remove_prefix(std::max({control, colour, std::size_t{1}}));
  }
  return out;
}

}  // namespace

std::size_t whole_characters(std::string_view text) {
  std::size_t back = 0;
  while (back < 3 && back + 1 < text.size() && is_inner(text[text.size() - 1 - back])) ++back;
  const std::size_t needs = character_size(text[text.size() - 1 - back]);
  return needs > back + 1 ? text.size() - 1 - back : text.size();
}

std::string printable(std::string_view text) { return printable(text, true); }
std::string plain(std::string_view text) { return printable(text, false); }

LinePrefixer::LinePrefixer(std::string prefix, std::size_t longest_line)
    : prefix_(std::move(prefix)), longest_(longest_line) {
  DT_CHECK(longest_ >= 8, "a line must hold a character or two");
}

std::string LinePrefixer::feed(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const std::size_t end = std::min(bytes.find_first_of("\r\n"), bytes.size());
    if (end > 0) add(bytes.substr(0, end), out);
    if (end == bytes.size()) break;
    if (bytes[end] == '\n')
      end_line(out);
    else
      after_cr_ = true;
    bytes.remove_prefix(end + 1);
  }
  return out;
}

void LinePrefixer::add(std::string_view text, std::string& out) {
  if (after_cr_) {
    after_cr_ = false;
    continues_ = false;
    if (!line_.empty()) progress_ = std::move(line_);
    line_.clear();
  }
  while (!text.empty()) {
    const std::size_t n = std::min(text.size(), longest_ - line_.size());
    line_.append(text.substr(0, n));
    text.remove_prefix(n);
    if (line_.size() < longest_ || text.empty()) continue;
    const std::size_t cut = whole_characters(line_);
    write_line(out, std::string_view(line_).substr(0, cut), true);
    line_.erase(0, cut);
    continues_ = true;
  }
}

void LinePrefixer::end_line(std::string& out) {
  write_line(out, line_, false);
  line_.clear();
  progress_.clear();
  after_cr_ = false;
  continues_ = false;
}

void LinePrefixer::write_line(std::string& out, std::string_view text, bool is_cut) {
  out += prefix_;
  if (continues_) out += "... ";
  out += printable(text);
  out += is_cut ? " ...\n" : "\n";
}

std::string LinePrefixer::take_progress() {
  std::string out;
  // After a "\r" the line itself is the latest whole state; otherwise it may be half drawn.
  if (after_cr_ && !line_.empty()) progress_ = std::move(line_);
  if (after_cr_) line_.clear();
  if (!progress_.empty()) out = prefix_ + printable(progress_) + "\n";
  progress_.clear();
  return out;
}

std::string LinePrefixer::finish() {
  std::string out;
  if (!line_.empty()) end_line(out);
  return out;
}

}  // namespace dt::io
