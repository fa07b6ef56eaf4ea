#include "launcher/options.h"

#include <algorithm>
#include <boost/program_options/options_description.hpp>
#include <boost/program_options/parsers.hpp>
#include <boost/program_options/variables_map.hpp>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <sstream>

#include "core/device_choice.h"
#include "io/control.h"

namespace dt::launcher {
namespace {

namespace po = boost::program_options;
using Words = std::vector<std::string>;

constexpr const char* kElastic = "elastic-training-enabled";
constexpr std::uint32_t kMostWorkers = 65536;
constexpr unsigned kHelpWidth = 100;
constexpr std::size_t kLastPort = 65535;

/// Every value is taken as text: our own readers say better than a cast what was expected.
po::typed_value<std::string>* word(const char* shown) {
  return po::value<std::string>()->value_name(shown);
}
po::typed_value<Words>* words(const char* shown) { return po::value<Words>()->value_name(shown); }

std::vector<po::options_description> groups() {
  std::vector<po::options_description> all;
  auto add = [&all](const char* title) -> po::options_description_easy_init {
    return all.emplace_back(title, kHelpWidth).add_options();
  };
  all.reserve(8);
  add("Job")("num-workers,n", word("N"), "workers to start (required)")(
      "num-servers,s", word("N"),
      "kvstore servers; default: one per host that gets a worker; 0: none")(
      "hostfile,H", word("FILE"), "hosts, one per line: [user@]host[:port] [slots=N]")(
      "launcher", word("ssh|local"), "default: ssh with -H, else local (this machine, no ssh)")(
      kElastic, word("[True|False]"),
      "watch host_worker in the job folder: editing it adds and removes workers")(
      "min-workers", word("N"),
      "an epoch begins with at least so many; with fewer the job waits for restarts and added "
      "hosts")("max-workers", word("N"),
               "no more are started, whatever host_worker asks for; its first lines come first")(
      "job-dir", word("DIR"),
      "folder of host_worker, host_worker_log and logs, on a volume that all hosts see; default: "
      "the present folder")("detach", po::bool_switch(),
                            "return as soon as the job's supervisor is ready; see dtctl")(
      "resume", word("DIR"),
      "go on with the last job of this job folder: with its processes where they live, else from "
      "its newest checkpoint; no command and no other options")(
      "take-over", po::bool_switch(),
      "with --resume: the machine whose dtlaunch ran it is surely gone, whatever the folder's lock "
      "says")("dry-run", po::bool_switch(), "show who would run where, and start nothing");
  add("Data and environment")("env", words("NAME[=VALUE]"),
                              "give every process this variable; NAME alone: with its value here")(
      "env-server", words("NAME[=VALUE]"), "the same for servers")(
      "env-worker", words("NAME[=VALUE]"), "the same for workers")(
      "sync-dst-dir", word("DIR"), "copy the present folder to DIR on all hosts and run there")(
      "prepare-data", word("CMD"), "run by a shell on each host before its first worker")(
      "require-prepared", po::bool_switch(),
      "without --prepare-data: an added host waits for its prepare_data_success file");
  add("ssh")("ssh-port", word("PORT"), "for hosts that give none")(
      "ssh-user", word("USER"), "for hosts that give none")("ssh-identity,i", words("FILE"),
                                                            "private key; may be given again")(
      "ssh-config", word("FILE"), "instead of ~/.ssh/config; \"none\": no file")(
      "ssh-known-hosts", word("strict|accept-new|off|config"),
      "what to do with a host's key that is not known; default: what the ssh config says, else "
      "accept-new")("forward-agent,A", po::bool_switch(), "forward the ssh agent to the hosts")(
      "ssh-connect-timeout", word("TIME"), "10 s; twice that for key exchange and login");
  add("Data plane")("interface", word("NAME"),
                    "network interface for gradients, the same name on all hosts")(
      "server-port", word("PORT"), "first port of the servers on a host; default: any free one")(
      "transport", word("auto|tcp|shm"),
      "between workers and servers: auto (default) is shared memory on one host, else TCP")(
      "deterministic", po::bool_switch(),
      "servers sum in the workers' order, not as gradients arrive: two runs give the same bits")(
      "server-device", word("cpu|auto|cuda:N"),
      "where servers keep and compute values: auto is a GPU where there is one (cpu)")(
      "refuse-nonfinite", po::bool_switch(),
      "a gradient with infinite or NaN elements is an error")(
      "busy-poll", word("US"), "microseconds to poll for an answer before sleeping (0)");
  add("Time and failure (TIME: seconds, or with ms, s, m, h)")(
      "max-restarts", word("N"), "restarts of failed members, per worker a host is to have (3)")(
      "restart-refill", word("TIME"),
      "without a failure on a host gives it a restart back (600 s)")(
      "max-futile-restarts", word("N"),
      "restarts without a completed epoch between them, before the job ends with code 70 (10, or 3 "
      "per worker)")("min-workers-timeout", word("TIME"),
                     "with fewer than --min-workers, before the job ends with code 71 (600 s)")(
      "start-timeout", word("TIME"), "from a base worker's start to its first epoch (600 s)")(
      "prepare-timeout", word("TIME"), "for --prepare-data on a host (1 h)")(
      "boundary-timeout", word("TIME"), "waiting for a member at an epoch's start (600 s)")(
      "hang-timeout", word("TIME"),
      "for a member that does nothing while others wait for it in a step (600 s)")(
      "leave-timeout", word("TIME"), "for a removed worker to end by itself (30 s)")(
      "stop-timeout", word("TIME"), "between TERM and KILL when the job is stopped (10 s)")(
      "suspect-after", word("TIME"), "of a host's silence: nothing is begun there (1 s)")(
      "dead-after", word("TIME"), "of a host's silence: it counts as lost (3 s)")(
      "checkpoint-every", word("N"),
      "save the servers' state before every so many epochs; 0: never (0)")(
      "keep-checkpoints", word("N"), "the newest so many stay (3)")(
      "orphan-timeout", word("TIME"), "hosts stop everything after so long unsupervised (300 s)")(
      "poll-interval", word("TIME"), "between looks at host_worker (1 s)");
  add("Output")("no-prefix", po::bool_switch(), "show processes' lines as they are")(
      "quiet,q", po::bool_switch(), "only warnings and errors on the terminal")(
      "version", po::bool_switch(), "show the version")("help,h", po::bool_switch(), "show this");
  return all;
}

po::options_description all_options() {
  po::options_description all;
  for (const auto& group : groups()) all.add(group);
  return all;
}

bool takes_value(const po::option_description& option) {
  return option.semantic()->max_tokens() > 0;
}

bool is_repeatable(const po::option_description& option) {
  return dynamic_cast<const po::typed_value<Words>*>(option.semantic().get()) != nullptr;
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::optional<bool> truth(const std::string& text) {
  const std::string t = lower(text);
  if (t == "true" || t == "1") return true;
  if (t == "false" || t == "0") return false;
  return std::nullopt;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j - 1] + 1, row[j] + 1, changed});
    }
  }
  return row.back();
}

