#include "launcher/cli/launch_options.h"

#include <unistd.h>

#include <cstdlib>
#include <map>

#include "launcher/last_job.h"
#include "test/support/catch.h"

using namespace dt;
using io::Words;
using namespace std::chrono_literals;

namespace {

Result<launcher::Options> parse(const Words& words) {
  launcher::Environment around;
  around.cwd = "/job";
  around.version = "dtlaunch 1\n";
  around.variable = [](const std::string& name) -> std::optional<std::string> {
    if (name == "HERE") return "here's \"it\"\n";
    if (name == "EMPTY") return "";
    return std::nullopt;
  };
  return launcher::parse_options(words, around);
}

launcher::Options good(const Words& words) {
  auto options = parse(words);
  INFO((options ? "" : options.error().message));
  REQUIRE(options);
  return *options;
}

std::string error_of(const Words& words) {
  const auto options = parse(words);
  return options ? "no error" : options.error().message;
}

Result<io::JobSpec> try_plan(const Words& words, std::string_view hosts) {
  const auto options = good(words);
  auto lines = parse_hosts(hosts, options.hostfile);
  if (!lines) return tl::unexpected(lines.error());
  const auto nowhere = [](const std::string&) { return std::optional<std::string>(); };
  const auto placement = launcher::find_placement(
      {options.launcher, options.hostfile, std::move(*lines)}, {nowhere, {}, {}});
  return launcher::plan(options, *placement);
}

io::JobSpec planned(const Words& words, std::string_view hosts) {
  auto spec = try_plan(words, hosts);
  INFO((spec ? "" : spec.error().message));
  REQUIRE(spec);
  return *spec;
}

std::string names(const std::vector<Host>& hosts) {
  std::string out;
  for (const auto& host : hosts) out += to_string(host) + " ";
  return out;
}

}  // namespace

TEST_CASE("options: everything from the command's first word on is the command", "[options]") {
  struct Row {
    Words words;
    Words command;
  };
  const auto row = GENERATE(values<Row>({
      {{"-n", "2", "train"}, {"train"}},
      {{"-n2", "train", "-n", "3"}, {"train", "-n", "3"}},
      {{"-n", "2", "train", "--elastic-training-enabled"}, {"train", "--elastic-training-enabled"}},
      {{"-n", "2", "train", "--", "x"}, {"train", "--", "x"}},
      {{"-n", "2", "--", "train", "x"}, {"train", "x"}},
      {{"-n", "2", "--", "-n", "x"}, {"-n", "x"}},
      {{"-n", "2", "--", "--"}, {"--"}},
      {{"-n", "2", "-q", "-"}, {"-"}},
      {{"-n", "2", "a b", "c 'd' \"e\"", "", "f\ng", "$h"},
       {"a b", "c 'd' \"e\"", "", "f\ng", "$h"}},
      {{"-n", "2", "python train.py --x 1"}, {"python train.py --x 1"}},
      {{"--num-workers=2", "-qA", "train", "-q"}, {"train", "-q"}},
  }));
  CAPTURE(row.words);
  CHECK(good(row.words).spec.command == row.command);
  CHECK(good(row.words).num_workers == 2);
}

