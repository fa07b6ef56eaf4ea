#include "io/job/spec.h"

#include <fmt/chrono.h>
#include <limits.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "core/base/number.h"
#include "core/launch/holders.h"
#include "io/job/job_flags.h"
#include "io/job/master_folders.h"
#include "io/json_field.h"
#include "io/read_file.h"

namespace dt {

static void to_json(nlohmann::json& j, const Host& h) {
  j = nlohmann::json{{"user", h.user}, {"name", h.name}, {"port", h.port}};
  if (h.via) j["via"] = to_text(*h.via);
  if (!h.gpus.empty()) j["gpus"] = h.gpus;
}
static void from_json(const nlohmann::json& j, Host& h) {
  j.at("user").get_to(h.user);
  j.at("name").get_to(h.name);
  h.port = io::whole_number<std::uint16_t>(j.at("port"));
  h.gpus = j.value("gpus", "");
  const auto via = j.find("via");
  if (via == j.end()) return;
  h.via = starter_kind(via->get<std::string>());
  if (!h.via) throw std::runtime_error(fmt::format("{} is no way to reach a host", via->dump()));
}

static void to_json(nlohmann::json& j, const AllocatedNodes& a) {
  j = nlohmann::json{{"kind", to_text(a.kind)}, {"job", a.job}, {"nodes", nlohmann::json::array()}};
  for (const AllocatedNode& node : a.nodes) j["nodes"].push_back({node.name, node.address});
}
static void from_json(const nlohmann::json& j, AllocatedNodes& a) {
  const auto kind = starter_kind(j.at("kind").get<std::string>());
  if (!kind) throw std::runtime_error(fmt::format("{} is no scheduler", j.at("kind").dump()));
  a.kind = *kind;
  j.at("job").get_to(a.job);
  for (const auto& node : j.at("nodes"))
    a.nodes.push_back({node.at(0).get<std::string>(), node.at(1).get<std::string>()});
}

namespace preflight {

static void to_json(nlohmann::json& j, const Reference& r) {
  j = nlohmann::json{{"host", r.host},
                     {"path", r.command.path},
                     {"version", r.command.version},
                     {"sha256", r.command.sha256},
                     {"files", nlohmann::json::array()},
                     {"gpus", r.gpus.names},
                     {"driver", r.gpus.driver},
                     {"cores", r.cores}};
  for (const FileFacts& file : r.command.files) j["files"].push_back({file.name, file.sha256});
}
static void from_json(const nlohmann::json& j, Reference& r) {
  j.at("host").get_to(r.host);
  j.at("path").get_to(r.command.path);
  j.at("version").get_to(r.command.version);
  j.at("sha256").get_to(r.command.sha256);
  for (const auto& file : j.at("files"))
    r.command.files.push_back(
        {file.at(0).get<std::string>(), file.at(1).get<std::string>(), std::string()});
  j.at("gpus").get_to(r.gpus.names);
  j.at("driver").get_to(r.gpus.driver);
  r.cores = io::whole_number<std::uint32_t>(j.at("cores"));
}

}  // namespace preflight

namespace io {

// What is no option's field; job_flags() has the rest.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(JobSpec, job, job_dir, state_dir, socket, command, cwd, env,
                                   env_server, env_worker, workers, servers, added, known_hosts,
                                   restore, restore_epoch, is_env_elsewhere, prefix)

namespace {

using nlohmann::json;

constexpr const char* kBytes = "bytes";
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

struct ToJson {
  json operator()(Bytes bytes) const { return *bytes.into; }
  json operator()(Duration* time) const { return seconds(*time); }
  json operator()(const Reader& choice) const { return choice.show(); }
  json operator()(std::optional<std::uint32_t>* number) const { return number->value_or(0); }
  template <class Field>
  json operator()(Field* field) const {
    return *field;
  }
  template <class Other>
  json operator()(const Other&) const {
    throw std::logic_error("a flag without a field is no part of a spec");
  }
};

struct FromJson {
  const json& from;

