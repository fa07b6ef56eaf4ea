/// What a program said last, for a sentence about it: printable, whatever it has written.
#pragma once

#include <string>
#include <string_view>

namespace dt::io {

/// The last line that is not blank; empty: there is none.
[[nodiscard]] std::string last_line(std::string_view text);

/// All on one line, without lines of dashes; where that has more than `most` bytes, its beginning
/// and its end.
[[nodiscard]] std::string on_one_line(std::string_view text, std::size_t most = 400);

}  // namespace dt::io
