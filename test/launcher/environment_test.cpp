#include "launcher/environment.h"

#include <map>

#include "test/support/catch.h"

using namespace dt;

namespace {

using Variables = std::map<std::string, std::string>;

io::JobSpec a_spec() {
  io::JobSpec spec;
  spec.job = "j1";
  spec.rules.start_timeout = std::chrono::seconds(600);
  spec.rules.boundary_timeout = std::chrono::milliseconds(1500);
  return spec;
}

launcher::ProcessFacts facts_of(Role role, std::uint32_t id) {
  launcher::ProcessFacts facts;
  facts.process = {role, id};
  facts.host = {"u", "node7", 2222};
  facts.address = "10.0.0.7";
  facts.secret = "5ec2e7";
  facts.num_workers = 3;
  facts.num_servers = 2;
  facts.root = {"10.0.0.1", 9091};
  facts.master = {"10.0.0.2", 29500};
  return facts;
}

Variables env_of(const io::JobSpec& spec, const launcher::ProcessFacts& facts) {
  const auto pairs = launcher::environment(spec, facts);
  Variables vars(pairs.begin(), pairs.end());
  CHECK(vars.size() == pairs.size());  // each name once
  return vars;
}

}  // namespace

TEST_CASE("environment: a base worker gets the names of the three worlds", "[environment]") {
  auto facts = facts_of(Role::kWorker, 4);
  facts.rank = Rank(2);
  facts.slot = 1;
  facts.local_world_size = 2;
  facts.group_rank = 1;
  facts.group_world_size = 2;
  const Variables expected = {
      {"DMLC_ROLE", "worker"},
      {"DMLC_PS_ROOT_URI", "10.0.0.1"},
      {"DMLC_PS_ROOT_PORT", "9091"},
      {"DMLC_NUM_WORKER", "3"},
      {"DMLC_NUM_SERVER", "2"},
      {"DMLC_NODE_HOST", "10.0.0.7"},
      {"DMLC_WORKER_ID", "4"},
      {"PS_VERBOSE", "0"},
      {"RANK", "2"},
      {"WORLD_SIZE", "3"},
      {"LOCAL_RANK", "1"},
      {"LOCAL_WORLD_SIZE", "2"},
      {"MASTER_ADDR", "10.0.0.2"},
      {"MASTER_PORT", "29500"},
      {"DT_JOB", "j1"},
      {"DT_HOST", "u@node7:2222"},
      {"DT_ROLE", "worker"},
      {"DT_WORKER_ID", "4"},
      {"DT_SECRET", "5ec2e7"},
      {"DT_NUM_SERVERS", "2"},
      {"DT_NUM_WORKERS", "3"},
      {"DT_RANK", "2"},
      {"DT_SLOT", "1"},
      {"DT_EPOCH", "0"},
      {"DT_NEWCOMER", "0"},
      {"DT_BIND", "10.0.0.7"},
      {"DT_TRANSPORT", "auto"},
      {"DT_DATA_AUTH", "auto"},
      {"DT_DETERMINISTIC", "0"},
      {"DT_NO_PYTHON", "0"},
      {"DT_REFUSE_NONFINITE", "0"},
      {"DT_BUSY_POLL_US", "0"},
      {"DT_START_TIMEOUT", "600"},
      {"DT_SERVER_DEAD_AFTER", "3"},
      {"DT_BOUNDARY_TIMEOUT", "1.5"},
      {"DT_ORPHAN_TIMEOUT", "300"},
      {"OMP_WAIT_POLICY", "PASSIVE"},
      {"PYTHONUNBUFFERED", "1"},
      {"MALLOC_TRIM_THRESHOLD_", "1073741824"},
      {"MALLOC_MMAP_THRESHOLD_", "33554432"},
      {"TORCHELASTIC_RUN_ID", "j1"},
      {"TORCHELASTIC_RESTART_COUNT", "0"},
      {"TORCHELASTIC_MAX_RESTARTS", "0"},
      {"GROUP_RANK", "1"},
      {"GROUP_WORLD_SIZE", "2"},
      {"ROLE_RANK", "2"},
      {"ROLE_WORLD_SIZE", "3"},
      {"ROLE_NAME", "default"},
  };
  CHECK(env_of(a_spec(), facts) == expected);
}

