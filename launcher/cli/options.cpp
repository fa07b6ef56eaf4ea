#include "launcher/cli/options.h"

#include <algorithm>
#include <boost/program_options/variables_map.hpp>
#include <cctype>
#include <cmath>

#include "core/base/number.h"
#include "core/protocol/device_choice.h"
#include "launcher/cli/option_scan.h"

namespace dt::launcher {
namespace {

namespace po = boost::program_options;

constexpr std::uint32_t kMostWorkers = 65536;
constexpr std::size_t kLastPort = 65535;
/// Few servers carry most models, and each is a host whose loss costs the time since a checkpoint.
constexpr std::size_t kMostServersByDefault = 64;
constexpr double kCheckpointInterval_s = 60;

/// Reads values out of the parsed options; the first mistake is kept and everything after it is
/// skipped.
class Values {
 public:
  explicit Values(const po::variables_map& map) : map_(map) {}

  [[nodiscard]] bool has(const char* name) const { return map_.count(name) > 0; }
  [[nodiscard]] bool flag(const char* name) const { return map_[name].as<bool>(); }
  [[nodiscard]] Words list(const char* name) const {
    return has(name) ? map_[name].as<Words>() : Words();
  }
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }

  template <class... Args>
  void refuse(fmt::format_string<Args...> format, Args&&... args) {
    if (error_) return;
    error_ = Error{ErrorKind::kInvalid, fmt::format(format, std::forward<Args>(args)...)};
  }

  void text(const char* name, std::string& into) {
    if (!has(name)) return;
    into = map_[name].as<std::string>();
    if (into.empty()) refuse("--{} is empty", name);
  }

  template <std::unsigned_integral T>
  void number(const char* name, T& into, std::uint64_t least, std::uint64_t most) {
    if (!has(name)) return;
    const auto& shown = map_[name].as<std::string>();
    const auto value = parse_number<std::uint64_t>(shown);
    if (!value || *value < least || *value > most)
      return refuse("--{} {}: a number {} to {} was expected", name, shown, least, most);
    into = static_cast<T>(*value);
  }

  /// Seconds, or a number with ms, s, m or h.
  void time(const char* name, double& into) {
    if (!has(name)) return;
    constexpr double kLongest = 49.0 * 24 * 3600;  // in milliseconds it fits into 32 bits
    const auto& shown = map_[name].as<std::string>();
    std::string_view unit = shown;
    const auto number = take_number<double>(unit);
    const double scale = unit.empty() || unit == "s" ? 1
                         : unit == "ms"              ? 1e-3
                         : unit == "m"               ? 60
                         : unit == "h"               ? 3600
                                                     : 0;
    const double value = number.value_or(0) * scale;
    if (std::isfinite(value) && value > kLongest)
      return refuse("--{} {}: at most 1176h (49 days) were expected", name, shown);
    if (!std::isfinite(value) || !(value > 0))
      return refuse("--{} {}: a time was expected, such as 30, 500ms, 10m or 2h", name, shown);
    into = value;
  }

  /// Bytes, or a number with k, M, G or T (of 1024).
  void size(const char* name, std::uint64_t& into) {
    if (!has(name)) return;
    const auto& shown = map_[name].as<std::string>();
    std::string_view unit = shown;
    const auto value = take_number<std::uint64_t>(unit);
    constexpr std::string_view kUnits = "kMGT";
    const std::size_t which = unit.size() == 1 ? kUnits.find(unit[0]) : std::string_view::npos;
    const std::size_t shift = unit.empty() ? 0 : 10 * (which + 1);
    if (!value || (!unit.empty() && which == std::string_view::npos) ||
        (*value << shift) >> shift != *value)
      return refuse("--{} {}: a size was expected, such as 500M or 2G", name, shown);
    into = *value << shift;
  }

  /// One of the words, whose index is returned; `otherwise` when the option is not given.
  std::size_t choice(const char* name, const Words& words, std::size_t otherwise) {
    if (!has(name)) return otherwise;
    const auto& shown = map_[name].as<std::string>();
    const auto found = std::find(words.begin(), words.end(), shown);
    if (found != words.end()) return static_cast<std::size_t>(found - words.begin());
    refuse("--{} {}: one of {} was expected", name, shown, fmt::join(words, ", "));
    return otherwise;
  }

