// A server's file of a checkpoint, or a manifest, made of arbitrary bytes: refused, or read to its
// end without harm.

#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "kvstore/server/checkpoint/saved.h"
#include "test/fuzz/target.h"

using namespace dt;

namespace {

/// A folder of this process, removed at its end.
struct Folder {
  std::string path = "/tmp/dt-checkpoint-fuzz-XXXXXX";
  Folder() { DT_CHECK(::mkdtemp(path.data()), "a temporary folder"); }
  ~Folder() {
    ::unlink(file().c_str());
    ::unlink(manifest().c_str());
    ::rmdir(path.c_str());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string file() const { return path + "/" + io::checkpoint_file(0); }
  [[nodiscard]] std::string manifest() const { return path + "/" + std::string(io::kManifestName); }
};

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

}  // namespace

DT_FUZZ_TARGET(checkpoint)
(const std::uint8_t* bytes, std::size_t size) {
  static const Folder kFolder;
  const std::string in(bytes, bytes + size);
  if (const auto manifest = io::manifest_from_json(in)) {
    const auto again = io::manifest_from_json(to_json(*manifest));
    DT_CHECK(again && *again == *manifest, "a manifest that changes when it is written again");
  }
  write(kFolder.file(), in);
  const auto file = kv::TensorFile::open(kFolder.file());
  if (!file) return 0;
  for (const auto& entry : file->entries()) {
    kv::Payload values(entry.bytes());
    (void)file->read(entry, values.data());
  }
  // With a manifest that matches the file, whatever it contains.
  io::Manifest manifest;
  if (const auto it = file->metadata().find("epoch"); it != file->metadata().end())
    manifest.epoch =
        Epoch(static_cast<std::uint32_t>(std::strtoul(it->second.c_str(), nullptr, 10)));
  manifest.files = {{io::checkpoint_file(0), file->bytes(), file->header_crc()}};
  write(kFolder.manifest(), to_json(manifest));
  const auto checkpoint = kv::Checkpoint::open(kFolder.path);
  if (!checkpoint) return 0;
  const auto& keys = (*checkpoint)->keys();
  for (std::uint32_t key = 0; key < keys.size(); ++key) {
    (void)(*checkpoint)->load(KeyId(key), 0, keys[key].count);
    (void)(*checkpoint)->load(KeyId(key), keys[key].count / 2, keys[key].count / 4);
  }
  return 0;
}
