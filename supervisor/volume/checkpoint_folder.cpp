#include "supervisor/volume/checkpoint_folder.h"

#include "supervisor/volume/volume_client.h"

namespace dt::supervisor {
namespace {

std::string manifest_in(const std::string& folder) {
  return folder + "/" + std::string(io::kManifestName);
}

/// A checkpoint's folder and the files in it.
io::awaitable<Result<void>> remove_folder(VolumeClient& volume, std::string path) {
  // The manifest first: half a checkpoint does not count.
  auto removed = co_await volume.remove(manifest_in(path));
  auto files = co_await volume.list(path);
  if (removed && !files) removed = tl::unexpected(files.error());
  if (!removed) co_return removed;
  for (const std::string& file : *files)
    if (removed) removed = co_await volume.remove(path + "/" + file);
  if (removed) removed = co_await volume.remove(path);
  co_return removed;
}

}  // namespace

io::awaitable<Result<void>> seal_checkpoint(VolumeClient& volume, std::string folder,
                                            io::Manifest manifest) {
  const std::string whole = folder + "/" + io::checkpoint_name(manifest.epoch);
  const std::string partial = folder + "/" + io::partial_name(manifest.epoch, manifest.generation);
  auto sealed = co_await volume.read(manifest_in(whole), io::kMaxManifest);
  if (!sealed) co_return tl::unexpected(sealed.error());
  if (*sealed) {
    const auto there = io::manifest_from_json(**sealed);
    const bool is_of_this_job = there && there->job == manifest.job;
    if (is_of_this_job && there->generation == manifest.generation) co_return Result<void>();
    if (!is_of_this_job || there->generation > manifest.generation)
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
  auto done = co_await volume.replace(manifest_in(partial), to_json(manifest));
  // The rest of a checkpoint whose replacement was interrupted has no manifest.
  auto is_there = co_await volume.exists(whole);
  if (done && !is_there) done = tl::unexpected(is_there.error());
  if (done && *is_there) done = co_await remove_folder(volume, whole);
  if (done) done = co_await volume.rename(partial, whole);
  co_return done;
}

io::awaitable<Result<void>> prune_checkpoints(VolumeClient& volume, std::string folder,
                                              std::size_t keep, Epoch newest) {
  auto names = co_await volume.list(folder);
  if (!names) co_return tl::unexpected(names.error());
  for (const std::string& old : io::outdated_checkpoints(*names, keep, newest)) {
    auto removed = co_await remove_folder(volume, folder + "/" + old);
    if (!removed) co_return removed;
  }
  co_return Result<void>();
}

}  // namespace dt::supervisor