TEST_CASE("options: True and False are --elastic-training-enabled's value only when a word follows",
          "[options]") {
  struct Row {
    Words words;
    bool elastic;
    Words command;
  };
  const auto row = GENERATE(values<Row>({
      {{"-n", "1", "t"}, false, {"t"}},
      {{"-n", "1", "--elastic-training-enabled", "t"}, true, {"t"}},
      {{"-n", "1", "--elastic-training-enabled", "t", "True"}, true, {"t", "True"}},
      {{"-n", "1", "--elastic-training-enabled", "True", "t"}, true, {"t"}},
      {{"-n", "1", "--elastic-training-enabled", "true", "t", "x"}, true, {"t", "x"}},
      {{"-n", "1", "--elastic-training-enabled", "TRUE", "t"}, true, {"t"}},
      {{"-n", "1", "--elastic-training-enabled", "1", "t"}, true, {"t"}},
      {{"-n", "1", "--elastic-training-enabled", "False", "t"}, false, {"t"}},
      {{"-n", "1", "--elastic-training-enabled", "fAlSe", "t"}, false, {"t"}},
      {{"-n", "1", "--elastic-training-enabled", "0", "t"}, false, {"t"}},
      {{"-n", "1", "--elastic-training-enabled", "true"}, true, {"true"}},
      {{"-n", "1", "--elastic-training-enabled", "false"}, true, {"false"}},
      {{"-n", "1", "--elastic-training-enabled", "1"}, true, {"1"}},
      {{"--elastic-training-enabled", "False", "-n", "1", "t"}, false, {"t"}},
      {{"--elastic-training-enabled", "-n", "1", "t"}, true, {"t"}},
      {{"-n", "1", "--elastic-training-enabled", "True", "--", "t"}, true, {"t"}},
      {{"-n", "1", "--elastic-training-enabled", "--", "True"}, true, {"True"}},
      {{"-n", "1", "--elastic-training-enabled=False", "t"}, false, {"t"}},
      {{"-n", "1", "--elastic-training-enabled=1", "t"}, true, {"t"}},
      {{"-n", "1", "--elastic-training-enabled", "2", "t"}, true, {"2", "t"}},
      {{"-n", "1", "--elastic-training-enabled", "yes", "t"}, true, {"yes", "t"}},
  }));
  CAPTURE(row.words);
  const auto options = good(row.words);
  CHECK(options.spec.elastic == row.elastic);
  CHECK(options.spec.command == row.command);
}

