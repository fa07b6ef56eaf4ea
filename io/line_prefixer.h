/// Makes a process's output fit for a shared terminal: whole lines, each with a prefix, so that
/// lines of many processes never mix. Pure; the bytes as written are kept in per-process files.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dt::io {

/// `text` with control characters, except tabs and colours, as \xNN. UTF-8 stays.
[[nodiscard]] std::string printable(std::string_view text);
/// The same without colours.
[[nodiscard]] std::string plain(std::string_view text);

/// Where to cut `text`, which is not empty, so that no UTF-8 character is torn: at its size or up
/// to 3 bytes before.
[[nodiscard]] std::size_t whole_characters(std::string_view text);

/// One per process and stream (stdout and stderr are cut into lines apart from each other).
///
/// - "\r\n" ends a line as "\n" does. Text before a lone "\r" (a progress bar drawing over itself)
///   is replaced by the text after it; take_progress() returns its latest state.
/// - A line longer than the limit is cut: "[p] aaa ..." and then "[p] ... aaa".
/// - Bytes that could confuse a terminal are shown as \xNN; tabs, UTF-8 and colours stay.
/// - Memory: at most one line of the longest length.
class LinePrefixer {
 public:
  static constexpr std::size_t kLongestLine = std::size_t{64} << 10;

  /// `prefix`: "[worker 1 10.0.0.7] ", or empty.
  explicit LinePrefixer(std::string prefix, std::size_t longest_line = kLongestLine);

  /// The lines that these bytes completed, each with its prefix and newline; may be empty.
  [[nodiscard]] std::string feed(std::string_view bytes);
  /// A progress bar's latest state as a line, empty when it has not moved since the last call.
  /// Call it about once a second.
  [[nodiscard]] std::string take_progress();
  /// What is left at the end of the output, as a line; empty if nothing is.
  [[nodiscard]] std::string finish();

 private:
  void end_line(std::string& out);
  void add(std::string_view text, std::string& out);
  void write_line(std::string& out, std::string_view text, bool is_cut);

  std::string prefix_;
  std::size_t longest_;
  std::string line_;      ///< The unfinished line, as written.
  std::string progress_;  ///< The latest whole state of a progress bar, not shown yet.
  bool after_cr_ = false;
  bool continues_ = false;  ///< line_ continues a line that was cut.
};

}  // namespace dt::io
