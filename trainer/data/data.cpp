#include "trainer/data/data.h"

#include <zlib.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "trainer/data/random.h"

namespace dt::train {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kIdxImages = 0x803;  // unsigned bytes, 3 dimensions
constexpr std::uint32_t kIdxLabels = 0x801;  // unsigned bytes, 1 dimension
/// Far above every data set of this kind: a wrong header must not take all memory.
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 30U;
constexpr std::size_t kCifarRecord = 1 + 3 * 32 * 32;

using Bytes = std::vector<std::uint8_t>;

struct GzClose {
  void operator()(gzFile_s* file) const { gzclose(file); }
};

/// What a file has, at most kMaxBytes; zlib passes a plain one through.
Result<Bytes> read_file(const fs::path& path) {
  const std::unique_ptr<gzFile_s, GzClose> file(gzopen(path.c_str(), "rbe"));
  if (file == nullptr) return tl::unexpected(errno_error(errno, "open " + path.string()));
  gzbuffer(file.get(), 1U << 17U);
  Bytes all;
  std::array<std::uint8_t, 1U << 16U> piece;
  for (;;) {
    const int got = gzread(file.get(), piece.data(), piece.size());
    int code = Z_OK;
    const char* why = gzerror(file.get(), &code);
    if (code == Z_ERRNO) return tl::unexpected(errno_error(errno, "read " + path.string()));
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END))
      return fail(ErrorKind::kInvalid, "{}: damaged or cut short ({}); fetch it again",
                  path.string(), why);
    if (got == 0) return all;
    all.insert(all.end(), piece.begin(), piece.begin() + got);
    if (all.size() > kMaxBytes) return fail(ErrorKind::kInvalid, "{}: too large", path.string());
  }
}

/// The elements of an idx file; fills its dimensions.
Result<Bytes> read_idx(const fs::path& path, std::uint32_t magic,
                       std::span<std::uint32_t> dimensions) {
  auto bytes = read_file(path);
  if (!bytes) return bytes;
  const auto number = [&](std::size_t i) {
    const std::uint8_t* b = bytes->data() + 4 * i;
    return static_cast<std::uint32_t>(b[0]) << 24U | static_cast<std::uint32_t>(b[1]) << 16U |
           static_cast<std::uint32_t>(b[2]) << 8U | b[3];
  };
  const auto ends_early = [&](std::size_t promised) {
    return fail(ErrorKind::kInvalid,
                "{}: ends after {} bytes where {} more were promised; fetch it again",
                path.string(), bytes->size(), promised - bytes->size());
  };
  const std::size_t header = 4 * (1 + dimensions.size());
  if (bytes->size() >= 4 && number(0) != magic)
    return fail(ErrorKind::kInvalid,
                "{}: not an MNIST {} file (starts with {:#010x}, not {:#010x})", path.string(),
                magic == kIdxImages ? "image" : "label", number(0), magic);
  if (bytes->size() < header) return ends_early(header);
  std::uint64_t elements = 1;
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    dimensions[i] = number(1 + i);
    // Checked one by one: the product of three 32-bit numbers overflows.
    elements = dimensions[i] == 0 ? kMaxBytes + 1 : elements * dimensions[i];
    if (elements > kMaxBytes)
      return fail(ErrorKind::kInvalid, "{}: its header gives impossible dimensions", path.string());
  }
  if (bytes->size() < header + elements) return ends_early(header + elements);
  if (bytes->size() > header + elements)
    return fail(ErrorKind::kInvalid, "{}: has bytes beyond the {} its header promises",
                path.string(), header + elements);
  // A copy, which has no spare memory.
  return Bytes(bytes->begin() + static_cast<std::ptrdiff_t>(header), bytes->end());
}

/// The file itself or its .gz, whichever exists.
std::optional<fs::path> plain_or_gz(const fs::path& path) {
  for (const auto& candidate : {path, fs::path(path.string() + ".gz")}) {
    std::error_code ec;
    if (fs::exists(candidate, ec)) return candidate;
  }
  return std::nullopt;
}