  void operator()(bool* into) const { from.get_to(*into); }
  void operator()(Bytes bytes) const { *bytes.into = whole_number<std::uint64_t>(from); }
  void operator()(std::string* into) const { from.get_to(*into); }
  void operator()(Words* into) const { from.get_to(*into); }
  void operator()(Duration* into) const {
    constexpr double kMost_s = 1e9;
    const auto time = from.get<double>();
    if (!(time >= 0 && time <= kMost_s))
      throw std::runtime_error(fmt::format("{} is no time in seconds", from.dump()));
    // In microseconds it is the same number whenever it is written and read.
    *into = std::chrono::microseconds(std::llround(time * 1e6));
  }
  void operator()(const Reader& choice) const {
    const auto word = from.get<std::string>();
    if (const auto done = choice.read(word); !done)
      throw std::runtime_error(done.error().at(word).message);
  }
  template <std::unsigned_integral Number>
  void operator()(Number* into) const {
    *into = whole_number<Number>(from);
  }
  template <class Other>
  void operator()(const Other&) const {}
};

/// Specs of earlier versions have "local", true or false, in its place.
StarterKind launcher_of(const json& tree) {
  if (!tree.contains("launcher"))
    return tree.at("local").get<bool>() ? StarterKind::kLocal : StarterKind::kSsh;
  const auto name = tree.at("launcher").get<std::string>();
  const auto kind = starter_kind(name);
  if (!kind) throw std::runtime_error(fmt::format("{} is no launcher", name));
  return *kind;
}

json::json_pointer path_of(const Flag& flag) {
  return json::json_pointer(fmt::format("/{}", flag.json));
}

/// The flags that are part of a spec.
template <class Visit>
void each_field(JobSpec& spec, Visit visit) {
  for (const FlagGroup& group : job_flags(spec))
    for (const Flag& flag : group.flags)
      if (flag.json) visit(flag);
}

}  // namespace

std::string to_json(const JobSpec& spec) {
  JobSpec copy = spec;
  json tree(copy);
  if (!spec.ps_verbose.empty()) tree["ps_verbose"] = spec.ps_verbose;
  if (!spec.fleet_folder.empty()) tree["fleet_folder"] = spec.fleet_folder;
  if (spec.is_taken_over) tree["is_taken_over"] = true;
  if (!spec.replaced.empty()) tree["replaced"] = spec.replaced;
  if (!spec.activated.second.empty()) tree["activated"] = spec.activated;
  if (spec.allocation) tree["allocation"] = *spec.allocation;
  if (spec.preflight) tree["preflight"] = *spec.preflight;
  tree["launcher"] = std::string(to_text(copy.launcher));
  tree["is_start_timeout_set"] = copy.rules.is_start_timeout_set;
  each_field(copy, [&](const Flag& flag) {
    const auto* choice = std::get_if<Reader>(&flag.to);
    const bool is_open = choice && choice->show().empty();
    if (!is_open) tree[path_of(flag)] = std::visit(ToJson{}, flag.to);
  });
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
    if (tree.is_object())
      tree.emplace("is_env_elsewhere", false);  // specs of earlier versions lack it
    auto spec = tree.get<JobSpec>();
    spec.launcher = launcher_of(tree);
    spec.restore_epoch = whole_number<std::uint32_t>(tree.at("restore_epoch"));
    spec.rules.is_start_timeout_set = tree.value("is_start_timeout_set", false);
    spec.ps_verbose = tree.value("ps_verbose", "");
    spec.fleet_folder = tree.value("fleet_folder", "");
    spec.is_taken_over = tree.value("is_taken_over", false);
    spec.replaced = tree.value("replaced", spec.replaced);
    spec.activated = tree.value("activated", spec.activated);
    if (tree.contains("allocation")) spec.allocation = tree.at("allocation").get<AllocatedNodes>();
    if (tree.contains("preflight"))
      spec.preflight = tree.at("preflight").get<preflight::Reference>();
    // An option that is newer than the spec has its default.
    each_field(spec, [&](const Flag& flag) {
      if (tree.contains(path_of(flag))) std::visit(FromJson{tree.at(path_of(flag))}, flag.to);
    });
    return spec;
  } catch (const std::exception& e) {
    return fail(ErrorKind::kInvalid, "job spec: {}", e.what());
  }
}

Result<JobSpec> read_spec(const std::string& file) {
  const auto text = read_file(file);
  if (!text) return tl::unexpected(text.error());
  return spec_from_json(*text).map_error([&](const Error& e) { return e.at(file); });
}

std::vector<std::string> options_that_differ(const JobSpec& a, const JobSpec& b) {
  constexpr std::array kTerminal{"detach", "quiet", "output", "no-prefix"};
  JobSpec first = a;
  JobSpec second = b;
  std::map<std::string, json> before;
  each_field(first, [&](const Flag& flag) { before[flag.name] = std::visit(ToJson{}, flag.to); });
  std::vector<std::string> differ;
  each_field(second, [&](const Flag& flag) {
    const bool is_shown =
        std::ranges::find(kTerminal, std::string_view(flag.name)) != kTerminal.end();
    if (!is_shown && before[flag.name] != std::visit(ToJson{}, flag.to))
      differ.push_back(fmt::format("--{}", flag.name));
  });
  return differ;
}