/// "; did you mean --hostfile?", or nothing when no option is near.
std::string nearest(const po::options_description& table, std::string_view name) {
  std::string best;
  std::size_t least = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const auto& option : table.options()) {
    const std::string& long_name = option->long_name();
    // The beginning of a long name is as good as the whole: --elstic means --elastic-...
    const std::size_t distance =
        std::min(edit_distance(name, long_name),
                 name.size() < 3 ? least : edit_distance(name, long_name.substr(0, name.size())));
    if (distance < least) {
      least = distance;
      best = long_name;
    }
  }
  return best.empty() ? "; see dtlaunch --help" : fmt::format("; did you mean --{}?", best);
}

/// The command line cut in two: options with their values, and the command.
struct Scan {
  po::parsed_options options;
  Words command;
};

class Scanner {
 public:
  Scanner(const po::options_description& table, const Words& words)
      : table_(table), words_(words), options_(&table) {}

  Result<Scan> scan() {
    while (at_ < words_.size()) {
      const std::string& word = words_[at_];
      if (word == "--") {
        ++at_;
        break;
      }
      if (word.size() < 2 || word[0] != '-') break;
      ++at_;
      auto done = word[1] == '-' ? long_option(word) : short_options(word);
      if (!done) return tl::unexpected(done.error());
    }
    Words command(words_.begin() + static_cast<std::ptrdiff_t>(at_), words_.end());
    return Scan{std::move(options_), std::move(command)};
  }