Result<Dataset> mnist_of(const fs::path& folder, const std::string& prefix) {
  const auto images = plain_or_gz(folder / (prefix + "-images-idx3-ubyte"));
  const auto labels = plain_or_gz(folder / (prefix + "-labels-idx1-ubyte"));
  if (!images || !labels) {
    return fail(ErrorKind::kInvalid,
                "{}: has no {}-{}-ubyte or .gz; scripts/prepare-mnist {} fetches MNIST",
                folder.string(), prefix, images ? "labels-idx1" : "images-idx3", folder.string());
  }
  return read_mnist(*images, *labels);
}

/// 5x7 pictures of the digits, a row in the low five bits of each byte, leftmost bit highest.
constexpr std::array<std::array<std::uint8_t, 7>, 10> kGlyphs{{
    {0x0e, 0x11, 0x11, 0x11, 0x11, 0x11, 0x0e},
    {0x04, 0x0c, 0x04, 0x04, 0x04, 0x04, 0x0e},
    {0x0e, 0x11, 0x01, 0x02, 0x04, 0x08, 0x1f},
    {0x0e, 0x11, 0x01, 0x06, 0x01, 0x11, 0x0e},
    {0x02, 0x06, 0x0a, 0x12, 0x1f, 0x02, 0x02},
    {0x1f, 0x10, 0x1e, 0x01, 0x01, 0x11, 0x0e},
    {0x06, 0x08, 0x10, 0x1e, 0x11, 0x11, 0x0e},
    {0x1f, 0x01, 0x02, 0x04, 0x08, 0x08, 0x08},
    {0x0e, 0x11, 0x11, 0x0e, 0x11, 0x11, 0x0e},
    {0x0e, 0x11, 0x11, 0x0f, 0x01, 0x02, 0x0c},
}};

/// The glyph's ink at a point between its cells, 0..1, bilinear.
double ink(const std::array<std::uint8_t, 7>& glyph, double x, double y) {
  const auto cell = [&](int column, int row) {
    if (column < 0 || column > 4 || row < 0 || row > 6) return 0.0;
    return (glyph[static_cast<std::size_t>(row)] >> static_cast<unsigned>(4 - column) & 1U) != 0
               ? 1.0
               : 0.0;
  };
  const double left = std::floor(x);
  const double top = std::floor(y);
  const int c = static_cast<int>(left);
  const int r = static_cast<int>(top);
  const double fx = x - left;
  const double fy = y - top;
  return (1 - fy) * ((1 - fx) * cell(c, r) + fx * cell(c + 1, r)) +
         fy * ((1 - fx) * cell(c, r + 1) + fx * cell(c + 1, r + 1));
}

void draw(std::uint8_t digit, Random& random, std::uint8_t* out) {
  constexpr int kSide = 28;
  const double scale_x = random.uniform(2.4, 3.6);  // pixels a cell
  const double scale_y = random.uniform(2.4, 3.2);
  const double slant = random.uniform(-0.25, 0.25);
  const double centre_x = kSide / 2.0 + random.uniform(-2.5, 2.5);
  const double centre_y = kSide / 2.0 + random.uniform(-2.0, 2.0);
  const double brightness = random.uniform(190, 255);
  for (int y = 0; y < kSide; ++y) {
    for (int x = 0; x < kSide; ++x) {
      const double dy = y - centre_y;
      const double dx = x - centre_x + slant * dy;
      const double sharp =
          std::clamp(1.6 * ink(kGlyphs[digit], dx / scale_x + 2, dy / scale_y + 3) - 0.3, 0.0, 1.0);
      const double noise = random.uniform(-24, 24);
      *out++ = static_cast<std::uint8_t>(std::clamp(sharp * brightness + noise, 0.0, 255.0));
    }
  }
}

void set_mnist_scale(Dataset& set) {
  set.mean[0] = 0.1307F;
  set.deviation[0] = 0.3081F;
}

}  // namespace

void Dataset::normalised(std::uint32_t i, float* out) const {
  const auto bytes = image(i);
  const std::size_t plane = std::size_t{height} * width;
  for (std::size_t channel = 0; channel < channels; ++channel) {
    const float scale = 1.0F / (255.0F * deviation[channel]);
    const float shift = mean[channel] / deviation[channel];
    for (std::size_t p = channel * plane; p < (channel + 1) * plane; ++p)
      out[p] = static_cast<float>(bytes[p]) * scale - shift;
  }
}

