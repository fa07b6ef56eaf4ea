/// Any bytes from a host as framed lines: no crash, bounded memory, the same however they are cut;
/// what was framed comes out.

#include <cstdint>
#include <string>
#include <string_view>

#include "core/launch/lines.h"
#include "test/fuzz/target.h"

DT_FUZZ_TARGET(lines)
(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  dt::LineDecoder whole;
  std::string at_once;
  const bool is_good = whole.feed(bytes, at_once).has_value();
  dt::LineDecoder cut;
  std::string one_by_one;
  bool is_cut_good = true;
  for (std::size_t i = 0; i < size && is_cut_good; ++i)
    is_cut_good = cut.feed(bytes.substr(i, 1), one_by_one).has_value();
  DT_CHECK(is_good == is_cut_good && at_once == one_by_one, "the same however it is cut");
  DT_CHECK(at_once.size() <= size, "no more than came");
  std::string framed;
  dt::append_lines(framed, bytes);
  std::string back;
  dt::LineDecoder again;
  DT_CHECK(again.feed(framed, back) && back == bytes, "what was framed comes out");
  return 0;
}