 private:
  Result<void> long_option(const std::string& word) {
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(2, equals == word.npos ? word.npos : equals - 2);
    const auto* option = table_.find_nothrow(name, false);
    if (!option)
      return fail(ErrorKind::kInvalid, "unknown option --{}{}", name, nearest(table_, name));
    if (equals == word.npos) return take_value(*option, "--" + name);
    if (!takes_value(*option))
      return fail(ErrorKind::kInvalid, "--{} takes no value: leave out \"{}\"", name,
                  word.substr(equals));
    return add(*option, word.substr(equals + 1));
  }

  /// -n2, -n 2, -qA, -qn 2.
  Result<void> short_options(const std::string& word) {
    for (std::size_t i = 1; i < word.size(); ++i) {
      const auto* option = table_.find_nothrow(std::string("-") + word[i], false);
      if (!option)
        return fail(ErrorKind::kInvalid, "unknown option {}{}",
                    i == 1 ? word : fmt::format("-{} in {}", word[i], word),
                    nearest(table_, word.substr(1)));
      if (!takes_value(*option)) {
        if (auto done = add(*option, std::nullopt); !done) return done;
        continue;
      }
      if (i + 1 < word.size()) return add(*option, word.substr(i + 1));
      return take_value(*option, std::string("-") + word[i]);
    }
    return {};
  }

  /// The option's value is the next word, if it takes one.
  Result<void> take_value(const po::option_description& option, const std::string& shown) {
    if (option.long_name() == kElastic) {
      // True or False is the value only when another word follows; the last word is the command.
      const bool is_value = at_ + 1 < words_.size() && truth(words_[at_]).has_value();
      return add(option, is_value ? words_[at_++] : "True");
    }
    if (!takes_value(option)) return add(option, std::nullopt);
    if (at_ == words_.size()) return fail(ErrorKind::kInvalid, "{} needs a value", shown);
    return add(option, words_[at_++]);
  }

  Result<void> add(const po::option_description& option, std::optional<std::string> value) {
    const std::string& name = option.long_name();
    const auto same = [&](const auto& o) { return o.string_key == name; };
    const bool again = std::any_of(options_.options.begin(), options_.options.end(), same);
    if (again && !value) return {};
    if (again && !is_repeatable(option))
      return fail(ErrorKind::kInvalid, "--{} is given twice", name);
    po::option parsed;
    parsed.string_key = name;
    if (value) parsed.value = {*value};
    options_.options.push_back(std::move(parsed));
    return {};
  }