TEST_CASE("options: a mistake is named with its remedy", "[options]") {
  struct Row {
    Words words;
    std::string expected;
  };
  const auto row = GENERATE(values<Row>({
      {{"t"}, "-n is missing"},
      {{"-n", "2"}, "the command to run is missing"},
      {{"-n", "2", "--"}, "the command to run is missing"},
      {{"-n", "2", ""}, "the command to run is missing"},
      {{"-n"}, "-n needs a value"},
      {{"-qn"}, "-n needs a value"},
      {{"--hostfile"}, "--hostfile needs a value"},
      {{"-n", "2", "--elastic-training-enabled"}, "the command to run is missing"},
      {{"-n", "0", "t"}, "--num-workers 0: a number 1 to 65536 was expected"},
      {{"-n", "-1", "t"}, "--num-workers -1: a number 1 to"},
      {{"-n", "two", "t"}, "--num-workers two: a number"},
      {{"-n", "2x", "t"}, "--num-workers 2x: a number"},
      {{"-n", "99999999999999999999999", "t"}, "a number 1 to 65536"},
      {{"-n", "1", "-n", "2", "t"}, "--num-workers is given twice"},
      {{"-n", "1", "-s", "-2", "t"}, "--num-servers -2: a number 0 to"},
      {{"--elastic-training-enable", "t"},
       "unknown option --elastic-training-enable; did you mean --elastic-training-enabled?"},
      {{"--elstic", "t"}, "did you mean --elastic-training-enabled?"},
      {{"--host-file", "h", "t"}, "unknown option --host-file; did you mean --hostfile?"},
      {{"--num-worker=2", "t"}, "unknown option --num-worker; did you mean --num-workers?"},
      {{"--frobnicate", "t"}, "unknown option --frobnicate; see dtlaunch --help"},
      {{"--foo", "t"}, "unknown option --foo; see dtlaunch --help"},
      {{"--vers", "t"}, "unknown option --vers; did you mean --version? See dtlaunch --help"},
      {{"--qiuet", "t"}, "unknown option --qiuet; did you mean --quiet? See dtlaunch --help"},
      {{"-v", "t"}, "unknown option -v; see dtlaunch --help"},
      {{"-x", "t"}, "unknown option -x"},
      {{"-qx", "t"}, "unknown option -x in -qx"},
      {{"-n", "1", "--quiet=yes", "t"}, "--quiet takes no value: leave out \"=yes\""},
      {{"-n", "1", "--elastic-training-enabled=maybe", "t"}, "True or False was expected"},
      {{"-n", "1", "--launcher", "ssh", "t"}, "--launcher ssh needs hosts: give -H FILE"},
      {{"-n", "1", "--launcher", "pbs", "t"},
       "--launcher pbs: one of ssh, local, slurm, sge, mpi, kubernetes, command was expected"},
      {{"-n", "1", "--transport", "udp", "t"}, "one of auto, tcp, shm was expected"},
      {{"-n", "1", "--data-auth", "none", "t"}, "one of auto, frames, handshake was expected"},
      {{"-n", "1", "--server-device", "gpu", "t"}, "'gpu' is none of cpu, auto, cuda:0"},
      {{"-n", "1", "--ssh-known-hosts", "no", "t"}, "one of strict, accept-new, off"},
      {{"-n", "1", "--ssh-port", "0", "t"}, "--ssh-port 0: a number 1 to 65535"},
      {{"-n", "1", "--server-port", "70000", "t"}, "a number 1 to 65535"},
      {{"-n", "1", "--start-timeout", "soon", "t"}, "a time was expected, such as 30, 500ms"},
      {{"-n", "1", "--start-timeout", "0", "t"}, "a time was expected"},
      {{"-n", "1", "--start-timeout", "-5", "t"}, "a time was expected"},
      {{"-n", "1", "--start-timeout", "inf", "t"}, "a time was expected"},
      {{"-n", "1", "--start-timeout", "nan", "t"}, "a time was expected"},
      {{"-n", "1", "--start-timeout", "5 d", "t"}, "a time was expected"},
      {{"-n", "1", "--env", "1X=2", "t"}, "--env 1X=2: NAME or NAME=VALUE was expected"},
      {{"-n", "1", "--env", "A:2", "t"}, "--env A:2: NAME or NAME=VALUE was expected"},
      {{"-n", "1", "--env", "=2", "t"}, "NAME or NAME=VALUE"},
      {{"-n", "1", "--env", "GONE", "t"}, "GONE is not set here; write GONE=VALUE"},
      {{"-n", "1", "--env", "DT_RANK=1", "t"}, "names that begin with DT_ are dtlaunch's own"},
      {{"-n", "1", "--sync-dst-dir", "x", "t"}, "give the folder with its full path"},
      {{"-n", "1", "--hostfile=", "t"}, "--hostfile is empty"},
      {{"--resume", "d", "-n", "1"}, "--resume takes the job as it was started"},
      {{"--resume", "d", "t"}, "--resume takes the job as it was started"},
      {{"-n", "2", "--min-workers", "3", "t"}, "--min-workers 3: the job starts with -n 2"},
      {{"-n", "2", "--min-workers", "0", "t"}, "--min-workers 0: a number 1 to"},
      {{"-n", "2", "--elastic-training-enabled", "--max-workers=1", "t"},
       "--max-workers 1: the job starts with -n 2"},
      {{"-n", "2", "--elastic-training-enabled", "--min-workers=5", "--max-workers=4", "t"},
       "--min-workers 5 is more than --max-workers 4"},
      {{"-n", "2", "--max-workers", "4", "t"}, "--max-workers needs --elastic-training-enabled"},
      {{"-n", "2", "--min-workers-timeout", "4", "t"}, "no meaning without --min-workers"},
      {{"-n", "2", "--change-settle", "4", "t"}, "no meaning without --on-change restart"},
      {{"-n", "2", "--on-change", "restart", "-s", "1", "t"}, "-s 1 and --on-change restart"},
      {{"-n", "2", "--on-change=restart", "--dmlc-roles", "t"}, "--dmlc-roles and --on-change"},
      {{"-n", "1", "--keep-checkpoints", "0", "t"}, "--keep-checkpoints 0: a number 1 to"},
      {{"-n", "1", "--checkpoint-every", "2", "--checkpoint-interval", "5m", "t"},
       "--checkpoint-every counts epochs and knows no --checkpoint-interval"},
      {{"-n", "1", "--log-limit", "5 GB", "t"}, "--log-limit 5 GB: a size was expected"},
      {{"-n", "1", "--log-limit", "20000000000G", "t"}, "a size was expected"},
      {{"-n", "1", "--env-file", "f", "t"}, "--env-file belongs to --resume"},
  }));
  CAPTURE(row.words);
  CHECK_THAT(error_of(row.words), Catch::Matchers::Contains(row.expected));
}

