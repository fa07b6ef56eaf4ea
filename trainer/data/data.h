/// Labelled pictures in memory and where they come from: MNIST idx files and CIFAR-10 binary files
/// (plain or .gz), or generated digits. Independent of workers and batches.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace dt::train {

/// Pictures of one size as bytes, channel by channel, row by row, with a label 0..classes-1 each.
struct Dataset {
  std::uint32_t channels = 1;
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  std::uint32_t classes = 10;
  /// Mean and deviation per channel, on the scale 0..1, for normalising.
  std::array<float, 3> mean{};
  std::array<float, 3> deviation{1.0F, 1.0F, 1.0F};
  std::vector<std::uint8_t> pixels;
  std::vector<std::uint8_t> labels;

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(labels.size()); }
  [[nodiscard]] std::size_t image_size() const { return std::size_t{channels} * height * width; }
  [[nodiscard]] std::span<const std::uint8_t> image(std::uint32_t i) const {
    return std::span(pixels).subspan(i * image_size(), image_size());
  }
  /// Writes picture i, normalised, to `out` (image_size() floats).
  void normalised(std::uint32_t i, float* out) const;
};

/// The data sets of a training run.
struct DataPair {
  Dataset train;
  Dataset test;
  std::string source;  ///< The origin, for messages: a folder or "generated digits".
};

/// One pair of idx files. Errors name the file and the cause.
[[nodiscard]] Result<Dataset> read_mnist(const std::filesystem::path& images,
                                         const std::filesystem::path& labels);
/// CIFAR-10 binary files (records of one label byte and 3072 pixel bytes), one after the other.
[[nodiscard]] Result<Dataset> read_cifar10(const std::vector<std::filesystem::path>& files);

/// The four MNIST files of a folder under their usual names, each with or without .gz.
[[nodiscard]] Result<DataPair> load_mnist(const std::filesystem::path& folder);
/// data_batch_*.bin and test_batch.bin of a folder, each with or without .gz.
[[nodiscard]] Result<DataPair> load_cifar10(const std::filesystem::path& folder);

/// MNIST-like digits (28x28, white on black), moved, scaled, slanted and made noisy at random.
/// The same count and seed give the same bytes.
[[nodiscard]] Dataset generate_digits(std::uint32_t count, std::uint64_t seed);

/// `kind` is mnist, cifar10 or generated; the folder is not used for the last.
[[nodiscard]] Result<DataPair> load_data(std::string_view kind,
                                         const std::filesystem::path& folder);

}  // namespace dt::train