  const po::options_description& table_;
  const Words& words_;
  std::size_t at_ = 0;
  po::parsed_options options_;
};

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
    std::uint64_t value = 0;
    const char* end = shown.data() + shown.size();
    const auto [stop, ec] = std::from_chars(shown.data(), end, value);
    if (ec != std::errc() || stop != end || value < least || value > most)
      return refuse("--{} {}: a number {} to {} was expected", name, shown, least, most);
    into = static_cast<T>(value);
  }

  /// Seconds, or a number with ms, s, m or h.
  void time(const char* name, double& into) {
    if (!has(name)) return;
    constexpr double kLongest = 49.0 * 24 * 3600;  // in milliseconds it fits into 32 bits
    const auto& shown = map_[name].as<std::string>();
    double value = 0;
    const char* end = shown.data() + shown.size();
    const auto [stop, ec] = std::from_chars(shown.data(), end, value);
    const std::string_view unit(stop, static_cast<std::size_t>(end - stop));
    const double scale = unit.empty() || unit == "s" ? 1
                         : unit == "ms"              ? 1e-3
                         : unit == "m"               ? 60
                         : unit == "h"               ? 3600
                                                     : 0;
    value *= scale;
    if (ec == std::errc() && std::isfinite(value) && value > kLongest)
      return refuse("--{} {}: at most 1176h (49 days) were expected", name, shown);
    if (ec != std::errc() || !std::isfinite(value) || !(value > 0))
      return refuse("--{} {}: a time was expected, such as 30, 500ms, 10m or 2h", name, shown);
    into = value;
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
  auto scan = Scanner(table, words).scan();
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
    if (given > (options.take_over ? 2 : 1) || !scan->command.empty())
      values.refuse("--resume takes the job as it was started: no command and no other options");
    if (values.error()) return tl::unexpected(*values.error());
    return options;
  }
  if (values.flag("take-over")) values.refuse("--take-over belongs to --resume");
  if (values.flag("dry-run")) options.wish = Wish::kDryRun;
  options.spec.command = std::move(scan->command);
  read_job(values, around, options);
  read_limits(values, options);
  read_data(values, around, options.spec);
  read_ssh(values, around, options.spec.ssh);
  read_times(values, options.spec);
  options.spec.quiet = values.flag("quiet");
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
  const std::size_t servers = options.num_servers.value_or(static_cast<std::uint32_t>(base.size()));
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

std::string help() {
  std::ostringstream out;
  out << "Usage: dtlaunch -n N [options] command [arguments]\n"
         "Runs command as N workers on this machine or, with -H, on hosts over ssh, beside the\n"
         "kvstore servers they exchange gradients through. Everything from the command's first\n"
         "word on belongs to the command; \"--\" ends the options.\n\n"
         "Examples:\n"
         "  dtlaunch -n 2 python train.py                      two workers on this machine\n"
         "  dtlaunch -n 2 -H hosts --elastic-training-enabled dttrain --network lenet\n"
         "  echo 10.0.1.9 >> host_worker                       one more, from the next epoch on\n"
         "  dtctl status                                       how the job in this folder is "
         "doing\n";
  for (const auto& group : groups()) out << "\n" << group;
  out << "\nCtrl-C stops the job; a second Ctrl-C kills it at once; a third leaves without "
         "waiting.\n"
         "\nExit codes:\n"
         "  0     every worker of the last view ended well (with --detach: the supervisor is "
         "ready)\n"
      << fmt::format(
             "  {:<5} wrong option or file, nothing was started\n"
             "  {:<5} a base host could not be reached or prepared\n"
             "  {:<5} a base worker did not reach its first epoch in time\n"
             "  {:<5} a kvstore server was lost and there was no checkpoint to go back to\n"
             "  {:<5} a job is running in this folder already\n"
             "  {:<5} the supervisor died and could not be restarted\n"
             "  {:<5} restart after restart and no epoch completed: do not requeue\n"
             "  {:<5} fewer workers than --min-workers for too long\n"
             "  {:<5} the command could not be executed\n"
             "  {:<5} stopped by Ctrl-C, TERM or dtctl stop\n",
             static_cast<int>(io::kExitUsage), static_cast<int>(io::kExitUnreachable),
             static_cast<int>(io::kExitStartTimeout), static_cast<int>(io::kExitServerLost),
             static_cast<int>(io::kExitJobRunning), static_cast<int>(io::kExitSupervisorLost),
             static_cast<int>(io::kExitNoProgress), static_cast<int>(io::kExitTooFewWorkers),
             static_cast<int>(io::kExitCommandFailed), static_cast<int>(io::kExitInterrupted))
      << "  else  the first failing worker's exit code, or 128 + the signal that killed it\n";
  return out.str();
}

}  // namespace dt::launcher