Result<Dataset> read_mnist(const fs::path& images, const fs::path& labels) {
  std::array<std::uint32_t, 3> shape{};  // pictures, rows, columns
  auto pixels = read_idx(images, kIdxImages, shape);
  if (!pixels) return tl::unexpected(pixels.error());
  std::array<std::uint32_t, 1> count{};
  auto digits = read_idx(labels, kIdxLabels, count);
  if (!digits) return tl::unexpected(digits.error());
  if (shape[0] != count[0])
    return fail(ErrorKind::kInvalid,
                "{} has {} images but {} has {} labels: they do not belong together",
                images.string(), shape[0], labels.string(), count[0]);
  Dataset set;
  set.height = shape[1];
  set.width = shape[2];
  set_mnist_scale(set);
  set.pixels = std::move(*pixels);
  set.labels = std::move(*digits);
  if (std::ranges::any_of(set.labels, [](std::uint8_t label) { return label > 9; }))
    return fail(ErrorKind::kInvalid, "{}: has labels above 9", labels.string());
  return set;
}

Result<Dataset> read_cifar10(const std::vector<fs::path>& files) {
  Dataset set;
  set.channels = 3;
  set.height = set.width = 32;
  set.mean = {0.4914F, 0.4822F, 0.4465F};
  set.deviation = {0.2470F, 0.2435F, 0.2616F};
  for (const auto& path : files) {
    const auto bytes = read_file(path);
    if (!bytes) return tl::unexpected(bytes.error());
    if (bytes->empty() || bytes->size() % kCifarRecord != 0)
      return fail(ErrorKind::kInvalid,
                  "{}: {} bytes are not a whole number of CIFAR-10 records of {} bytes",
                  path.string(), bytes->size(), kCifarRecord);
    for (std::size_t at = 0; at < bytes->size(); at += kCifarRecord) {
      const auto* record = bytes->data() + at;
      if (*record > 9)
        return fail(ErrorKind::kInvalid, "{}: record {} has label {}, above 9", path.string(),
                    at / kCifarRecord, *record);
      set.labels.push_back(*record);
      set.pixels.insert(set.pixels.end(), record + 1, record + kCifarRecord);
    }
  }
  return set;
}

Result<DataPair> load_mnist(const fs::path& folder) {
  auto train = mnist_of(folder, "train");
  if (!train) return tl::unexpected(train.error());
  auto test = mnist_of(folder, "t10k");
  if (!test) return tl::unexpected(test.error());
  return DataPair{std::move(*train), std::move(*test), "MNIST in " + folder.string()};
}

Result<DataPair> load_cifar10(const fs::path& folder) {
  std::vector<fs::path> batches;
  for (int i = 1; i <= 5; ++i) {
    if (auto path = plain_or_gz(folder / fmt::format("data_batch_{}.bin", i)))
      batches.push_back(*path);
  }
  const auto last = plain_or_gz(folder / "test_batch.bin");
  if (batches.empty() || !last)
    return fail(ErrorKind::kInvalid, "{}: has no {} (CIFAR-10, binary version) or .gz",
                folder.string(), batches.empty() ? "data_batch_1.bin" : "test_batch.bin");
  auto train = read_cifar10(batches);
  if (!train) return tl::unexpected(train.error());
  auto test = read_cifar10({*last});
  if (!test) return tl::unexpected(test.error());
  return DataPair{std::move(*train), std::move(*test), "CIFAR-10 in " + folder.string()};
}

Dataset generate_digits(std::uint32_t count, std::uint64_t seed) {
  Dataset set;
  set.height = set.width = 28;
  set_mnist_scale(set);
  set.labels.resize(count);
  set.pixels.resize(count * set.image_size());
  Random random(seed);
  for (std::uint32_t i = 0; i < count; ++i) {
    set.labels[i] = static_cast<std::uint8_t>(random.below(10));
    draw(set.labels[i], random, set.pixels.data() + i * set.image_size());
  }
  return set;
}

Result<DataPair> load_data(std::string_view kind, const fs::path& folder) {
  if (kind == "generated")
    return DataPair{generate_digits(12000, 1), generate_digits(2000, 2), "generated digits"};
  if (folder.empty())
    return fail(ErrorKind::kInvalid, "data set {} needs a folder (--data DIR)", kind);
  if (kind == "mnist") return load_mnist(folder);
  if (kind == "cifar10") return load_cifar10(folder);
  return fail(ErrorKind::kInvalid, "unknown data set {}: mnist, cifar10 or generated", kind);
}

}  // namespace dt::train
