#include "kvstore/server/checkpoint/saved.h"

#include <stdlib.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "io/job/checkpoint_check.h"
#include "test/support/catch.h"

namespace fs = std::filesystem;
using namespace dt;
using namespace dt::kv;

namespace {

struct Folder {
  fs::path path;
  Folder() {
    std::string name = (fs::temp_directory_path() / "dt-checkpoint-XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string file(const std::string& name) const { return (path / name).string(); }
};

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void spill(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::shared_ptr<const Payload> floats(std::vector<float> values) {
  auto payload = std::make_shared<Payload>(values.size() * sizeof(float));
  if (!values.empty()) std::memcpy(payload->data(), values.data(), payload->size());
  return payload;
}
std::vector<float> floats_of(const Payload& payload) {
  std::vector<float> values(payload.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), payload.data(), payload.size());
  return values;
}
std::vector<float> ramp(float from, std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), from);
  return values;
}

SavedChunk chunk(std::uint32_t key, std::uint32_t index, float from, std::size_t count,
                 std::uint64_t updates) {
  SavedChunk saved;
  saved.key = KeyId(key);
  saved.chunk = index;
  saved.elements = count;
  saved.updates = updates;
  saved.arrays[0] = floats(ramp(from, count));
  if (updates > 0) saved.arrays[1] = floats(ramp(from + 1000, count));
  return saved;
}

const std::vector<data::KeySpec> kKeys = {{"fc \"1\".w\xff%", 10, data::Dtype::kFloat32, 0},
                                          {"empty", 0, data::Dtype::kFloat32, 0},
                                          {"bn", 3, data::Dtype::kFloat32, data::kAuxiliary}};

/// Two servers, the first with two loops; key 0 in chunks of 4, 4 and 2.
io::Manifest write_sample(const Folder& folder) {
  SavedLoop first{
      {chunk(0, 0, 0, 4, 7)}, kKeys, "sgd momentum=0.9 nesterov=0 weight_decay=0", 41, 0, {}};
  const SavedLoop second{
      {chunk(0, 2, 8, 2, 7), chunk(2, 0, 50, 3, 0)}, {}, first.optimizer, 42, 0, {}};
  const SavedLoop third{
      {chunk(0, 1, 4, 4, 7), chunk(1, 0, 0, 0, 0)}, {}, first.optimizer, 40, 0, {}};
  io::Manifest manifest;
  manifest.epoch = Epoch(3);
  for (std::uint32_t server = 0; server < 2; ++server) {
    const SavedBy by{Epoch(3), Generation(9), server, 2};
    const auto loops =
        server == 0 ? std::vector<SavedLoop>{first, second} : std::vector<SavedLoop>{third};
    const std::string name = io::checkpoint_file(server);
    const auto written = write_saved(folder.file(name), by, loops);
    REQUIRE(written);
    CHECK(fs::file_size(folder.file(name)) == written->bytes);
    manifest.files.push_back({name, written->bytes, written->header_crc});
  }
  spill(folder.file("manifest.json"), to_json(manifest));
  return manifest;
}

std::string open_error(const Folder& folder) {
  const auto checkpoint = Checkpoint::open(folder.path.string());
  return checkpoint ? "opened" : checkpoint.error().message;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a file has the bytes that it always had") {
  const Folder folder;
  const std::vector<float> f32 = {1, -2, 0.5F};
  const double f64 = 3.25;
  const std::vector<std::int64_t> i64 = {-7, 9};
  const std::vector<std::uint16_t> half = {0x3c00, 0xbc00};
  const auto bytes = [](const void* values) { return static_cast<const std::byte*>(values); };
  const std::vector<Tensor> tensors = {
      {"key1.chunk0", data::Dtype::kFloat32, 3, bytes(f32.data())},
      {"key0.chunk0", data::Dtype::kFloat64, 1, bytes(&f64)},
      {"key0.chunk0.state1", data::Dtype::kFloat64, 1, bytes(&f64)},
      {"key2.chunk0", data::Dtype::kInt64, 2, bytes(i64.data())},
      {"key3.chunk0", data::Dtype::kFloat16, 2, bytes(half.data())},
      {"key4.chunk0", data::Dtype::kBfloat16, 2, bytes(half.data())},
      {"key5.chunk0", data::Dtype::kFloat32, 0, nullptr}};
  const Metadata metadata = {{"format", "dtlaunch server 1"},
                             {"keys", R"([["a%20b",3,"F32",false]])"}};
  const auto path = folder.file("server.safetensors");
  REQUIRE(write_tensor_file(path, tensors, metadata));
  CHECK(slurp(path) == slurp(std::string(DT_SAFETENSORS) + "/server.safetensors"));
}

TEST_CASE("arrays come back bit by bit, empty ones too, and the metadata") {
  const Folder folder;
  const auto path = folder.file("a.safetensors");
  spill(path, std::string(100000, 'x'));  // an earlier try
  const auto values = ramp(0.5, 5);
  const std::vector<std::int64_t> numbers = {-1, std::int64_t{1} << 62};
  const std::vector<Tensor> tensors = {
      {"none", data::Dtype::kFloat64, 0, nullptr},
      {"b", data::Dtype::kFloat32, 5, reinterpret_cast<const std::byte*>(values.data())},
      {"none too", data::Dtype::kFloat16, 0, nullptr},
      {"a \"quoted\"", data::Dtype::kInt64, 2, reinterpret_cast<const std::byte*>(numbers.data())}};
  const auto written = write_tensor_file(path, tensors, {{"word", "a\nb"}});
  REQUIRE(written);
  const auto file = TensorFile::open(path);
  REQUIRE(file);
  CHECK(file->bytes() == written->bytes);
  CHECK(file->header_crc() == written->header_crc);
  CHECK(file->metadata().at("word") == "a\nb");
  REQUIRE(file->entries().size() == 4);
  std::vector<float> back(5);
  const auto at = [&file](const std::string& name) {
    return *std::find_if(file->entries().begin(), file->entries().end(),
                         [&name](const auto& entry) { return entry.name == name; });
  };
  REQUIRE(file->read(at("b"), reinterpret_cast<std::byte*>(back.data())));
  CHECK(back == values);
  std::vector<std::int64_t> numbers_back(2);
  REQUIRE(file->read(at("a \"quoted\""), reinterpret_cast<std::byte*>(numbers_back.data())));
  CHECK(numbers_back == numbers);
  CHECK(file->read(at("none"), nullptr));
}

TEST_CASE("a flipped byte anywhere in a file is noticed") {
  const Folder folder;
  const auto manifest = write_sample(folder);
  const std::string path = folder.file("server-0.safetensors");
  const std::string good = slurp(path);
  std::uint64_t read = 0;
  const auto progress = [&read](std::uint64_t done, std::uint64_t) { read = done; };
  REQUIRE(io::check_checkpoint(folder.path.string(), manifest, progress));
  CHECK(read == manifest.files[0].bytes + manifest.files[1].bytes);
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    spill(path, bad);
    INFO("byte " << i);
    REQUIRE_FALSE(io::check_checkpoint(folder.path.string(), manifest));
    const auto checkpoint = Checkpoint::open(folder.path.string());
    if (!checkpoint) continue;  // in the header
    const bool loads = (*checkpoint)->load(KeyId(0), 0, 10) && (*checkpoint)->load(KeyId(2), 0, 3);
    REQUIRE_FALSE(loads);
  }
}

