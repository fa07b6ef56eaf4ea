#include "launcher/reach/ways.h"

#include <filesystem>

#include "io/subprocess.h"
#include "launcher/backend/command.h"
#include "launcher/backend/local.h"
#include "launcher/backend/ssh/ssh.h"
#include "launcher/bundle_use.h"

namespace dt::launcher {
namespace {

/// What reaches hosts in that way.
std::unique_ptr<Backend> make_way(io::asio::io_context& context, const io::JobSpec& spec,
                                  StarterKind kind, io::Log& log) {
  if (kind == StarterKind::kLocal) return std::make_unique<LocalBackend>();
  if (kind != StarterKind::kSsh)
    return std::make_unique<CommandBackend>(context.get_executor(), io::starter_for(spec, kind),
                                            bundle_files(), log);
  SshLimits limits;
  limits.handshake = 2 * spec.ssh.connect_timeout;
  return std::make_unique<SshBackend>(context.get_executor(), spec.ssh, bundle_files(), log,
                                      limits);
}

}  // namespace

std::vector<std::string> bundle_files() {
  const auto folder = io::program_folder();
  std::vector<std::string> files{(folder / "dtagent").string(), (folder / "dtserver").string()};
  // For --prepare-data.
  if (const auto check = folder / "dtgpucheck"; std::filesystem::exists(check))
    files.push_back(check.string());
  const auto package = folder / kPythonPackage;
  for (const char* place : {DT_LIBRARY_FOLDERS}) {
    const auto library = folder / place / "libdtkv.so.0";
    if (!std::filesystem::exists(package) || !std::filesystem::exists(library)) continue;
    files.insert(files.end(),
                 {package.lexically_normal().string(), library.lexically_normal().string()});
    break;
  }
  return files;
}

std::unique_ptr<WaysBackend> make_ways(io::asio::io_context& context, const io::JobSpec& spec,
                                       io::Log& log) {
  const auto shared = std::make_shared<const io::JobSpec>(spec);
  return std::make_unique<WaysBackend>(
      [shared](const Host& host) { return io::way_to(*shared, host); },
      [shared](const Host& host) {
        return remark_on_way(host, shared->launcher, shared->allocation);
      },
      [shared, &context, &log](StarterKind kind) { return make_way(context, *shared, kind, log); });
}

}  // namespace dt::launcher