std::optional<Host> host_here(const JobSpec& spec) {
  std::array<char, HOST_NAME_MAX + 1> own{};
  ::gethostname(own.data(), own.size() - 1);
  const auto is_called = [](const Host& host, const std::string& name) {
    return host.name == name || name.starts_with(host.name + ".") ||
           host.name.starts_with(name + ".");
  };
  // Where a scheduler's names are not the machine's own, these have the scheduler's.
  for (const char* name : {std::getenv("SLURMD_NODENAME"), std::getenv("HOSTNAME"), own.data()}) {
    if (name == nullptr || *name == '\0') continue;
    for (const auto* hosts : {&spec.workers, &spec.servers})
      for (const Host& host : *hosts)
        if (is_called(host, name)) return host;
  }
  return std::nullopt;
}

JobOptions job_options(const JobSpec& spec) {
  JobOptions o;
  static_cast<JobRules&>(o) = spec.rules;
  o.workers = spec.workers;
  o.servers = spec.servers;
  o.opaque_servers = spec.dmlc_roles;
  if (spec.dmlc_roles) o.servers.push_back(spec.workers.front());  // the scheduler
  o.needs_prepare = !spec.prepare_data.empty() || spec.require_prepared || spec.preflight;
  o.is_elastic = spec.elastic;
  o.rolls_back = saves_checkpoints(spec) || !spec.restore.empty();
  if (!spec.restore.empty()) o.first_epoch = Epoch(spec.restore_epoch);
  o.master = host_here(spec);
  return o;
}

/// The node that this machine is; empty: none. Where the scheduler's names are not the machine's
/// own, HOSTNAME has the scheduler's.
static std::string this_node(const AllocatedNodes& allocation) {
  std::array<char, HOST_NAME_MAX + 1> name{};
  ::gethostname(name.data(), name.size() - 1);
  const AllocatedNode* node = node_called(allocation, name.data());
  const char* scheduled = std::getenv("HOSTNAME");
  if (!node && scheduled) node = node_called(allocation, scheduled);
  return node ? node->name : std::string();
}

Starter starter_for(const JobSpec& spec, StarterKind kind) {
  Starter starter;
  starter.kind = kind;
  if (spec.allocation && spec.allocation->kind == kind) {
    starter.job = spec.allocation->job;
    for (const AllocatedNode& node : spec.allocation->nodes) starter.nodes.push_back(node.name);
  }
  if (kind == StarterKind::kSlurm) starter.holders_of = spec.job;
  if (kind == StarterKind::kSge && spec.allocation) starter.here = this_node(*spec.allocation);
  starter.rsh = spec.rsh;
  starter.rsh_binary = spec.rsh_binary;
  starter.pod_namespace = spec.pod_namespace;
  starter.container = spec.pod_container;
  return starter;
}

std::string activated_program(const JobSpec& spec) {
  if (is_local(spec) || spec.activated.second.empty()) return {};
  return spec.activated.second + "/bin/" + spec.command.front();
}

bool deals_gpus(const JobSpec& spec) {
  const auto divides = [](const auto& given) { return given.first == "CUDA_VISIBLE_DEVICES"; };
  return !spec.servers.empty() && !spec.dmlc_roles && spec.gpus_per_worker != "all" &&
         std::ranges::none_of(spec.env, divides) && std::ranges::none_of(spec.env_worker, divides);
}

StarterKind way_to(const JobSpec& spec, const Host& host) {
  return way_to(host, spec.launcher, spec.allocation);
}

std::string marker_dir(const std::string& job_dir) { return job_dir + "/.dtlaunch"; }
std::string job_files_dir(const JobSpec& spec) { return marker_dir(spec.job_dir) + "/" + spec.job; }
std::string events_file(const std::string& job_dir, const std::string& job) {
  return marker_dir(job_dir) + "/" + job + "/events.jsonl";
}
std::string checkpoints_dir(const JobSpec& spec) { return job_files_dir(spec) + "/checkpoints"; }
std::string journal_copy_file(const JobSpec& spec) { return job_files_dir(spec) + "/journal"; }
std::string programs_dir(const JobSpec& spec) { return spec.state_dir + "/programs"; }
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
  struct stat st {};
  bool is_there = false;
  // Twice: somebody may remove the folder between the two calls.
  for (int i = 0; i < 2 && !is_there; ++i) {
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
      return tl::unexpected(errno_error(errno, "make folder " + path));
    is_there = ::lstat(path.c_str(), &st) == 0;
  }
  if (!is_there) return tl::unexpected(errno_error(errno, path));
  if (!S_ISDIR(st.st_mode) || st.st_uid != ::getuid() || (st.st_mode & 077) != 0)
    return fail(ErrorKind::kDenied, "{} must be a folder of yours with mode 0700", path);
  return {};
}

}  // namespace io
}  // namespace dt
