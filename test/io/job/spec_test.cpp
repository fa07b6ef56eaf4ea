#include "io/job/spec.h"

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "test/support/catch.h"

using namespace dt;

TEST_CASE("job spec: words and values of any bytes come back as they were", "[job_spec]") {
  std::string bytes;
  for (int byte = 1; byte < 256; ++byte) bytes.push_back(static_cast<char>(byte));
  io::JobSpec spec;
  spec.command = {"train", bytes, "\xc3\xa4", ""};
  spec.env = {{"LATIN1", "\xe4"}, {"JSON", R"({"bytes":"e4"})"}};
  spec.cwd = "/data/\xff";
  spec.prepare_data = bytes;
  spec.replaced = {{"", "b", 0}, {"", "c", 22}};
  const auto back = io::spec_from_json(to_json(spec));
  INFO((back ? "" : back.error().message));
  REQUIRE(back);
  CHECK(back->command == spec.command);
  CHECK(back->env == spec.env);
  CHECK(back->cwd == spec.cwd);
  CHECK(back->prepare_data == bytes);
  CHECK(back->replaced == spec.replaced);
  CHECK(to_json(*back) == to_json(spec));
}

TEST_CASE("job spec: one of a version before this one is read", "[job_spec]") {
  // The keys of a spec at 1d23eb5.
  constexpr const char* kThen[] = {"job",
                                   "job_dir",
                                   "state_dir",
                                   "socket",
                                   "command",
                                   "cwd",
                                   "env",
                                   "env_server",
                                   "env_worker",
                                   "local",
                                   "elastic",
                                   "detached",
                                   "workers",
                                   "servers",
                                   "added",
                                   "known_hosts",
                                   "prepare_data",
                                   "require_prepared",
                                   "sync_dst_dir",
                                   "server_port",
                                   "interface",
                                   "transport",
                                   "data_auth",
                                   "deterministic",
                                   "refuse_nonfinite",
                                   "busy_poll_us",
                                   "server_device",
                                   "checkpoint_every",
                                   "keep_checkpoints",
                                   "restore",
                                   "restore_epoch",
                                   "max_restarts",
                                   "restart_refill_s",
                                   "max_futile_restarts",
                                   "min_workers",
                                   "min_workers_timeout_s",
                                   "max_workers",
                                   "start_timeout_s",
                                   "is_start_timeout_set",
                                   "prepare_timeout_s",
                                   "leave_timeout_s",
                                   "stop_timeout_s",
                                   "orphan_timeout_s",
                                   "boundary_timeout_s",
                                   "hang_timeout_s",
                                   "suspect_after_s",
                                   "dead_after_s",
                                   "poll_interval_s",
                                   "ssh",
                                   "quiet",
                                   "prefix"};
  io::JobSpec spec;
  spec.job = "old";
  spec.no_shared_folder = true;
  const auto now = nlohmann::json::parse(to_json(spec));
  nlohmann::json then;
  for (const char* name : kThen)
    if (name != std::string_view("local")) then[name] = now.at(name);
  for (const bool local : {true, false}) {
    then["local"] = local;  // before there was "launcher"
    const auto back = io::spec_from_json(then.dump());
    INFO((back ? "" : back.error().message));
    REQUIRE(back);
    CHECK(back->job == "old");
    CHECK(back->launcher == (local ? StarterKind::kLocal : StarterKind::kSsh));
    CHECK_FALSE(back->no_shared_folder);
  }
}

TEST_CASE("job spec: whose output is shown may be left open", "[job_spec]") {
  io::JobSpec spec;
  for (const auto shown :
       {std::optional<io::ShownOutput>(), std::optional(io::ShownOutput::kNone)}) {
    spec.shown_output = shown;
    const auto back = io::spec_from_json(to_json(spec));
    REQUIRE(back);
    CHECK((back->shown_output == shown));
  }
}

