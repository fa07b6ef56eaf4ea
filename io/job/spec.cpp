#include "io/job/spec.h"

#include <fmt/chrono.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/base/number.h"
#include "io/job/master_folders.h"
#include "io/json_number.h"

namespace dt {

static void to_json(nlohmann::json& j, const Host& h) {
  j = nlohmann::json{{"user", h.user}, {"name", h.name}, {"port", h.port}};
}
static void from_json(const nlohmann::json& j, Host& h) {
  j.at("user").get_to(h.user);
  j.at("name").get_to(h.name);
  h.port = io::whole_number<std::uint16_t>(j.at("port"));
}

namespace io {

NLOHMANN_JSON_SERIALIZE_ENUM(HostKeyPolicy, {{HostKeyPolicy::kStrict, "strict"},
                                             {HostKeyPolicy::kAcceptNew, "accept-new"},
                                             {HostKeyPolicy::kOff, "off"},
                                             {HostKeyPolicy::kFromConfig, "config"}})
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SshOptions, known_hosts, forward_agent, port, user, config_file,
                                   identities, connect_timeout_s)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(
    JobSpec, job, job_dir, state_dir, socket, command, cwd, env, env_server, env_worker, dmlc_roles,
    local, elastic, detached, workers, servers, added, known_hosts, prepare_data, require_prepared,
    sync_dst_dir, server_port, interface, transport, deterministic, refuse_nonfinite, busy_poll_us,
    server_device, checkpoint_every, checkpoint_interval_s, keep_checkpoints, restore,
    restore_epoch, is_env_elsewhere, log_limit, max_restarts, restart_refill_s, max_futile_restarts,
    min_workers, min_workers_timeout_s, max_workers, start_timeout_s, is_start_timeout_set,
    prepare_timeout_s, leave_timeout_s, stop_timeout_s, orphan_timeout_s, boundary_timeout_s,
    hang_timeout_s, suspect_after_s, dead_after_s, server_dead_after_s, poll_interval_s, ssh, quiet,
    prefix, no_shared_folder)

namespace {

using nlohmann::json;

constexpr const char* kBytes = "bytes";
/// Keys that specs of earlier versions lack.
constexpr const char* kNewer[] = {"checkpoint_interval_s", "dmlc_roles",
                                  "is_env_elsewhere",      "log_limit",
                                  "no_shared_folder",      "server_dead_after_s"};
/// A spec's env: object, list, pair, wrapped text.
constexpr int kDeepest = 4;

bool is_utf8(const json& text) {
  try {
    static_cast<void>(text.dump());
    return true;
  } catch (const json::type_error&) {
    return false;
  }
}

/// JSON holds only UTF-8, a command line any bytes: text that is not UTF-8 becomes
/// {"bytes": "e4f6"}.
void wrap_bytes(json& node) {
  if (node.is_structured()) {
    for (auto& child : node) wrap_bytes(child);
  } else if (node.is_string() && !is_utf8(node)) {
    std::string hex;
    for (const char c : node.get_ref<const std::string&>())
      hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
    node = json{{kBytes, hex}};
  }
}

void unwrap_bytes(json& node) {
  if (node.is_object() && node.size() == 1 && node.contains(kBytes) && node[kBytes].is_string()) {
    const auto hex = node[kBytes].get<std::string>();
    std::string bytes;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
      const auto byte = parse_number<unsigned char>(std::string_view(hex).substr(i, 2), 16);
      if (!byte) return;
      bytes.push_back(static_cast<char>(*byte));
    }
    node = bytes;
  } else if (node.is_structured()) {
    for (auto& child : node) unwrap_bytes(child);
  }
}

/// Throws if `kinds` has a whole number where `node` has none.
void check_numbers(const json& kinds, const json& node) {
  if (!kinds.is_object() || !node.is_object()) return;
  for (const auto& [name, kind] : kinds.items()) {
    const auto found = node.find(name);
    if (found == node.end()) continue;
    if (name == "port" || name == "server_port")
      (void)whole_number<std::uint16_t>(*found);
    else if (name == "log_limit")
      (void)whole_number<std::uint64_t>(*found);
    else if (kind.is_number_integer())
      (void)whole_number<std::uint32_t>(*found);
    check_numbers(kind, *found);
  }
}

}  // namespace