TEST_CASE("options: every option reaches the spec", "[options]") {
  const auto o = good({"-n",
                       "3",
                       "-s",
                       "0",
                       "-H",
                       "hosts",
                       "--launcher=local",
                       "--job-dir",
                       "sub",
                       "--detach",
                       "--sync-dst-dir=/dst",
                       "--env=HERE",
                       "--env",
                       "EMPTY",
                       "--env",
                       "A=b=c d",
                       "--env",
                       "BASH_FUNC_ml%%=() { :; }",
                       "--env-server",
                       "S=1",
                       "--env-worker=W=",
                       "--prepare-data",
                       "wget 'x y'",
                       "--require-prepared",
                       "--ssh-port=2222",
                       "--ssh-user",
                       "bob",
                       "-i",
                       "key",
                       "-i/abs/key",
                       "--ssh-config=none",
                       "--ssh-known-hosts=strict",
                       "-A",
                       "--ssh-connect-timeout=500ms",
                       "--server-port",
                       "9000",
                       "--interface",
                       "eth1",
                       "--transport",
                       "shm",
                       "--data-auth=frames",
                       "--deterministic",
                       "--refuse-nonfinite",
                       "--server-device=cuda:1",
                       "--busy-poll=50",
                       "--max-restarts=0",
                       "--restart-refill=2h",
                       "--max-futile-restarts=9",
                       "--elastic-training-enabled=True",
                       "--min-workers=2",
                       "--max-workers=5",
                       "--min-workers-timeout=9",
                       "--start-timeout=2m",
                       "--prepare-timeout=1h",
                       "--leave-timeout",
                       "1.5",
                       "--stop-timeout=3s",
                       "--orphan-timeout=4",
                       "--boundary-timeout=5",
                       "--hang-timeout=6",
                       "--suspect-after=7",
                       "--server-dead-after=9",
                       "--dead-after=8",
                       "--poll-interval=0.25",
                       "--output=lead",
                       "--no-prefix",
                       "-q",
                       "t"});
  const auto& spec = o.spec;
  CHECK(o.num_workers == 3);
  CHECK(o.num_servers == 0U);
  CHECK(o.hostfile == "hosts");
  CHECK(io::is_local(spec));
  CHECK(spec.job_dir == "/job/sub");
  CHECK(spec.detached);
  CHECK(spec.sync_dst_dir == "/dst");
  CHECK(spec.cwd == "/dst");
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  CHECK(spec.env == Pairs{{"HERE", "here's \"it\"\n"},
                          {"EMPTY", ""},
                          {"A", "b=c d"},
                          {"BASH_FUNC_ml%%", "() { :; }"}});
  CHECK(spec.env_server == Pairs{{"S", "1"}});
  CHECK(spec.env_worker == Pairs{{"W", ""}});
  CHECK(spec.prepare_data == "wget 'x y'");
  CHECK(spec.require_prepared);
  CHECK(spec.ssh.port == 2222);
  CHECK(spec.ssh.user == "bob");
  CHECK(spec.ssh.identities == Words{"/job/key", "/abs/key"});
  CHECK(spec.ssh.config_file == "none");
  CHECK(spec.ssh.known_hosts == io::HostKeyPolicy::kStrict);
  CHECK(spec.ssh.forward_agent);
  CHECK(spec.ssh.connect_timeout == 500ms);
  CHECK(spec.data.server_port == 9000);
  CHECK(spec.data.interface == "eth1");
  CHECK(spec.data.transport == "shm");
  CHECK(spec.data.data_auth == "frames");
  CHECK(spec.data.deterministic);
  CHECK(spec.data.refuse_nonfinite);
  CHECK(spec.data.server_device == "cuda:1");
  CHECK(spec.data.busy_poll_us == 50);
  CHECK(spec.rules.max_restarts == 0);
  CHECK(spec.rules.restart_refill == 2h);
  CHECK(spec.rules.max_futile_restarts == 9);
  CHECK(spec.elastic);
  CHECK(spec.rules.limits.least == 2);
  CHECK(spec.rules.limits.most == 5);
  CHECK(spec.rules.min_workers_timeout == 9s);
  CHECK(spec.rules.start_timeout == 120s);
  CHECK(spec.rules.is_start_timeout_set);
  CHECK(spec.prepare_timeout == 1h);
  CHECK(spec.rules.leave_timeout == 1500ms);
  CHECK(spec.rules.stop_grace == 3s);
  CHECK(spec.rules.orphan_timeout == 4s);
  CHECK(spec.rules.boundary_timeout == 5s);
  CHECK(spec.rules.hang_timeout == 6s);
  CHECK(spec.rules.liveness.suspect_after == 7s);
  CHECK(spec.rules.liveness.dead_after == 8s);
  CHECK(spec.rules.server_dead_after == 9s);
  CHECK(spec.poll_interval == 250ms);
  CHECK(spec.shown_output == io::ShownOutput::kLead);
  CHECK_FALSE(spec.prefix);
  CHECK(spec.quiet);
}