TEST_CASE("environment: --dmlc-roles gives each role what dmlc's own tracker gives it",
          "[environment]") {
  // Recorded from dmlc-core 5295de940c7e: tracker/dmlc-submit --cluster local --num-workers 2
  // --num-servers 1: these variables of each process.
  const Variables scheduler = {{"DMLC_NUM_SERVER", "1"},
                               {"DMLC_NUM_WORKER", "2"},
                               {"DMLC_PS_ROOT_PORT", "9091"},
                               {"DMLC_PS_ROOT_URI", "192.0.2.2"},
                               {"DMLC_ROLE", "scheduler"}};
  Variables server = scheduler;
  server["DMLC_ROLE"] = "server";
  server["DMLC_JOB_CLUSTER"] = "local";
  server["DMLC_TASK_ID"] = "2";
  Variables second_worker = server;
  second_worker["DMLC_ROLE"] = "worker";
  second_worker["DMLC_TASK_ID"] = "1";

  auto spec = a_spec();
  spec.dmlc_roles = true;
  spec.launcher = StarterKind::kLocal;
  spec.workers.assign(2, Host{"", "localhost", 0});
  const auto gives = [&spec](const Variables& recorded, Role role, std::uint32_t id) {
    auto facts = facts_of(role, id);
    facts.num_workers = 2;
    facts.num_servers = 1;
    facts.root = {"192.0.2.2", 9091};
    facts.is_scheduler = recorded.at("DMLC_ROLE") == "scheduler";
    const Variables ours = env_of(spec, facts);
    for (const auto& [name, value] : recorded) {
      INFO(name);
      REQUIRE(ours.count(name) == 1);
      CHECK(ours.at(name) == value);
    }
    return ours;
  };
  const Variables ours = gives(scheduler, Role::kServer, 1);
  for (const char* name : {"DMLC_TASK_ID", "DMLC_SERVER_ID", "DMLC_WORKER_ID"})
    CHECK(ours.count(name) == 0);
  gives(server, Role::kServer, 0);
  gives(second_worker, Role::kWorker, 1);
}

TEST_CASE("environment: scripts of the 2018 system see what they ask for, and only then",
          "[environment]") {
  auto spec = a_spec();
  auto facts = facts_of(Role::kWorker, 5);
  CHECK(env_of(spec, facts).count("ELASTIC_TRAINING_ENABLED") == 0);
  spec.elastic = true;
  CHECK(env_of(spec, facts).at("ELASTIC_TRAINING_ENABLED") == "1");
  CHECK(env_of(spec, facts).count("NEW_WORKER") == 0);
  CHECK(env_of(spec, facts).count("EPOCH_BEGIN") == 0);
  facts.newcomer = true;
  facts.epoch = Epoch(7);
  const auto vars = env_of(spec, facts);
  CHECK(vars.at("NEW_WORKER") == "1");
  CHECK(vars.at("EPOCH_BEGIN") == "7");
  CHECK(vars.at("DT_NEWCOMER") == "1");
  CHECK(vars.at("DT_EPOCH") == "7");
}

