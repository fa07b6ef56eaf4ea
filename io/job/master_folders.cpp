#include "io/job/master_folders.h"

#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "io/job/spec.h"

namespace dt::io {
namespace {

/// A socket's file in a job's folder: "/agent-0123456789abcdef.sock" is the longest.
constexpr std::size_t kLongestFile = 28;
/// By statfs's number of the file system.
constexpr std::pair<std::uint32_t, const char*> kRemote[] = {
    {0x6969, "NFS"},      {0x65735546, "FUSE"},   {0x517B, "SMB"},      {0xFF534D42, "SMB"},
    {0xFE534D42, "SMB"},  {0x0BD00BD0, "Lustre"}, {0x00C36400, "Ceph"}, {0x5346414F, "AFS"},
    {0x47504653, "GPFS"}, {0x19830326, "BeeGFS"}, {0x01021997, "9p"}};

bool is_writable(std::filesystem::path at) {
  while (::access(at.c_str(), F_OK) != 0 && at.has_parent_path() && at != at.parent_path())
    at = at.parent_path();
  return ::access(at.c_str(), W_OK) == 0;
}

FolderFacts facts_here(const char* name) {
  const char* value = std::getenv(name);
  const auto owner = [](const std::string& path) -> std::optional<unsigned> {
    struct stat st {};
    return ::stat(path.c_str(), &st) == 0 ? std::optional<unsigned>(st.st_uid) : std::nullopt;
  };
  return {.given = value && *value ? std::optional<std::string>(value) : std::nullopt,
          .home = home_dir(),
          .uid = ::geteuid(),
          .remote = remote_file_system,
          .writable = is_writable,
          .owner = owner};
}

std::string var_tmp(unsigned uid) { return fmt::format("/var/tmp/dtlaunch-{}", uid); }

Error with_variable(const MasterFolder& home, const Error& error) {
  const bool is_state = home.variable != "XDG_RUNTIME_DIR";
  return {ErrorKind::kInvalid,
          fmt::format(
              "{} says where {}: {}; let {} name a folder of yours on a local disk", home.variable,
              is_state ? "the journals of running jobs lie" : "the sockets of running jobs lie",
              error.message, is_state ? "XDG_STATE_HOME" : "XDG_RUNTIME_DIR")};
}

}  // namespace

MasterFolder choose_state_home(const FolderFacts& facts) {
  if (facts.given) {
    MasterFolder out{*facts.given + "/dtlaunch", "", "XDG_STATE_HOME"};
    if (const std::string kind = facts.remote(out.path); !kind.empty())
      out.notice = fmt::format(
          "the journal lies in {} (XDG_STATE_HOME), which is on {}: when that stalls, every change "
          "of the job waits for it",
          out.path, kind);
    return out;
  }
  MasterFolder out{facts.home + "/.local/state/dtlaunch", "", "HOME"};
  const std::string kind = facts.remote(out.path);
  const std::string other = var_tmp(facts.uid);
  // A missing home is an error, which make_job_folder() says.
  const bool is_closed = facts.owner(facts.home) && !facts.writable(out.path);
  if ((kind.empty() && !is_closed) || !facts.remote(other).empty()) return out;
  out.notice = fmt::format(
      "the journal lies in {}: {} {} (XDG_STATE_HOME names another folder)", other, facts.home,
      is_closed
          ? "is not to be written"
          : fmt::format("is on {}, whose stalls would hold up every change of the job", kind));
  out.path = other;
  return out;
}

MasterFolder choose_runtime_home(const FolderFacts& facts, std::size_t job_letters) {
  const std::string other = fmt::format("/tmp/dtlaunch-{}", facts.uid);
  const std::string variable = "XDG_RUNTIME_DIR";
  if (!facts.given) return {other, "", variable};
  const std::string path = *facts.given + "/dtlaunch";
  const auto owner = facts.owner(*facts.given);
  const bool is_others = owner && *owner != facts.uid;
  if (!is_others && path.size() + 1 + job_letters + kLongestFile <= kLongestSocket)
    return {path, "", variable};
  const std::string fault =
      is_others ? "belongs to another user"
                : fmt::format("is too long for them, whose paths have at most {} characters",
                              kLongestSocket);
  return {other,
          fmt::format("the sockets lie in {}: {} ({}) {}", other, variable, *facts.given, fault),
          variable};
}

MasterFolder state_home() { return choose_state_home(facts_here("XDG_STATE_HOME")); }
MasterFolder runtime_home(std::size_t job_letters) {
  return choose_runtime_home(facts_here("XDG_RUNTIME_DIR"), job_letters);
}
std::string shared_state_home() { return var_tmp(::geteuid()); }

std::string remote_file_system(const std::string& path) {
  struct statfs fs {};
  std::filesystem::path at(path);
  while (::statfs(at.c_str(), &fs) != 0) {
    if ((errno != ENOENT && errno != ENOTDIR) || !at.has_parent_path() || at == at.parent_path())
      return "";
    at = at.parent_path();
  }
  for (const auto& [type, name] : kRemote)
    if (type == static_cast<std::uint32_t>(fs.f_type)) return name;
  return "";
}

Result<void> make_job_folder(const MasterFolder& home, const std::string& job) {
  struct stat st {};
  if (!home.path.starts_with('/'))
    return tl::unexpected(
        with_variable(home, {ErrorKind::kInvalid, home.path + " is no absolute path"}));
  const bool is_from_home = home.variable == "HOME" && !home.path.starts_with("/var/tmp/");
  // A home folder is not created: a missing one is an error.
  if (const std::string folder = home_dir();
      is_from_home && (::stat(folder.c_str(), &st) != 0 || !S_ISDIR(st.st_mode)))
    return tl::unexpected(with_variable(home, {ErrorKind::kInvalid, folder + " is no folder"}));
  // A folder in /var/tmp or for sockets must be owned by this user and not be a link.
  const bool is_private = home.path.starts_with("/var/tmp/") || home.variable == "XDG_RUNTIME_DIR";
  Result<void> made;
  if (is_private) made = make_private_dir(home.path);
  if (made) made = make_private_dir(home.path + "/" + job);
  if (!made) return tl::unexpected(with_variable(home, made.error()));
  return {};
}

Result<std::string> make_socket_folder(const std::string& socket) {
  const std::filesystem::path path(socket);
  const std::filesystem::path folder = path.parent_path();
  const std::filesystem::path home = folder.parent_path();
  struct stat st {};
  const bool is_ours = ::lstat(folder.c_str(), &st) == 0 && S_ISDIR(st.st_mode) &&
                       st.st_uid == ::geteuid() && (st.st_mode & 022) == 0;
  if (is_ours) return socket;
  std::error_code ec;
  if (std::filesystem::is_directory(home.parent_path(), ec) && make_private_dir(home) &&
      make_private_dir(folder))
    return socket;
  const std::string job = folder.filename();
  const MasterFolder other = runtime_home(job.size());
  if (auto made = make_job_folder(other, job); !made) return tl::unexpected(made.error());
  return other.path + "/" + job + "/" + path.filename().string();
}

}  // namespace dt::io