TEST_CASE("options: without a word of them the defaults are those of the spec", "[options]") {
  const auto spec = good({"-n", "1", "t"}).spec;
  io::JobSpec expected;
  expected.launcher = StarterKind::kLocal;
  expected.command = {"t"};
  expected.cwd = "/job";
  expected.job_dir = "/job";
  expected.rules.checkpoint_interval = 60s;  // not in specs of earlier versions
  CHECK(to_json(spec) == to_json(expected));
}

TEST_CASE("options: --help and --version need nothing else and win", "[options]") {
  CHECK(good({"-h"}).answer.value().starts_with("Usage: dtlaunch"));
  CHECK(good({"--help", "-n", "0"}).answer == good({"-h"}).answer);
  CHECK(good({"--version"}).answer == "dtlaunch 1\n");
  CHECK(good({"-n", "1", "--dry-run", "t"}).action == launcher::Action::kDryRun);
  CHECK(good({"-n", "1", "t", "-h"}).action == launcher::Action::kRun);
}

TEST_CASE("options: --completion prints both programs' words for a shell that is known",
          "[options]") {
  const auto text = good({"--completion", "bash"}).answer.value();
  for (const char* line : {"\ncomplete -F _dtlaunch dtlaunch\n", "\ncomplete -F _dtctl dtctl\n"})
    CHECK_THAT(text, Catch::Matchers::Contains(line));
  CHECK(good({"--completion", "bash", "-h"}).answer == good({"-h"}).answer);
  CHECK(error_of({"--completion", "zsh"}) == "--completion zsh: one of bash was expected");
}

TEST_CASE("options: --resume takes a folder and nothing else", "[options]") {
  const auto options = good({"--resume", "folder"});
  CHECK(options.action == launcher::Action::kResume);
  CHECK(options.resume == "/job/folder");
  CHECK(good({"--resume=/abs"}).resume == "/abs");
  CHECK(good({"--resume", ".", "--detach"}).spec.detached);
}

TEST_CASE("options: the help names every exit code and the options people look for", "[options]") {
  const auto text = good({"--help"}).answer.value();
  for (const char* word :
       {"--num-workers", "--hostfile", "--elastic-training-enabled", "Examples", "Ctrl-C", "  65 ",
        "  66 ", "  67 ", "  68 ", "  69 ", "  70 ", "  71 ", "  72 ", "  74 ", "  127 ", "  130 "})
    CHECK_THAT(text, Catch::Matchers::Contains(word));
}

