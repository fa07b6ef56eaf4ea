#include "launcher/job_programs.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/protocol/control_messages.h"
#include "io/subprocess.h"

namespace dt::launcher {
namespace {

namespace fs = std::filesystem;

fs::path folder_of(const io::JobSpec& spec) { return io::programs_dir(spec); }

/// Written last: without it the programs are not whole.
fs::path protocol_file(const io::JobSpec& spec) { return folder_of(spec) / "protocol"; }

}  // namespace

void keep_programs(const io::JobSpec& spec, std::vector<std::string> files) {
  const fs::path own = io::program_folder();
  for (const char* name : {"dtsupervisor", "dtfleet"}) files.push_back((own / name).string());
  std::error_code ec;
  for (const fs::path file : files) {
    const fs::path to = folder_of(spec) / file.lexically_relative(own.parent_path());
    fs::create_directories(to.parent_path(), ec);
    const fs::path plain = fs::canonical(file, ec);  // a library's name is a link
    if (!ec) fs::create_hard_link(plain, to, ec);
    if (ec) fs::copy_file(file, to, ec);
    if (ec) break;
  }
  if (!ec) std::ofstream(protocol_file(spec)) << kProtocolVersion << '\n';
  if (ec) fs::remove_all(folder_of(spec), ec);
}

SupervisorProgram supervisor_program(const io::JobSpec& spec) {
  const fs::path own = io::program_folder();
  const fs::path kept = folder_of(spec) / own.filename() / "dtsupervisor";
  std::uint32_t version = kProtocolVersion;
  std::ifstream(protocol_file(spec)) >> version;
  if (version != kProtocolVersion && ::access(kept.c_str(), X_OK) == 0)
    return {kept.string(), true};
  return {(own / "dtsupervisor").string(), false};
}

}  // namespace dt::launcher