TEST_CASE("environment: servers of one host take successive ports", "[environment]") {
  auto spec = a_spec();
  auto facts = facts_of(Role::kServer, 1);
  facts.index_on_host = 2;
  auto vars = env_of(spec, facts);
  CHECK(vars.at("DT_SERVER_PORT") == "0");
  CHECK(vars.at("DMLC_ROLE") == "server");
  CHECK(vars.at("DMLC_SERVER_ID") == "1");
  CHECK(vars.at("DT_SERVER_ID") == "1");
  CHECK(vars.at("DT_SERVER_INDEX") == "0");
  CHECK(vars.at("DT_MAX_WORKERS") == std::to_string(spec.workers.size()));
  CHECK(vars.at("DT_SERVER_DEVICE") == "cpu");
  CHECK(vars.count("DMLC_WORKER_ID") == 0);
  CHECK(vars.count("RANK") == 0);
  spec.data.server_port = 9000;
  CHECK(env_of(spec, facts).at("DT_SERVER_PORT") == "9002");
  for (const char* device : {"cpu", "cuda:1"}) {
    spec.data.server_device = device;
    CHECK(env_of(spec, facts).at("DT_SERVER_DEVICE") == device);
  }
  spec.data.server_device = "auto";  // they take the host's GPUs in turn
  CHECK(env_of(spec, facts).at("DT_SERVER_DEVICE") == "auto:2");
}

TEST_CASE("environment: a server begins with the checkpoint that its job went back to",
          "[environment]") {
  auto spec = a_spec();
  auto facts = facts_of(Role::kServer, 3);
  facts.index = 1;
  CHECK(env_of(spec, facts).count("DT_RESTORE") == 0);
  spec.restore = "/old/epoch-000004";
  CHECK(env_of(spec, facts).at("DT_RESTORE") == "/old/epoch-000004");
  facts.checkpoint = Epoch(6);
  const auto vars = env_of(spec, facts);
  CHECK(vars.at("DT_RESTORE") == io::checkpoints_dir(spec) + "/epoch-000006");
  CHECK(vars.at("DT_SERVER_INDEX") == "1");
  CHECK(vars.at("DT_SERVER_ID") == "3");
}

TEST_CASE("environment: prepare-data is told of the job but not its secret", "[environment]") {
  auto spec = a_spec();
  spec.env = {{"DATA", "/d"}};
  const Variables expected = {{"DT_JOB", "j1"},         {"DT_HOST", "u@node7:2222"},
                              {"DT_ROLE", "prepare"},   {"DT_NUM_WORKERS", "3"},
                              {"DT_NUM_SERVERS", "2"},  {"DATA", "/d"},
                              {"PYTHONUNBUFFERED", "1"}};
  CHECK(env_of(spec, facts_of(Role::kPrepare, 0)) == expected);
}

TEST_CASE("environment: a user's Python programs do not buffer their output, unless --env asks",
          "[environment]") {
  auto spec = a_spec();
  CHECK(env_of(spec, facts_of(Role::kServer, 0)).count("PYTHONUNBUFFERED") == 0);
  spec.dmlc_roles = true;
  CHECK(env_of(spec, facts_of(Role::kServer, 0)).at("PYTHONUNBUFFERED") == "1");
  spec.env = {{"PYTHONUNBUFFERED", ""}};
  CHECK(env_of(spec, facts_of(Role::kWorker, 0)).at("PYTHONUNBUFFERED").empty());
}

TEST_CASE("environment: a Python environment that is activated here is there, if the host has it",
          "[environment]") {
  auto spec = a_spec();
  spec.activated = {"VIRTUAL_ENV", "/p/venv"};
  auto facts = facts_of(Role::kWorker, 0);
  CHECK(env_of(spec, facts).count("VIRTUAL_ENV") == 0);
  facts.is_activated = true;
  CHECK(env_of(spec, facts).at("VIRTUAL_ENV") == "/p/venv");
  CHECK(env_of(spec, facts).at("DT_FIRST_IN_PATH") == "/p/venv/bin");
  facts.process.role = Role::kServer;
  CHECK(env_of(spec, facts).count("VIRTUAL_ENV") == 0);
}