 private:
  const po::variables_map& map_;
  std::optional<Error> error_;
};

bool is_variable_name(std::string_view name) {
  const auto good = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name.front())) == 0 &&
         std::all_of(name.begin(), name.end(), good);
}

std::vector<std::pair<std::string, std::string>> variables(Values& values, const char* option,
                                                           const Surroundings& around) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const std::string& word : values.list(option)) {
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (!is_variable_name(name)) {
      values.refuse("--{} {}: NAME or NAME=VALUE was expected", option, word);
    } else if (name.starts_with("DT_")) {
      values.refuse("--{} {}: names that begin with DT_ are dtlaunch's own", option, name);
    } else if (equals != std::string::npos) {
      all.emplace_back(name, word.substr(equals + 1));
    } else if (auto value = around.variable(name)) {
      all.emplace_back(name, std::move(*value));
    } else {
      values.refuse("--{} {}: {} is not set here; write {}=VALUE", option, name, name, name);
    }
  }
  return all;
}

void read_ssh(Values& values, const Surroundings& around, io::SshOptions& ssh) {
  values.number("ssh-port", ssh.port, 1, 65535);
  values.text("ssh-user", ssh.user);
  ssh.identities = values.list("ssh-identity");
  // A shell leaves the ~ of --option=~/file alone; who reads the file expands it.
  const auto from_here = [&around](std::string& file) {
    if (!file.starts_with('/') && !file.starts_with("~/")) file = around.cwd + "/" + file;
  };
  for (auto& file : ssh.identities) from_here(file);
  values.text("ssh-config", ssh.config_file);
  if (!ssh.config_file.empty() && ssh.config_file != "none") from_here(ssh.config_file);
  constexpr io::HostKeyPolicy kPolicies[] = {io::HostKeyPolicy::kStrict,
                                             io::HostKeyPolicy::kAcceptNew, io::HostKeyPolicy::kOff,
                                             io::HostKeyPolicy::kFromConfig};
  ssh.known_hosts =
      kPolicies[values.choice("ssh-known-hosts", {"strict", "accept-new", "off", "config"}, 3)];
  ssh.forward_agent = values.flag("forward-agent");
  values.time("ssh-connect-timeout", ssh.connect_timeout_s);
}

/// Of the number of workers while the job runs.
void read_limits(Values& values, Options& options) {
  io::JobSpec& spec = options.spec;
  values.number("min-workers", spec.min_workers, 1, kMostWorkers);
  values.number("max-workers", spec.max_workers, 1, kMostWorkers);
  values.time("min-workers-timeout", spec.min_workers_timeout_s);
  if (spec.max_workers != 0 && spec.min_workers > spec.max_workers)
    values.refuse("--min-workers {} is more than --max-workers {}", spec.min_workers,
                  spec.max_workers);
  if (spec.min_workers > options.num_workers)
    values.refuse("--min-workers {}: the job starts with -n {}; give that many or fewer",
                  spec.min_workers, options.num_workers);
  if (spec.max_workers != 0 && spec.max_workers < options.num_workers)
    values.refuse("--max-workers {}: the job starts with -n {}; give that many or more",
                  spec.max_workers, options.num_workers);
  if (spec.max_workers != 0 && !spec.elastic)
    values.refuse("--max-workers needs --{}: without it no worker is ever added", kElastic);
  if (values.has("min-workers-timeout") && spec.min_workers == 0)
    values.refuse("--min-workers-timeout has no meaning without --min-workers");
}

