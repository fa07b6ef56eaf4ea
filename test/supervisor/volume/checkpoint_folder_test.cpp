#include "supervisor/volume/checkpoint_folder.h"

#include "test/supervisor/loop.h"

using namespace dt;
using namespace dt::test;
using namespace dt::supervisor;

namespace {

/// A folder of checkpoints with two servers' files of epoch 3, in generation 7.
struct Written {
  TempDir dir;
  VolumeLoop loop;
  io::Manifest manifest;
  std::string partial;

  Written() {
    manifest.epoch = Epoch(3);
    manifest.generation = Generation(7);
    partial = dir / io::partial_name(Epoch(3), Generation(7));
    for (std::uint32_t server : {0U, 1U})
      manifest.files.push_back({io::checkpoint_file(server), 4, 1});
    write(7);
  }
  void write(std::uint64_t generation) {
    const std::string folder = dir / io::partial_name(Epoch(3), Generation(generation));
    fs::create_directories(folder);
    for (const auto& file : manifest.files) spill(folder + "/" + file.name, "data");
  }
  Result<void> seal() { return loop.wait(seal_checkpoint(loop.volume, dir.path(), manifest)); }
  Result<void> seal(std::uint64_t generation) {
    manifest.generation = Generation(generation);
    return seal();
  }
  Result<void> prune(std::size_t keep) {
    return loop.wait(prune_checkpoints(loop.volume, dir.path(), keep, manifest.epoch));
  }
  [[nodiscard]] std::vector<std::string> names() {
    return *loop.wait(loop.volume.list(dir.path()));
  }
};

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("checkpoints: sealed they are there whole, and sealing again is harmless",
          "[checkpoints]") {
  Written w;
  REQUIRE(w.seal());
  CHECK(w.names() == Names{"epoch-000003"});
  const auto back = io::read_manifest(w.dir / "epoch-000003");
  REQUIRE(back);
  CHECK(*back == w.manifest);
  CHECK(w.seal());
  CHECK(w.names() == Names{"epoch-000003"});
}

TEST_CASE("checkpoints: without a server's file none is sealed", "[checkpoints]") {
  Written w;
  fs::remove(w.partial + "/server-1.safetensors");
  const auto sealed = w.seal();
  REQUIRE_FALSE(sealed);
  CHECK(sealed.error().message.find("on a volume that all hosts see?") != std::string::npos);
  CHECK_FALSE(fs::exists(w.partial + "/manifest.json"));
}

TEST_CASE("checkpoints: of an epoch that was run twice the later one stays", "[checkpoints]") {
  Written w;
  w.write(9);
  REQUIRE(w.seal(9));
  const auto late = w.seal(7);
  REQUIRE_FALSE(late);
  CHECK(late.error().message.find("is there already, and not ours") != std::string::npos);
  w.write(12);
  REQUIRE(w.seal(12));
  CHECK(io::read_manifest(w.dir / "epoch-000003")->generation == Generation(12));
  CHECK(w.names() == Names{"epoch-000003", "epoch-000003.g7.partial"});
  // Another job's checkpoint must not be replaced.
  w.write(20);
  w.manifest.job = "other";
  CHECK_FALSE(w.seal(20));
}

TEST_CASE("checkpoints: replacing one may be interrupted anywhere", "[checkpoints]") {
  Written w;
  REQUIRE(w.seal());
  w.write(9);
  // No manifest, and a file less: the supervisor died here.
  fs::remove(w.dir / "epoch-000003/manifest.json");
  fs::remove(w.dir / "epoch-000003/server-0.safetensors");
  REQUIRE(w.seal(9));
  CHECK(w.names() == Names{"epoch-000003"});
  CHECK(*io::read_manifest(w.dir / "epoch-000003") == w.manifest);
}

TEST_CASE("checkpoints: one that never counted, of a later epoch, is not kept for a good one",
          "[checkpoints]") {
  Written w;
  REQUIRE(w.seal());
  fs::create_directories(w.dir / "epoch-000005");
  spill(w.dir / "epoch-000005/manifest.json", "{}");
  REQUIRE(w.prune(1));
  CHECK(w.names() == Names{"epoch-000003"});
}

TEST_CASE("checkpoints: the oldest go and what was given up, what is no checkpoint stays",
          "[checkpoints]") {
  Written w;
  REQUIRE(w.seal());
  for (const char* name : {"epoch-000001", "epoch-000002", "epoch-000002.g4.partial",
                           "epoch-000004.g8.partial", "mine"}) {
    fs::create_directories(w.dir / name);
    spill(w.dir / name + "/server-0.safetensors", "data");
  }
  REQUIRE(w.prune(2));
  CHECK(w.names() == Names{"epoch-000002", "epoch-000003", "epoch-000004.g8.partial", "mine"});
  // A folder inside a checkpoint is not ours: it is left, and reported.
  fs::create_directories(w.dir / "epoch-000002/theirs/more");
  CHECK_FALSE(w.prune(1));
  CHECK(fs::exists(w.dir / "epoch-000002/theirs/more"));
}