TEST_CASE("plan: workers by slots, servers over the hosts that got workers", "[options]") {
  const std::string hosts = "u@a:22 slots=2\nb\nc slots=2\n";
  auto spec = planned({"-n", "4", "-H", "hosts", "t"}, hosts);
  CHECK_FALSE(io::is_local(spec));
  CHECK(names(spec.workers) == "u@a:22 u@a:22 b c ");
  CHECK(names(spec.servers) == "u@a:22 b c ");
  CHECK(names(spec.known_hosts) == "u@a:22 b c ");

  spec = planned({"-n", "2", "-H", "hosts", "t"}, hosts);
  CHECK(names(spec.servers) == "u@a:22 b ");
  CHECK(names(spec.known_hosts) == "u@a:22 b c ");

  CHECK(planned({"-n", "2", "-s", "0", "-H", "hosts", "t"}, hosts).servers.empty());
  CHECK(planned({"-n", "2", "--on-change=restart", "-H", "hosts", "t"}, hosts).servers.empty());
  CHECK(names(planned({"-n", "2", "-s", "5", "-H", "hosts", "t"}, hosts).servers) ==
        "u@a:22 b u@a:22 b u@a:22 ");
  CHECK(names(planned({"-n", "3", "-H", "hosts", "t"}, "a\na\n").workers) == "a a a ");
}

TEST_CASE("plan: without a hosts file everything is on this machine", "[options]") {
  const auto spec = planned({"-n", "3", "t"}, "");
  CHECK(io::is_local(spec));
  CHECK(names(spec.workers) == "localhost localhost localhost ");
  CHECK(names(spec.servers) == "localhost ");
}

TEST_CASE("plan: what cannot be placed is refused with file and numbers", "[options]") {
  const auto refusal = [](const Words& words, std::string_view hosts) {
    const auto spec = try_plan(words, hosts);
    return spec ? "no error" : spec.error().message;
  };
  CHECK(refusal({"-n", "4", "-H", "h", "t"}, "a slots=2\nb\n")
            .find("h: 4 workers were asked for but the hosts have 3 slots") == 0);
  CHECK(refusal({"-n", "1", "--sync-dst-dir", "/d", "t"}, "")
            .starts_with("--sync-dst-dir /d copies the folder to other hosts"));
  CHECK(refusal({"-n", "1", "--sync-dst-dir", "/d", "-H", "h", "t"}, "a\n") == "no error");
  CHECK(refusal({"-n", "1", "-H", "h", "t"}, "a\nb\nc d\n").find("h:3:3: ") == 0);
}

TEST_CASE("options: workers have time between a notice and TERM", "[options]") {
  using std::chrono_literals::operator""s;
  const auto margin = [](Words words) {
    words.insert(words.begin(), {"-n", "1"});
    words.emplace_back("t");
    return good(words).spec.rules.notice_margin;
  };
  CHECK(margin({}) == 10s);
  CHECK(margin({"--notice-grace", "8s"}) == 4s);
  CHECK(margin({"--notice-grace", "8s", "--notice-margin", "7s"}) == 7s);
  CHECK(error_of({"-n", "1", "--notice-grace", "8s", "--notice-margin", "8s", "t"})
            .starts_with("--notice-margin 8 s is not shorter than --notice-grace 8 s"));
  CHECK(error_of({"-n", "1", "--requeue", "t"}).starts_with("--requeue: this is no Slurm job"));
}

TEST_CASE("options: --check needs neither -n nor a command, and gives every host a place",
          "[options]") {
  const auto options = good({"--check", "full", "-H", "hosts", "--check-file", "a", "--json"});
  CHECK(options.action == launcher::Action::kCheck);
  CHECK(options.check == "full");
  CHECK(options.check_files == Words{"a"});
  const auto spec = planned({"--check", "quick", "-H", "hosts"}, "a\nb slots=2\nc\n");
  CHECK(names(spec.workers) == "a b c ");
  CHECK(names(spec.servers) == "a b c ");
  CHECK(good({"-n", "2", "--preflight", "quick", "t"}).action == launcher::Action::kRun);
  CHECK(error_of({"--check", "half"}) == "--check half: one of quick, full was expected");
  CHECK(error_of({"--preflight", "quick", "t"}) == "-n is missing: how many workers are wanted?");
  CHECK(error_of({"--check", "quick", "--preflight", "quick"}) ==
        "--check starts no job, and --preflight is before one: give one of them");
  CHECK(error_of({"-n", "1", "--json", "t"}) == "--json has no meaning without --check");
  CHECK(error_of({"-n", "1", "--check-file", "f", "t"}) ==
        "--check-file has no meaning without --check or --preflight");
}