TEST_CASE("job spec: the way to reach hosts is kept, and an unknown one is refused", "[job_spec]") {
  for (const StarterKind kind : kStarterKinds) {
    io::JobSpec spec;
    spec.launcher = kind;
    spec.allocation = AllocatedNodes{kind, "41", {{"n1", "10.0.0.1"}}};
    spec.rsh = "r {host} {command}";
    spec.rsh_binary = true;
    const auto back = io::spec_from_json(to_json(spec));
    REQUIRE(back);
    CHECK(back->launcher == kind);
    CHECK(io::starter_for(*back, kind) == io::starter_for(spec, kind));
    CHECK(io::way_to(*back, Host{"", "n1", 0}) == kind);
  }
  auto tree = nlohmann::json::parse(to_json(io::JobSpec()));
  tree["launcher"] = "pigeon";
  const auto refused = io::spec_from_json(tree.dump());
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message == "job spec: pigeon is no launcher");
}

TEST_CASE("job spec: what hosts that are added have to be like", "[job_spec]") {
  io::JobSpec spec;
  CHECK_FALSE(io::spec_from_json(to_json(spec))->preflight);
  spec.preflight = preflight::Reference{{"u", "n1", 22},
                                        {"/bin/python3", "3.11", "ab", "", {{"a.py", "cd", ""}}},
                                        {{"A100", "A100"}, "535.1", {}},
                                        96};
  const auto back = io::spec_from_json(to_json(spec));
  REQUIRE(back);
  CHECK(back->preflight == spec.preflight);
}

TEST_CASE("job spec: what is no spec is refused with the reason", "[job_spec]") {
  for (const char* text : {"", "{", "[]", "{}", R"({"job":1})", R"({"job":{"bytes":"zz"}})"}) {
    const auto spec = io::spec_from_json(text);
    REQUIRE_FALSE(spec);
    CHECK(spec.error().message.starts_with("job spec: "));
  }
}

TEST_CASE("job spec: a number that does not fit is refused", "[job_spec]") {
  const auto with = [](std::string_view name, std::string_view number) {
    std::string text = to_json(io::JobSpec());
    const std::string key = fmt::format("\"{}\": ", name);
    const auto at = text.find(key);
    REQUIRE(at != std::string::npos);
    const auto value = at + key.size();
    return text.replace(value, text.find_first_of(",\n", value) - value, number);
  };
  CHECK(io::spec_from_json(with("keep_checkpoints", "4294967295")));
  for (const char* number : {"1e300", "-1", "0.5", "4294967296"})
    CHECK_FALSE(io::spec_from_json(with("keep_checkpoints", number)));
  for (const char* name : {"port", "server_port"}) {
    CHECK(io::spec_from_json(with(name, "65535")));
    for (const char* number : {"70000", "-1", "22.5"})
      CHECK_FALSE(io::spec_from_json(with(name, number)));
  }
}

TEST_CASE("job spec: one that is nested a million deep is refused", "[job_spec]") {
  constexpr std::size_t kDepth = 1'000'000;
  const std::string deep = std::string(kDepth, '[') + std::string(kDepth, ']');
  CHECK_FALSE(io::spec_from_json(deep));
  CHECK_FALSE(io::spec_from_json("{\"env\":" + deep + "}"));
}

TEST_CASE("job spec: without HOME the state lies in the home folder all the same", "[job_spec]") {
  const char* home = std::getenv("HOME");
  const std::string before = home ? home : "";
  const char* state = std::getenv("XDG_STATE_HOME");
  const std::string state_before = state ? state : "";
  ::unsetenv("XDG_STATE_HOME");
  ::unsetenv("HOME");
  const std::string folder = io::default_state_dir("j");
  if (home) ::setenv("HOME", before.c_str(), 1);
  if (state) ::setenv("XDG_STATE_HOME", state_before.c_str(), 1);
  // A folder in /tmp would belong to the user who made its parent first.
  CHECK_FALSE(folder.starts_with("/tmp/"));
  CHECK(folder.ends_with("/.local/state/dtlaunch/j"));
}
