/// A folder in which servers save checkpoints, and their reports.
#pragma once

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "io/job/checkpoint_manifest.h"
#include "kvstore/server/server.h"
#include "test/kvstore/eventually.h"
#include "test/support/catch.h"

namespace dt::test {

struct Folder {
  std::filesystem::path path;
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "dt-restore-XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
};

/// The servers' reports of the checkpoint.
class Reports {
 public:
  void add(std::uint32_t server, const Saved& saved) {
    const std::lock_guard lock(mutex_);
    all_[server] = saved;
  }
  std::map<std::uint32_t, Saved> wait(std::size_t count) {
    REQUIRE(eventually([&] {
      const std::lock_guard lock(mutex_);
      return all_.size() == count;
    }));
    const std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  std::mutex mutex_;
  std::map<std::uint32_t, Saved> all_;
};

inline std::function<void(kv::ServerOptions&)> saving(const Folder& folder, Reports& reports) {
  return [&](kv::ServerOptions& options) {
    options.checkpoints = folder.path.string();
    options.on_saved = [&reports, index = *options.index](const Saved& saved) {
      reports.add(index, saved);
    };
  };
}

/// Seals the checkpoint as the supervisor does.
inline std::string seal(const Folder& folder, const std::map<std::uint32_t, Saved>& reports) {
  io::Manifest manifest;
  for (const auto& [server, saved] : reports) {
    if (!saved.why.empty()) FAIL(saved.why);
    manifest.epoch = saved.epoch;
    manifest.generation = saved.generation;
    manifest.step = std::max(manifest.step, saved.step);
    manifest.files.push_back({io::checkpoint_file(server), saved.bytes, saved.header_crc});
  }
  const std::filesystem::path partial =
      folder.path / io::partial_name(manifest.epoch, manifest.generation);
  std::ofstream(partial / io::kManifestName) << to_json(manifest);
  const std::filesystem::path whole = folder.path / io::checkpoint_name(manifest.epoch);
  std::filesystem::rename(partial, whole);
  return whole.string();
}

}  // namespace dt::test