void read_times(Values& values, io::JobSpec& spec) {
  values.number("max-restarts", spec.max_restarts, 0, 1'000'000);
  values.time("restart-refill", spec.restart_refill_s);
  values.number("max-futile-restarts", spec.max_futile_restarts, 1, 1'000'000);
  values.number("checkpoint-every", spec.checkpoint_every, 0, 1'000'000);
  if (!values.has("checkpoint-every")) spec.checkpoint_interval_s = kCheckpointInterval_s;
  if (values.has("checkpoint-every") && values.has("checkpoint-interval"))
    values.refuse("--checkpoint-every counts epochs and knows no --checkpoint-interval: give one");
  values.time("checkpoint-interval", spec.checkpoint_interval_s);
  values.number("keep-checkpoints", spec.keep_checkpoints, 1, 1'000'000);
  values.time("start-timeout", spec.start_timeout_s);
  spec.is_start_timeout_set = values.has("start-timeout");
  values.time("prepare-timeout", spec.prepare_timeout_s);
  values.time("boundary-timeout", spec.boundary_timeout_s);
  values.time("hang-timeout", spec.hang_timeout_s);
  values.time("leave-timeout", spec.leave_timeout_s);
  values.time("stop-timeout", spec.stop_timeout_s);
  values.time("suspect-after", spec.suspect_after_s);
  values.time("dead-after", spec.dead_after_s);
  values.time("server-dead-after", spec.server_dead_after_s);
  if (spec.server_dead_after_s < 1)
    values.refuse(
        "--server-dead-after {} s is too short: servers report four times a second, 1 s "
        "is the least",
        spec.server_dead_after_s);
  if (spec.suspect_after_s > spec.dead_after_s)
    values.refuse("--suspect-after {} s is longer than --dead-after {} s", spec.suspect_after_s,
                  spec.dead_after_s);
  values.time("orphan-timeout", spec.orphan_timeout_s);
  values.time("poll-interval", spec.poll_interval_s);
}

void read_elastic(Values& values, io::JobSpec& spec) {
  std::string shown = "False";
  values.text(kElastic, shown);
  const auto enabled = truth(shown);
  if (!enabled) values.refuse("--{}={}: True or False was expected", kElastic, shown);
  spec.elastic = enabled.value_or(false);
}

void read_job(Values& values, const Surroundings& around, Options& options) {
  io::JobSpec& spec = options.spec;
  values.number("num-workers", options.num_workers, 1, kMostWorkers);
  if (!values.has("num-workers")) values.refuse("-n is missing: how many workers are wanted?");
  if (values.has("num-servers")) {
    std::uint32_t servers = 0;
    values.number("num-servers", servers, 0, kMostWorkers);
    options.num_servers = servers;
  }
  values.text("hostfile", options.hostfile);
  const bool has_hosts = values.has("hostfile");
  spec.local = values.choice("launcher", {"ssh", "local"}, has_hosts ? 0 : 1) == 1;
  if (!spec.local && !has_hosts) values.refuse("--launcher ssh needs hosts: give -H FILE");
  read_elastic(values, spec);
  spec.dmlc_roles = values.flag("dmlc-roles");
  if (spec.dmlc_roles && spec.elastic)
    values.refuse("--dmlc-roles and --{} do not go together: there is no kvstore server", kElastic);
  spec.job_dir = around.cwd;
  values.text("job-dir", spec.job_dir);
  if (!spec.job_dir.starts_with('/')) spec.job_dir = around.cwd + "/" + spec.job_dir;
  spec.detached = values.flag("detach");
}

void read_data(Values& values, const Surroundings& around, io::JobSpec& spec) {
  spec.env = variables(values, "env", around);
  spec.env_server = variables(values, "env-server", around);
  spec.env_worker = variables(values, "env-worker", around);
  spec.cwd = around.cwd;
  values.text("sync-dst-dir", spec.sync_dst_dir);
  if (!spec.sync_dst_dir.empty()) {
    if (!spec.sync_dst_dir.starts_with('/'))
      values.refuse("--sync-dst-dir {}: give the folder with its full path", spec.sync_dst_dir);
    spec.cwd = spec.sync_dst_dir;
  }
  spec.no_shared_folder = values.flag("no-shared-folder");
  values.text("prepare-data", spec.prepare_data);
  spec.require_prepared = values.flag("require-prepared");
  values.text("interface", spec.interface);
  values.number("server-port", spec.server_port, 1, 65535);
  constexpr std::array kTransports = {"auto", "tcp", "shm"};
  spec.deterministic = values.flag("deterministic");
  spec.refuse_nonfinite = values.flag("refuse-nonfinite");
  values.text("server-device", spec.server_device);
  if (const auto device = parse_device(spec.server_device); !device)
    values.refuse("--server-device: {}", device.error().message);
  values.number("busy-poll", spec.busy_poll_us, 0, 1'000'000);
  spec.transport = kTransports[values.choice("transport", {"auto", "tcp", "shm"}, 0)];
}

}  // namespace

