#include "launcher/bundle_use.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <filesystem>

#include "io/subprocess.h"

namespace dt::launcher {
namespace {

constexpr std::chrono::hours kTouched{6};
static_assert(4 * kTouched < kBundleKept);

bool is_bundle_name(const std::string& name) {
  constexpr std::size_t kDigits = 32;
  return name.size() == kDigits && name.find_first_not_of("0123456789abcdef") == std::string::npos;
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

void touch_bundle() {
  const auto folder = io::program_folder();
  if (!is_bundle_name(folder.filename().string())) return;
  ::utimensat(AT_FDCWD, folder.c_str(), nullptr, 0);
}

io::awaitable<void> keep_bundle_in_use() {
  for (;;) {
    touch_bundle();
    co_await io::sleep_for(kTouched);
  }
}

}  // namespace dt::launcher