std::string to_json(const JobSpec& spec) {
  json tree(spec);
  wrap_bytes(tree);
  return tree.dump(2);
}

std::string to_json_without_values(JobSpec spec) {
  for (auto* variables : {&spec.env, &spec.env_server, &spec.env_worker})
    for (auto& [name, value] : *variables) value.clear();
  spec.is_env_elsewhere = true;
  return to_json(spec);
}

Result<JobSpec> spec_from_json(const std::string& text) {
  try {
    // No spec is deeper; a deeper tree would be walked, copied and freed by as deep a recursion.
    const auto shallow = [](int depth, json::parse_event_t, json&) { return depth <= kDeepest; };
    json tree = json::parse(text, shallow);
    unwrap_bytes(tree);
    static const json kKinds = JobSpec();
    check_numbers(kKinds, tree);
    for (const char* name : kNewer)
      if (tree.is_object() && !tree.contains(name)) tree[name] = kKinds.at(name);
    return tree.get<JobSpec>();
  } catch (const std::exception& e) {
    return fail(ErrorKind::kInvalid, "job spec: {}", e.what());
  }
}

std::string marker_dir(const std::string& job_dir) { return job_dir + "/.dtlaunch"; }
std::string job_files_dir(const JobSpec& spec) { return marker_dir(spec.job_dir) + "/" + spec.job; }
std::string events_file(const std::string& job_dir, const std::string& job) {
  return marker_dir(job_dir) + "/" + job + "/events.jsonl";
}
std::string checkpoints_dir(const JobSpec& spec) { return job_files_dir(spec) + "/checkpoints"; }
std::string journal_copy_file(const JobSpec& spec) { return job_files_dir(spec) + "/journal"; }
std::string pointer_file(const std::string& job_dir) {
  return marker_dir(job_dir) + "/current.json";
}

std::string make_job_name(std::int64_t wall_ns, std::uint32_t random) {
  const auto seconds = static_cast<std::time_t>(wall_ns / 1'000'000'000);
  return fmt::format("{:%Y%m%d-%H%M%S}-{:08x}", fmt::gmtime(seconds), random);
}

std::optional<std::int64_t> job_began(const std::string& job) {
  std::tm utc{};
  const char* end = ::strptime(job.c_str(), "%Y%m%d-%H%M%S", &utc);
  if (!end || *end != '-') return std::nullopt;
  return ::timegm(&utc);
}

std::string home_dir() {
  if (const char* home = std::getenv("HOME"); home && *home) return home;
  const passwd* user = ::getpwuid(::geteuid());
  return user && user->pw_dir ? user->pw_dir : "/";
}

std::string default_state_dir(const std::string& job) { return state_home().path + "/" + job; }
std::string default_runtime_dir(const std::string& job) {
  return runtime_home(job.size()).path + "/" + job;
}

Result<void> make_private_dir(const std::string& path) {
  std::error_code ec;
  const auto parent = std::filesystem::path(path).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, ec);
  if (ec) return tl::unexpected(errno_error(ec.value(), "make folder " + parent.string()));
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return tl::unexpected(errno_error(errno, "make folder " + path));
  struct stat st {};
  if (::lstat(path.c_str(), &st) != 0) return tl::unexpected(errno_error(errno, path));
  if (!S_ISDIR(st.st_mode) || st.st_uid != ::getuid() || (st.st_mode & 077) != 0)
    return fail(ErrorKind::kDenied, "{} must be a folder of yours with mode 0700", path);
  return {};
}

}  // namespace io
}  // namespace dt