Result<Options> parse_options(const std::vector<std::string>& words, const Surroundings& around) {
  const auto table = all_options();
  auto scan = scan_options(table, words);
  if (!scan) return tl::unexpected(scan.error());
  po::variables_map map;
  po::store(scan->options, map);
  Values values(map);

  Options options;
  if (values.flag("help")) {
    options.wish = Wish::kHelp;
    return options;
  }
  if (values.flag("version")) {
    options.wish = Wish::kVersion;
    return options;
  }
  if (values.has("resume")) {
    options.wish = Wish::kResume;
    values.text("resume", options.resume);
    if (!options.resume.starts_with('/')) options.resume = around.cwd + "/" + options.resume;
    const auto given = std::count_if(map.begin(), map.end(),
                                     [](const auto& one) { return !one.second.defaulted(); });
    options.take_over = values.flag("take-over");
    options.again = values.flag("again");
    values.text("env-file", options.env_file);
    const int known = 1 + (options.take_over ? 1 : 0) + (options.again ? 1 : 0) +
                      (options.env_file.empty() ? 0 : 1);
    if (given > known || !scan->command.empty())
      values.refuse("--resume takes the job as it was started: no command and no other options");
    if (values.error()) return tl::unexpected(*values.error());
    return options;
  }
  if (values.flag("take-over")) values.refuse("--take-over belongs to --resume");
  if (values.flag("again")) values.refuse("--again belongs to --resume");
  if (values.has("env-file")) values.refuse("--env-file belongs to --resume");
  if (values.flag("dry-run")) options.wish = Wish::kDryRun;
  options.spec.command = std::move(scan->command);
  read_job(values, around, options);
  read_limits(values, options);
  read_data(values, around, options.spec);
  read_ssh(values, around, options.spec.ssh);
  read_times(values, options.spec);
  options.spec.quiet = values.flag("quiet");
  values.size("log-limit", options.spec.log_limit);
  options.spec.prefix = !values.flag("no-prefix");
  if (options.spec.command.empty() || options.spec.command.front().empty())
    values.refuse("the command to run is missing: dtlaunch -n N [options] command [arguments]");
  if (values.error()) return tl::unexpected(*values.error());
  return options;
}

Result<io::JobSpec> plan(const Options& options, std::string_view hosts_text) {
  io::JobSpec spec = options.spec;
  std::vector<HostLine> lines;
  if (options.hostfile.empty()) {
    lines.push_back({Host{"", "localhost", 0}, std::nullopt, 1});
  } else {
    auto parsed = parse_hosts(hosts_text, options.hostfile);
    if (!parsed) return tl::unexpected(parsed.error());
    lines = std::move(*parsed);
    if (lines.empty())
      return fail(ErrorKind::kInvalid, "{} names no host: one line per host was expected",
                  options.hostfile);
  }
  auto workers = place_workers(lines, options.num_workers);
  if (!workers)
    return tl::unexpected(options.hostfile.empty() ? workers.error()
                                                   : workers.error().at(options.hostfile));
  spec.workers = std::move(*workers);
  std::vector<Host> base;  // hosts that got a base worker
  for (const auto& host : sum_slots(lines)) {
    spec.known_hosts.push_back(host.host);
    if (std::find(spec.workers.begin(), spec.workers.end(), host.host) != spec.workers.end())
      base.push_back(host.host);
  }
  const std::size_t servers = options.num_servers.value_or(
      static_cast<std::uint32_t>(std::min(base.size(), kMostServersByDefault)));
  for (std::size_t i = 0; i < servers; ++i) spec.servers.push_back(base[i % base.size()]);
  const std::size_t most = (servers + base.size() - 1) / base.size();
  if (spec.server_port != 0 && most > 1 && spec.server_port + most - 1 > kLastPort)
    return fail(ErrorKind::kInvalid,
                "--server-port {}: host {} gets {} servers, which need ports up to {}; give {} or "
                "less",
                spec.server_port, base.front(), most, spec.server_port + most - 1,
                kLastPort - most + 1);
  return spec;
}

}  // namespace dt::launcher
