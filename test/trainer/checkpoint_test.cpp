#include "trainer/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "test/support/catch.h"

namespace fs = std::filesystem;

namespace {

struct Folder {
  fs::path path = fs::temp_directory_path() / ("dt-checkpoint-" + std::to_string(getpid()));
  Folder() { fs::create_directory(path); }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
};

const std::vector<dt::train::NamedArray> kArrays{{"fc.weight", {2, 3}, {1, 2, 3, 4, 5, -6.5F}},
                                                 {"fc.bias", {2}, {0, 1e-30F}},
                                                 {"empty", {0, 4}, {}}};

}  // namespace

TEST_CASE("a checkpoint comes back bit by bit, and replaces an older one whole") {
  Folder folder;
  const auto path = dt::train::checkpoint_path((folder.path / "net").string(), 7);
  CHECK(path.filename() == "net-0007.safetensors");
  std::ofstream(path) << std::string(10000, 'x');
  REQUIRE(dt::train::save_checkpoint(path, kArrays));
  const auto back = dt::train::load_checkpoint(path);
  REQUIRE(back);
  REQUIRE(back->size() == kArrays.size());
  for (const auto& original : kArrays) {
    const auto array = std::ranges::find(*back, original.name, &dt::train::NamedArray::name);
    REQUIRE(array != back->end());
    CHECK(array->shape == original.shape);
    CHECK(array->values == original.values);
  }
  // No temporary file stays behind.
  CHECK(std::distance(fs::directory_iterator(folder.path), {}) == 1);
}

TEST_CASE("a checkpoint has the bytes that it always had") {
  Folder folder;
  const auto path = folder.path / "c";
  REQUIRE(dt::train::save_checkpoint(path, kArrays));
  const auto bytes = [](const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return std::string{std::istreambuf_iterator<char>(in), {}};
  };
  CHECK(bytes(path) == bytes(fs::path(DT_SAFETENSORS) / "trainer.safetensors"));
}

TEST_CASE("a checkpoint that cannot be written leaves the old one and says why") {
  const auto got = dt::train::save_checkpoint("/nonexistent/net-0001.safetensors", kArrays);
  REQUIRE_FALSE(got);
  CHECK(got.error().message.find("/nonexistent/net-0001.safetensors: No such file") !=
        std::string::npos);
}

TEST_CASE("a damaged checkpoint is refused at every length, never read beyond its end") {
  Folder folder;
  const auto path = folder.path / "c";
  REQUIRE(dt::train::save_checkpoint(path, kArrays));
  for (auto size = fs::file_size(path); size-- > 0;) {
    fs::resize_file(path, size);
    const auto got = dt::train::load_checkpoint(path);
    REQUIRE_FALSE(got);
    CHECK(got.error().message.find(path.string()) != std::string::npos);
  }
}

TEST_CASE("a checkpoint whose header lies about shapes is refused") {
  Folder folder;
  for (const std::string entry :
       {R"({"w":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})",
        R"({"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})",
        R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[8,4]}})",
        R"({"w":{"dtype":"F64","shape":[0],"data_offsets":[0,0]}})", R"([1,2])"}) {
    const std::uint64_t length = entry.size();
    std::ofstream(folder.path / "c", std::ios::binary)
            .write(reinterpret_cast<const char*>(&length), sizeof length)
        << entry << "1234";
    INFO(entry);
    CHECK_FALSE(dt::train::load_checkpoint(folder.path / "c"));
  }
}

TEST_CASE("checkpoints written behind training arrive in order, failures as messages") {
  Folder folder;
  dt::train::CheckpointWriter writer;
  REQUIRE(writer.submit(folder.path / "a", kArrays));
  REQUIRE(writer.submit("/nonexistent/b", kArrays));
  writer.flush();
  const auto messages = writer.take_messages();
  REQUIRE(messages.size() == 2);
  CHECK(messages[0] == "Saved checkpoint to \"" + (folder.path / "a").string() + "\"");
  CHECK(messages[1].find("/nonexistent/b") != std::string::npos);
  CHECK(writer.take_messages().empty());
  CHECK(dt::train::load_checkpoint(folder.path / "a"));
}