TEST_CASE("options: a home folder that the shell did not see is left for later", "[options]") {
  const auto ssh = good({"-n", "1", "--ssh-identity=~/key", "--ssh-config=~/config", "t"}).spec.ssh;
  CHECK(ssh.identities == Words{"~/key"});
  CHECK(ssh.config_file == "~/config");
}

TEST_CASE("options: a time has to fit into 32 bits of milliseconds", "[options]") {
  CHECK(good({"-n", "1", "--orphan-timeout", "1176h", "t"}).spec.rules.orphan_timeout == 1176h);
  CHECK(error_of({"-n", "1", "--orphan-timeout", "1177h", "t"}) ==
        "--orphan-timeout 1177h: at most 1176h (49 days) were expected");
}

TEST_CASE("plan: servers whose ports would not be ports are refused", "[options]") {
  const Words words = {"-n", "2", "-s", "3", "-H", "h", "--server-port", "65534", "t"};
  CHECK(names(planned(words, "a\nb\n").servers) == "a b a ");
  const auto spec = try_plan(words, "a slots=2\n");
  REQUIRE_FALSE(spec);
  CHECK(spec.error().message ==
        "--server-port 65534: host a gets 3 servers, which need ports up to 65536; give 65533 or "
        "less");
}

TEST_CASE("options: checkpoints are saved by time unless epochs are asked for", "[options]") {
  CHECK(good({"-n", "1", "t"}).spec.rules.checkpoint_interval == 60s);
  CHECK(good({"-n", "1", "--checkpoint-interval", "5m", "t"}).spec.rules.checkpoint_interval ==
        5min);
  for (const char* every : {"0", "3"}) {
    const io::JobSpec spec = good({"-n", "1", "--checkpoint-every", every, "t"}).spec;
    CHECK(spec.rules.checkpoint_interval == 0s);
    CHECK(io::saves_checkpoints(spec) == (spec.rules.checkpoint_every == 3));
  }
  CHECK(good({"-n", "1", "--log-limit", "2G", "t"}).spec.log_limit == std::uint64_t{2} << 30);
}

TEST_CASE("options: by default a server per host, up to 64", "[options]") {
  CHECK(planned({"-n", "64", "-H", "hosts", "t"}, "h[1-100]\n").servers.size() == 64);
  CHECK(planned({"-n", "100", "-H", "hosts", "t"}, "h[1-100]\n").servers.size() == 64);
  CHECK(planned({"-n", "100", "-s", "100", "-H", "hosts", "t"}, "h[1-100]\n").servers.size() ==
        100);
}

TEST_CASE("resume: values of --env are found beside the journal's, in a file or the environment",
          "[resume]") {
  launcher::LastJob job;
  job.pointer.master = "10.0.0.1";
  job.spec.job = "j";
  job.spec.env = {{"KEY", ""}, {"HERE", ""}};
  job.spec.env_worker = {{"OTHER", ""}};
  job.spec.is_env_elsewhere = true;
  const auto variable = [](const std::string& name) {
    return name == "HERE" ? std::optional<std::string>("here") : std::nullopt;
  };
  launcher::LastJob poor = job;
  const auto missing = launcher::find_env_values(poor, "", variable);
  REQUIRE_FALSE(missing);
  CHECK(missing.error().message.find("values of KEY, OTHER, which lie on the master 10.0.0.1") !=
        std::string::npos);
  char file[] = "/tmp/dt-env-XXXXXX";
  const int fd = ::mkstemp(file);
  REQUIRE(fd >= 0);
  const std::string text = "# secrets\nKEY=a=b\nOTHER=\n";
  REQUIRE(::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  ::close(fd);
  CHECK(launcher::find_env_values(job, file, variable));
  ::unlink(file);
  CHECK(job.spec.env ==
        std::vector<std::pair<std::string, std::string>>{{"KEY", "a=b"}, {"HERE", "here"}});
  CHECK_FALSE(job.spec.is_env_elsewhere);
}