TEST_CASE("environment: GPUs are dealt to workers of servers of ours, unless the user does it",
          "[environment]") {
  auto spec = a_spec();
  const auto has = [&spec](Role role) {
    return env_of(spec, facts_of(role, 0)).count("DT_GPUS_PER_WORKER") == 1;
  };
  CHECK_FALSE(has(Role::kWorker));  // without servers torchrun's contract holds
  spec.servers = {Host{"", "a", 0}};
  CHECK(env_of(spec, facts_of(Role::kWorker, 0)).at("DT_GPUS_PER_WORKER") == "auto");
  CHECK_FALSE(has(Role::kServer));  // they open the memory of all workers
  spec.gpus_per_worker = "all";
  CHECK_FALSE(has(Role::kWorker));
  spec.gpus_per_worker = "2";
  CHECK(has(Role::kWorker));
  spec.env_worker = {{"CUDA_VISIBLE_DEVICES", "1"}};
  CHECK_FALSE(has(Role::kWorker));
  spec.env_worker = {};
  spec.dmlc_roles = true;
  CHECK_FALSE(has(Role::kWorker));
}

TEST_CASE("environment: a host's list of GPUs counts in every job, and for servers by auto",
          "[environment]") {
  auto spec = a_spec();
  const auto list = [&spec](Role role) {
    auto facts = facts_of(role, 0);
    facts.host.gpus = "0,2";
    auto vars = env_of(spec, facts);
    return vars.count("DT_HOST_GPUS") == 1
               ? vars["DT_HOST_GPUS"] + " " + vars.at("DT_GPUS_PER_WORKER")
               : "none";
  };
  CHECK(list(Role::kWorker) == "0,2 all");  // torchrun's contract, over these
  spec.servers = {Host{"", "a", 0}};
  CHECK(list(Role::kWorker) == "0,2 auto");
  spec.gpus_per_worker = "all";
  CHECK(list(Role::kWorker) == "0,2 all");
  CHECK(list(Role::kServer) == "none");
  spec.data.server_device = "cuda:1";  // is taken as it is
  CHECK(list(Role::kServer) == "none");
  spec.data.server_device = "auto";
  CHECK(list(Role::kServer) == "0,2 all");
  spec.env = {{"CUDA_VISIBLE_DEVICES", "1"}};
  CHECK(list(Role::kWorker) == "none");
  CHECK(list(Role::kServer) == "none");
  CHECK(list(Role::kPrepare) == "none");
}

TEST_CASE("environment: OpenMP threads are shared by the workers of a machine, unless given",
          "[environment]") {
  auto spec = a_spec();
  auto facts = facts_of(Role::kWorker, 0);
  CHECK(env_of(spec, facts).count("OMP_NUM_THREADS") == 0);
  facts.cores = 8;
  facts.workers_on_machine = 3;
  CHECK(env_of(spec, facts).at("OMP_NUM_THREADS") == "2");
  facts.workers_on_machine = 9;
  CHECK(env_of(spec, facts).at("OMP_NUM_THREADS") == "1");
  spec.env = {{"OMP_NUM_THREADS", "16"}};
  CHECK(env_of(spec, facts).at("OMP_NUM_THREADS") == "16");
}

TEST_CASE("environment: the user's values arrive as they are and by role, and DT_* stay ours",
          "[environment]") {
  auto spec = a_spec();
  const std::string odd = "a \"b\" 'c' $d `e`\\\n\tf=g\xff";
  spec.env = {{"ODD", odd}, {"EMPTY", ""}, {"PS_VERBOSE", "1"}, {"DT_SECRET", "mine"}, {"X", "1"}};
  spec.env_server = {{"X", "server"}};
  spec.env_worker = {{"X", "worker"}};
  const auto vars = env_of(spec, facts_of(Role::kWorker, 0));
  CHECK(vars.at("ODD") == odd);
  CHECK(vars.at("EMPTY").empty());
  CHECK(vars.at("PS_VERBOSE") == "1");
  CHECK(vars.at("DT_SECRET") == "5ec2e7");
  CHECK(vars.at("X") == "worker");
  CHECK(env_of(spec, facts_of(Role::kServer, 0)).at("X") == "server");
}
