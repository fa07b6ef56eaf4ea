// A safetensors file of arbitrary bytes: its header is refused, or places arrays inside the file
// and is the same when it is written again in either order.

#include <cstdint>
#include <string_view>

#include "core/files/safetensors.h"
#include "test/fuzz/target.h"

using namespace dt;

namespace {

safetensors::Header written_again(const safetensors::Header& header, safetensors::Order order,
                                  std::uint64_t data_bytes) {
  const std::string text = format_header(header, order);
  auto again = safetensors::parse_header(std::string_view(text).substr(safetensors::kLengthBytes),
                                         data_bytes);
  DT_CHECK(again, "a header of ours that is refused");
  return *again;
}

}  // namespace

DT_FUZZ_TARGET(safetensors)
(const std::uint8_t* bytes, std::size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(bytes), size);
  const auto length =
      safetensors::parse_length(file.substr(0, safetensors::kLengthBytes), file.size());
  if (!length) return 0;
  const std::uint64_t data_bytes = size - safetensors::kLengthBytes - *length;
  const auto header =
      safetensors::parse_header(file.substr(safetensors::kLengthBytes, *length), data_bytes);
  if (!header) return 0;
  std::uint64_t at = 0;
  for (const auto& array : header->arrays) {
    DT_CHECK(array.begin == at && array.end >= at && array.end <= data_bytes, "a place");
    at = array.end;
  }
  DT_CHECK(at == data_bytes, "bytes of no array");
  (void)checksums_of(*header);
  for (const auto order : {safetensors::Order::kOfData, safetensors::Order::kOfNames})
    DT_CHECK(written_again(*header, order, data_bytes).metadata == header->metadata &&
                 written_again(*header, order, data_bytes).arrays.size() == header->arrays.size(),
             "a header that changes when it is written again");
  return 0;
}