TEST_CASE("a file cut anywhere is noticed") {
  const Folder folder;
  write_sample(folder);
  const std::string path = folder.file("server-1.safetensors");
  const std::string good = slurp(path);
  for (std::size_t size = 0; size < good.size(); ++size) {
    spill(path, good.substr(0, size));
    INFO("cut to " << size);
    REQUIRE(has(open_error(folder), "server-1.safetensors"));
  }
}

TEST_CASE("a check names what is wrong with a checkpoint's files") {
  const Folder folder;
  auto manifest = write_sample(folder);
  const auto wrong = [&] {
    const auto checked = io::check_checkpoint(folder.path.string(), manifest);
    return checked ? "nothing" : checked.error().message;
  };
  CHECK(wrong() == "nothing");
  const std::string path = folder.file("server-0.safetensors");
  const std::string good = slurp(path);
  std::string bad = good;
  bad.back() = static_cast<char>(bad.back() ^ 1);  // in the last array of the data
  spill(path, bad);
  CHECK(has(wrong(), "server-0.safetensors: key2.chunk0 is damaged (its checksum differs)"));
  spill(path, good.substr(0, good.size() - 1));
  CHECK(has(wrong(), "server-0.safetensors: has "));
  spill(path, good);
  manifest.files[0].header_crc ^= 1;
  CHECK(has(wrong(), "server-0.safetensors: its header is damaged (its checksum differs)"));
  manifest.files[0].header_crc ^= 1;
  fs::remove(folder.file("server-1.safetensors"));
  CHECK(has(wrong(), "server-1.safetensors: No such file"));
}

TEST_CASE("a header that claims to be huge takes no memory") {
  const Folder folder;
  const auto path = folder.file("huge.safetensors");
  for (const std::uint64_t length : {std::uint64_t{1} << 62, ~std::uint64_t{0},
                                     safetensors::kMaxHeader + 1, std::uint64_t{1000}}) {
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    spill(path, bytes + "{}");
    const auto file = TensorFile::open(path);
    REQUIRE_FALSE(file);
    CHECK(has(file.error().message, "not of the safetensors format, or cut short"));
  }
}

