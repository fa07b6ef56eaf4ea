#include "supervisor/checkpoint_folder.h"

namespace dt::supervisor {

io::awaitable<Result<void>> seal_checkpoint(VolumeClient& volume, std::string folder,
                                            io::Manifest manifest) {
  const std::string whole = folder + "/" + io::checkpoint_name(manifest.epoch);
  const std::string partial = folder + "/" + io::partial_name(manifest.epoch, manifest.generation);
  const std::string name = "/" + std::string(io::kManifestName);
  auto sealed = co_await volume.read(whole + name, io::kMaxManifest);
  if (!sealed) co_return tl::unexpected(sealed.error());
  if (*sealed) {
    const auto there = io::manifest_from_json(**sealed);
    if (there && there->generation == manifest.generation) co_return Result<void>();
    co_return fail(ErrorKind::kInvalid, "{} is there already, and not ours", whole);
  }
  for (const auto& file : manifest.files) {
    auto there = co_await volume.exists(partial + "/" + file.name);
    if (!there) co_return tl::unexpected(there.error());
    if (!*there)
      co_return fail(ErrorKind::kInvalid,
                     "{}/{} is not there, which a server has written: is the job folder on a "
                     "volume that all hosts see?",
                     partial, file.name);
  }
  auto done = co_await volume.replace(partial + name, to_json(manifest));
  if (done) done = co_await volume.rename(partial, whole);
  co_return done;
}

io::awaitable<Result<void>> prune_checkpoints(VolumeClient& volume, std::string folder,
                                              std::size_t keep) {
  auto names = co_await volume.list(folder);
  if (!names) co_return tl::unexpected(names.error());
  for (const std::string& old : io::outdated_checkpoints(*names, keep)) {
    const std::string path = folder + "/" + old;
    // The manifest first: half a checkpoint does not count.
    auto removed = co_await volume.remove(path + "/" + std::string(io::kManifestName));
    auto files = co_await volume.list(path);
    if (removed && !files) removed = tl::unexpected(files.error());
    if (!removed) co_return removed;
    for (const std::string& file : *files) {
      removed = co_await volume.remove(path + "/" + file);
      if (!removed) co_return removed;
    }
    removed = co_await volume.remove(path);
    if (!removed) co_return removed;
  }
  co_return Result<void>();
}

}  // namespace dt::supervisor
