#include "trainer/data/data.h"

#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "test/support/catch.h"
#include "trainer/data/sampler.h"

namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::uint8_t>;

class DataFolder {
 public:
  DataFolder() {
    std::string pattern = (fs::temp_directory_path() / "dt-data-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~DataFolder() { fs::remove_all(path_); }
  DataFolder(const DataFolder&) = delete;
  DataFolder& operator=(const DataFolder&) = delete;

  fs::path write(const std::string& name, const Bytes& bytes) const {
    std::ofstream(path_ / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    return path_ / name;
  }
  fs::path write_gz(const std::string& name, const Bytes& bytes) const {
    gzFile file = gzopen((path_ / name).c_str(), "wb");
    REQUIRE(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())) > 0);
    gzclose(file);
    return path_ / name;
  }
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// An idx file: magic, dimensions, then bytes 0, 1, 2 ... modulo 10.
Bytes idx(std::uint32_t magic, const std::vector<std::uint32_t>& dimensions) {
  Bytes out;
  const auto put = [&](std::uint32_t v) {
    for (const int shift : {24, 16, 8, 0}) out.push_back(static_cast<std::uint8_t>(v >> shift));
  };
  put(magic);
  std::uint32_t n = 1;
  for (const std::uint32_t d : dimensions) {
    put(d);
    n *= d;
  }
  for (std::uint32_t i = 0; i < n; ++i) out.push_back(static_cast<std::uint8_t>(i % 10));
  return out;
}

const Bytes kImages = idx(0x803, {20, 3, 2});
const Bytes kLabels = idx(0x801, {20});

std::string why(const dt::Result<dt::train::Dataset>& result) {
  return result ? "no error" : result.error().message;
}
bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("MNIST files are read alike plain and gzipped") {
  DataFolder folder;
  const auto plain = dt::train::read_mnist(folder.write("i", kImages), folder.write("l", kLabels));
  const auto packed =
      dt::train::read_mnist(folder.write_gz("i.gz", kImages), folder.write_gz("l.gz", kLabels));
  REQUIRE(plain);
  REQUIRE(packed);
  CHECK(plain->size() == 20);
  CHECK(plain->height == 3);
  CHECK(plain->width == 2);
  CHECK(plain->image(19)[5] == 9);
  CHECK(plain->labels[13] == 3);
  CHECK(plain->pixels == packed->pixels);
  CHECK(plain->labels == packed->labels);
}

TEST_CASE("a damaged MNIST file is refused by name") {
  DataFolder folder;
  const auto labels = folder.write("l", kLabels);

  SECTION("cut short") {
    auto bytes = kImages;
    bytes.pop_back();
    const auto got = why(dt::train::read_mnist(folder.write("short", bytes), labels));
    CHECK(has(got, "short: ends after 135 bytes where 1 more"));
  }
  SECTION("cut within its header") {
    CHECK(has(why(dt::train::read_mnist(folder.write("header", {0, 0, 8, 3, 0}), labels)),
              "header: ends"));
  }
  SECTION("a gzip file cut short") {
    // Not compressible, so that the cut falls into the data.
    const auto set = dt::train::generate_digits(20, 3);
    auto bytes = idx(0x803, {20, 28, 28});
    std::copy(set.pixels.begin(), set.pixels.end(), bytes.begin() + 16);
    const auto path = folder.write_gz("cut.gz", bytes);
    fs::resize_file(path, fs::file_size(path) / 2);
    CHECK(has(why(dt::train::read_mnist(path, labels)), "cut.gz: "));
  }
  SECTION("a gzip file with a flipped byte") {
    const auto path = folder.write_gz("flip.gz", kImages);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-6, std::ios::end);  // in the checksum
    file.put('\x55');
    file.close();
    CHECK(has(why(dt::train::read_mnist(path, labels)), "flip.gz: damaged"));
  }
  SECTION("labels given as images") {
    CHECK(has(why(dt::train::read_mnist(labels, labels)), "l: not an MNIST image file"));
  }
  SECTION("a web server's refusal") {
    const std::string text = "Not Found";
    CHECK(has(why(dt::train::read_mnist(folder.write("text", {text.begin(), text.end()}), labels)),
              "text: not an MNIST image file"));
  }
  SECTION("longer than it says") {
    auto bytes = kImages;
    bytes.push_back(0);
    CHECK(has(why(dt::train::read_mnist(folder.write("long", bytes), labels)),
              "long: has bytes beyond"));
  }
  SECTION("dimensions whose product overflows take no memory") {
    const Bytes bytes{0, 0, 8, 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 1, 0, 0};
    CHECK(has(why(dt::train::read_mnist(folder.write("huge", bytes), labels)),
              "impossible dimensions"));
  }
  SECTION("counts that differ") {
    const auto other = folder.write("nineteen", idx(0x801, {19}));
    CHECK(has(why(dt::train::read_mnist(folder.write("i", kImages), other)),
              "do not belong together"));
  }
  SECTION("missing") {
    CHECK(has(why(dt::train::read_mnist(folder.path() / "none", labels)), "none: No such file"));
  }
}

TEST_CASE("an MNIST folder may mix plain and gzipped files, and what is missing is named") {
  DataFolder folder;
  folder.write("train-images-idx3-ubyte", kImages);
  folder.write_gz("train-labels-idx1-ubyte.gz", kLabels);
  folder.write_gz("t10k-images-idx3-ubyte.gz", kImages);
  auto data = dt::train::load_mnist(folder.path());
  REQUIRE_FALSE(data);
  CHECK(has(data.error().message, "t10k-labels-idx1-ubyte"));
  folder.write("t10k-labels-idx1-ubyte", kLabels);
  data = dt::train::load_mnist(folder.path());
  REQUIRE(data);
  CHECK(data->train.size() == 20);
}

TEST_CASE("CIFAR-10 records are read from several files and checked") {
  DataFolder folder;
  Bytes two(2 * 3073, 7);
  two[3073] = 9;
  folder.write("data_batch_1.bin", two);
  folder.write_gz("data_batch_2.bin.gz", two);
  folder.write("test_batch.bin", two);
  const auto data = dt::train::load_cifar10(folder.path());
  REQUIRE(data);
  CHECK(data->train.size() == 4);
  CHECK(data->train.labels == Bytes{7, 9, 7, 9});
  CHECK(data->test.image_size() == 3072);
  auto bad = two;
  bad[0] = 10;
  CHECK(
      has(why(dt::train::read_cifar10({folder.write("bad", bad)})), "bad: record 0 has label 10"));
  bad.pop_back();
  CHECK(has(why(dt::train::read_cifar10({folder.write("torn", bad)})), "torn: 6145 bytes are not"));
}

TEST_CASE("generated digits depend on the seed alone and hold every class") {
  const auto a = dt::train::generate_digits(500, 4);
  CHECK(a.pixels == dt::train::generate_digits(500, 4).pixels);
  CHECK(a.pixels != dt::train::generate_digits(500, 5).pixels);
  CHECK(std::set<std::uint8_t>(a.labels.begin(), a.labels.end()).size() == 10);
}

TEST_CASE("normalised pixels have mean 0 and deviation 1 on MNIST's own scale") {
  dt::train::Dataset set;
  set.height = set.width = 1;
  set.mean[0] = 0.5F;
  set.deviation[0] = 0.25F;
  set.pixels = {0, 255};
  set.labels = {0, 1};
  float value = 0;
  set.normalised(0, &value);
  CHECK(value == -2.0F);
  set.normalised(1, &value);
  CHECK(std::abs(value - 2.0F) < 1e-5F);
}

TEST_CASE("the parts of all workers are every sample exactly once, and none is empty") {
  const auto world = GENERATE(1U, 2U, 3U, 4U, 5U, 6U, 7U);
  const auto batch = GENERATE(1U, 2U, 5U, 10U, 64U, 1000U);
  const auto samples = GENERATE(0U, 1U, 6U, 7U, 101U, 181U);
  CAPTURE(world, batch, samples);
  std::vector<int> seen(samples, 0);
  std::set<std::uint32_t> steps;
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    dt::train::Sampler sampler(
        {.samples = samples, .global_batch = batch, .rank = rank, .world = world});
    sampler.begin(3);
    steps.insert(sampler.steps());
    for (std::uint32_t step = 0; step < sampler.steps(); ++step) {
      for (const std::uint32_t i : sampler.batch(step)) ++seen[i];
      if (samples >= world) CHECK_FALSE(sampler.batch(step).empty());
    }
    CHECK(sampler.batch(sampler.steps()).empty());
  }
  CHECK(std::ranges::all_of(seen, [](int n) { return n == 1; }));
  CHECK(steps.size() == 1);  // all workers make the same number of steps
}

TEST_CASE("two workers of batch 32 take together, in order, what one of batch 64 takes") {
  const auto sampler = [](std::uint32_t rank, std::uint32_t world) {
    dt::train::Sampler s(
        {.samples = 1000, .global_batch = 64, .rank = rank, .world = world, .seed = 9});
    s.begin(1);
    return s;
  };
  const auto one = sampler(0, 1);
  const auto first = sampler(0, 2);
  const auto second = sampler(1, 2);
  for (std::uint32_t step = 0; step < one.steps(); ++step) {
    std::vector<std::uint32_t> both(first.batch(step).begin(), first.batch(step).end());
    both.insert(both.end(), second.batch(step).begin(), second.batch(step).end());
    CHECK(std::ranges::equal(one.batch(step), both));
  }
}

TEST_CASE("a shortened epoch takes other samples each time") {
  dt::train::Sampler sampler({.samples = 1000, .per_epoch = 100, .global_batch = 50, .seed = 1});
  sampler.begin(0);
  REQUIRE(sampler.steps() == 2);
  const std::vector<std::uint32_t> before(sampler.batch(0).begin(), sampler.batch(0).end());
  sampler.begin(1);
  CHECK_FALSE(std::ranges::equal(sampler.batch(0), before));
}