TEST_CASE("slices come out of a checkpoint however they lay in it") {
  const Folder folder;
  write_sample(folder);
  const auto opened = Checkpoint::open(folder.path.string());
  if (!opened) FAIL(opened.error().message);
  const Checkpoint& checkpoint = **opened;
  CHECK(checkpoint.keys() == kKeys);
  CHECK(checkpoint.optimizer() == "sgd momentum=0.9 nesterov=0 weight_decay=0");
  for (std::uint64_t first = 0; first <= 10; ++first) {
    for (std::uint64_t count = 0; first + count <= 10; ++count) {
      const auto slice = checkpoint.load(KeyId(0), first, count);
      REQUIRE(slice);
      CHECK(floats_of(slice->arrays[0]) == ramp(static_cast<float>(first), count));
      if (count == 0) continue;
      CHECK(floats_of(slice->arrays[1]) == ramp(static_cast<float>(first) + 1000, count));
      CHECK(slice->arrays[2].empty());
      CHECK(slice->updates == 7);
    }
  }
  const auto auxiliary = checkpoint.load(KeyId(2), 0, 3);
  REQUIRE(auxiliary);
  CHECK(floats_of(auxiliary->arrays[0]) == ramp(50, 3));
  CHECK(auxiliary->arrays[1].empty());
  CHECK(checkpoint.load(KeyId(1), 0, 0));
  CHECK_FALSE(checkpoint.load(KeyId(0), 8, 3));
  CHECK_FALSE(checkpoint.load(KeyId(0), ~std::uint64_t{0}, 2));
}

TEST_CASE("files that do not belong together are refused") {
  const Folder folder;
  const auto manifest = write_sample(folder);
  SECTION("a missing file") {
    fs::remove(folder.file("server-1.safetensors"));
    CHECK(has(open_error(folder), "No such file"));
  }
  SECTION("another checkpoint's file") {
    const SavedLoop other{{chunk(0, 1, 40, 4, 7), chunk(1, 0, 0, 0, 0)}, {}, "", 40, 0, {}};
    REQUIRE(
        write_saved(folder.file("server-1.safetensors"), {Epoch(3), Generation(9), 1, 2}, {other}));
    CHECK(has(open_error(folder), "is not the file that the manifest means"));
  }
  SECTION("of another epoch, with a manifest made to fit") {
    auto forged = manifest;
    forged.epoch = Epoch(4);
    spill(folder.file("manifest.json"), to_json(forged));
    CHECK(has(open_error(folder), "belongs to another epoch"));
  }
  SECTION("a server left out") {
    auto forged = manifest;
    forged.files.pop_back();
    spill(folder.file("manifest.json"), to_json(forged));
    CHECK(has(open_error(folder), "belongs to another set of servers"));
  }
  SECTION("a chunk left out") {
    const SavedLoop less{{chunk(1, 0, 0, 0, 0)}, {}, "", 40, 0, {}};
    const auto path = folder.file("server-1.safetensors");
    const auto written = write_saved(path, {Epoch(3), Generation(9), 1, 2}, {less});
    REQUIRE(written);
    auto forged = manifest;
    forged.files[1].bytes = written->bytes;
    forged.files[1].header_crc = written->header_crc;
    spill(folder.file("manifest.json"), to_json(forged));
    CHECK(has(open_error(folder), "has gaps"));
  }
}

TEST_CASE("a failed write says why and leaves nothing behind") {
  const Folder folder;
  const auto path = folder.file("full.safetensors");
  const auto values = ramp(0, 1 << 20);
  const std::vector<Tensor> tensors = {{"a", data::Dtype::kFloat32, values.size(),
                                        reinterpret_cast<const std::byte*>(values.data())}};
  SECTION("a volume that takes no more") {
    // A file that may not grow beyond a limit fails as a full volume does.
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit before{};
    ::getrlimit(RLIMIT_FSIZE, &before);
    rlimit small = before;
    small.rlim_cur = 1 << 20;
    ::setrlimit(RLIMIT_FSIZE, &small);
    const auto written = write_tensor_file(path, tensors, {});
    ::setrlimit(RLIMIT_FSIZE, &before);
    REQUIRE_FALSE(written);
    CHECK(has(written.error().message, "write " + path));
  }
  SECTION("given up half way") {
    int asked = 0;
    const auto written = write_tensor_file(path, tensors, {}, [&asked] { return ++asked == 3; });
    REQUIRE_FALSE(written);
    CHECK(written.error().kind == ErrorKind::kClosed);
    CHECK(asked == 3);
  }
  SECTION("no such folder") {
    const auto written = write_tensor_file(folder.file("no/file"), tensors, {});
    REQUIRE_FALSE(written);
    CHECK(written.error().kind == ErrorKind::kIo);
  }
  CHECK_FALSE(fs::exists(path));
}
