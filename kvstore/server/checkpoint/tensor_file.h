/// A file of named arrays of one dimension in the safetensors format (core/files/safetensors.h),
/// with checksums, which are in its metadata.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/files/safetensors.h"
#include "io/fd.h"
#include "kvstore/protocol/messages.h"

namespace dt::kv {

using safetensors::Metadata;

/// "F32" and so on; null for a number that is no dtype.
[[nodiscard]] const char* safetensors_name(data::Dtype dtype);
[[nodiscard]] std::optional<data::Dtype> dtype_of(std::string_view safetensors_name);

/// An array to be written.
struct Tensor {
  std::string name;
  data::Dtype dtype{};
  std::uint64_t elements = 0;
  const std::byte* values = nullptr;
};

struct WrittenFile {
  std::uint64_t bytes = 0;
  std::uint32_t header_crc = 0;  ///< CRC of size and header, which contains the arrays' checksums.
};

/// Writes and syncs the file; replaces an existing one. On an error the file is removed.
/// `give_up` is asked about every megabyte; true ends it with kClosed.
[[nodiscard]] Result<WrittenFile> write_tensor_file(const std::string& path,
                                                    std::span<const Tensor> tensors,
                                                    Metadata metadata,
                                                    const std::function<bool()>& give_up = {});

/// A tensor file opened for reading. Any damage is an error that names the cause.
class TensorFile {
 public:
  struct Entry {
    std::string name;
    data::Dtype dtype{};
    std::uint64_t elements = 0;
    std::uint64_t at = 0;  ///< Offset in the file.
    std::uint32_t crc = 0;

    [[nodiscard]] std::uint64_t bytes() const { return elements * data::element_bytes(dtype); }
  };
  [[nodiscard]] static Result<TensorFile> open(const std::string& path);

  [[nodiscard]] const std::string& path() const { return path_; }
  /// In the order of the data.
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }
  [[nodiscard]] const Metadata& metadata() const { return metadata_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] std::uint32_t header_crc() const { return header_crc_; }
  /// Reads a whole array and checks it; `into` has room for entry.bytes(). Any thread.
  [[nodiscard]] Result<void> read(const Entry& entry, std::byte* into) const;

 private:
  std::string path_;
  io::Fd fd_;
  std::uint64_t bytes_ = 0;
  std::uint32_t header_crc_ = 0;
  std::vector<Entry> entries_;
  Metadata metadata_;
};

}  // namespace dt::kv
