/// The header of a safetensors file: named arrays and where they lie. Python reads such files with
/// safetensors (safe_open, safetensors.torch.load_file).
///
///     file   = u64 size of the header | header, padded with spaces | arrays, one after the other
///     header = {"__metadata__": {"NAME": "TEXT", ...},
///               "NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...}
///
/// The reader takes what the format allows and no more: any bytes are refused with what is wrong,
/// or the arrays fill the file without gaps. It takes no more memory than the header is long, times
/// a small factor.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace dt::safetensors {

inline constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);
/// A longer header is refused.
inline constexpr std::uint64_t kMaxHeader = std::uint64_t{64} << 20;

using Metadata = std::map<std::string, std::string>;

struct Array {
  std::string name;
  std::string dtype;  ///< "F32" and so on.
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;  ///< Counted from the header's end.
  std::uint64_t end = 0;

  friend bool operator==(const Array&, const Array&) = default;
};

struct Header {
  std::vector<Array> arrays;  ///< A reader gets them in the order of the data.
  Metadata metadata;

  friend bool operator==(const Header&, const Header&) = default;
};

/// The order of arrays in the header, and of each one's fields.
enum class Order { kOfData, kOfNames };

/// The header with its size in front and its padding.
[[nodiscard]] std::string format_header(const Header& header, Order order);

/// The size of the header that follows, from a file's first kLengthBytes.
[[nodiscard]] Result<std::uint64_t> parse_length(std::string_view bytes, std::uint64_t file_bytes);

/// `text` is the header without its size; `data_bytes` follow it in the file.
[[nodiscard]] Result<Header> parse_header(std::string_view text, std::uint64_t data_bytes);

/// CRC-32C of each array in the order of the data, kept in the metadata "crc32c", eight hex digits
/// each: the header is as long whatever they are.
void set_checksums(Metadata& metadata, std::span<const std::uint32_t> checksums);
[[nodiscard]] Result<std::vector<std::uint32_t>> checksums_of(const Header& header);

}  // namespace dt::safetensors
