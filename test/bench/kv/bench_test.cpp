// dtbench as its users run it: real processes, tiny lists, every element checked.

#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/fd.h"
#include "test/bench/kv/options.h"
#include "test/bench/kv/peers.h"
#include "test/bench/kv/stream.h"
#include "test/bench/kv/tensor_list.h"
#include "test/bench/kv/values.h"
#include "test/support/catch.h"

using namespace dt;
using namespace dt::bench;

namespace {

struct Ended {
  int status = -1;
  std::string out;  ///< stdout and stderr.
};

/// Runs `dtbench kv` with these words. A hang ends with the test's own limit.
Ended dtbench(std::vector<std::string> words, const char* program = DT_BENCH) {
  words.insert(words.begin(), {program, "kv"});
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const io::Fd reader(ends[0]);
  io::Fd writer(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, writer.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, writer.get(), 2);
  posix_spawn_file_actions_addclose(&actions, reader.get());
  pid_t pid = 0;
  REQUIRE(::posix_spawn(&pid, program, &actions, nullptr, argv.data(), environ) == 0);
  posix_spawn_file_actions_destroy(&actions);
  writer.reset();
  Ended ended;
  char bytes[4096];
  for (ssize_t n; (n = ::read(reader.get(), bytes, sizeof bytes)) > 0;)
    ended.out.append(bytes, static_cast<std::size_t>(n));
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  ended.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ended;
}

/// A run that takes no longer than it must.
Ended quick(std::vector<std::string> words, const char* program = DT_BENCH) {
  words.insert(words.end(), {"--reps", "2", "--seconds", "0.005", "--json"});
  return dtbench(words, program);
}

/// The same on a machine with emulated devices.
class Emulated {
 public:
  Emulated(const char* devices, const char* bytes = nullptr) {
    ::setenv("DT_EMULATED_DEVICES", devices, 1);
    if (bytes) ::setenv("DT_EMULATED_BYTES", bytes, 1);
  }
  ~Emulated() {
    ::unsetenv("DT_EMULATED_DEVICES");
    ::unsetenv("DT_EMULATED_BYTES");
  }
  [[nodiscard]] Ended quick(const std::vector<std::string>& words) const {
    return ::quick(words, DT_EMULATED_BENCH);
  }
};

nlohmann::json good_json(const Ended& ended) {
  INFO(ended.out);
  REQUIRE(ended.status == 0);
  const std::size_t begin = ended.out.find('{');  // warnings of the workers may come first
  REQUIRE(begin != std::string::npos);
  auto json = nlohmann::json::parse(ended.out.substr(begin));
  CHECK(json.at("bad") == 0);
  return json;
}

}  // namespace

TEST_CASE("dtbench: the models' lists have the tensors and elements that the models have") {
  const auto resnet = model_list("resnet50");
  REQUIRE(resnet);
  CHECK(resnet->elements.size() == 161);
  CHECK(resnet->total_elements() == 25'557'032);
  const auto bert = model_list("bert-base");
  REQUIRE(bert);
  CHECK(bert->elements.size() == 199);
  CHECK(bert->total_elements() == 109'482'240);
  CHECK(model_list("embedding")->bytes() == 1'000'000'000);
  CHECK_FALSE(model_list("resnet51"));
}

TEST_CASE("dtbench: sizes are bytes of float32 tensors, counted and added up") {
  const auto list = list_of_sizes("2x64K+1M+8");
  REQUIRE(list);
  CHECK(list->elements == std::vector<std::uint64_t>{16384, 16384, 262144, 2});
  for (const char* wrong : {"", "3", "0", "1K,", "x1K", "0x1K", "1Q", "1K+", "999999999999G",
                            "200000x4", "100x1G", "-1K"})
    CHECK_FALSE(list_of_sizes(wrong));
}

TEST_CASE("dtbench: streams cover every byte of the list once, on any number of servers") {
  const std::vector<std::uint64_t> elements = {1000, 0, 7, 300'000, 1};
  for (const std::uint32_t servers : {1U, 2U, 3U, 7U}) {
    std::vector<int> seen(301'008 * sizeof(float));
    for (const auto& stream : streams_of(elements, servers, 4096)) {
      std::size_t bytes = 0;
      stream.for_each(0, stream.bytes(), [&](std::size_t offset, std::size_t size) {
        for (std::size_t i = 0; i < size; ++i) ++seen.at(offset + i);
        bytes += size;
      });
      CHECK(bytes == stream.bytes());
    }
    CHECK(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }));
  }
}

TEST_CASE("dtbench: a stream is gathered from any position, in pieces of any size") {
  Stream stream;
  stream.add(100, 10);
  stream.add(110, 10);  // begins where the last one ended
  stream.add(500, 5);
  std::vector<std::byte> list(600);
  iovec pieces[2];
  REQUIRE(stream.gather(list.data(), 15, 100, pieces) == 2);
  CHECK(pieces[0].iov_base == list.data() + 115);
  CHECK(pieces[0].iov_len == 5);
  CHECK(pieces[1].iov_base == list.data() + 500);
  CHECK(pieces[1].iov_len == 5);
  REQUIRE(stream.gather(list.data(), 18, 3, pieces) == 2);
  CHECK(pieces[1].iov_len == 1);
}

TEST_CASE("dtbench: the check finds a value of another worker, round or place") {
  std::vector<float> sum(1000);
  fill(sum, 0, 3);
  CHECK(count_wrong(sum, 1, 3) == 0);
  CHECK(count_wrong(sum, sum_of_ranks(2), 3) == 1000);
  CHECK(count_wrong(sum, 1, 4) == 1000);
  std::rotate(sum.begin(), sum.begin() + 256, sum.end());
  CHECK(count_wrong(sum, 1, 3) > 900);
  fill(sum, 0, 3);
  sum[999] += 1;
  CHECK(count_wrong(sum, 1, 3) == 1);
}

TEST_CASE("dtbench: all of ours give the right sums for 1 to 3 workers and 1 or 2 servers") {
  const std::vector<std::string> names = {"kvstore", "raw", "raw-colocated", "raw-shm"};
  for (const std::string workers : {"1", "2", "3"}) {
    for (const std::string servers : {"1", "2"}) {
      const auto json =
          good_json(quick({"-w", workers, "-s", servers, "--sizes", "5x12K+4+300K", "--chunk", "4K",
                           "--peer", "raw,raw-colocated,raw-shm", "--check"}));
      const auto& contenders = json.at("measurements").at(0).at("contenders");
      REQUIRE(contenders.size() == names.size());
      for (std::size_t i = 0; i < names.size(); ++i) {
        CHECK(contenders.at(i).at("name") == names[i]);
        CHECK(contenders.at(i).at("ms").at("median") > 0);
      }
    }
  }
}

TEST_CASE("dtbench: every way bytes can go gives the right sums") {
  const std::vector<std::vector<std::string>> ways = {
      {"--transport", "tcp"},
      {"--transport", "shm"},
      {"--transport", "shm", "--memory", "private"},
      {"--transport", "shm", "--in-place"},
      {"--colocated"},
      {"--colocated", "--in-place", "--memory", "private", "--deterministic"},
      {"--busy-poll", "50"},
      {"--transport", "tcp", "--data-auth", "frames"},
  };
  for (auto words : ways) {
    words.insert(words.end(), {"-w", "3", "--sizes", "3x80K+4+20K", "--chunk", "40K", "--check"});
    const auto json = good_json(quick(words));
    CHECK(json.at("servers") == (words[0] == "--colocated" ? 3 : 1));
  }
}

TEST_CASE("dtbench: compressed gradients are measured and checked") {
  for (const std::string codec : {"2bit", "fp16", "bf16"}) {
    for (const std::string operation : {"pushpull", "push"}) {
      const auto json =
          good_json(quick({"-w", "3", "-s", "2", "--sizes", "5x12K+4+300K", "--chunk", "4K",
                           "--transport", "tcp", "--codec", codec, "--op", operation, "--check"}));
      CHECK(json.at("codec") == codec);
    }
  }
}

TEST_CASE("dtbench: a peer's library is used where it is, and asked for where it is not") {
  for (const std::string peer : {"gloo", "gloo-tensor", "mpi", "mpi-shm"}) {
    const Ended ended = quick({"--sizes", "3x20K+4", "--peer", peer, "--check"});
    INFO(ended.out);
    if (ended.status == 2)
      CHECK(ended.out.find("apt-get install") != std::string::npos);
    else
      good_json(ended);
  }
}

TEST_CASE("dtbench: every operation, type and optimizer is checked as well") {
  for (const std::string op : {"push", "pull", "pushpull"}) {
    good_json(quick({"--op", op, "--sizes", "1K,3x20K"}));
    good_json(quick({"--op", op, "--sizes", "1K,3x20K", "--type=dist_async", "--check"}));
  }
  for (const std::string optimizer : {"sgd momentum=0.9 nesterov=1", "adam"})
    good_json(quick({"--optimizer", optimizer, "--sizes", "3x20K", "-w3", "--check"}));
}

TEST_CASE("dtbench: what is measured is in the object, one entry per list") {
  const auto json = good_json(quick({"--sizes", "1K,8K", "--peer", "raw"}));
  REQUIRE(json.at("measurements").size() == 2);
  CHECK(json.at("measurements").at(1).at("bytes") == 8192);
  const auto& one = json.at("measurements").at(0);
  CHECK(one.at("ratios").at(0).at("peer") == "raw");
  CHECK(one.at("ratios").at(0).at("pairs") == 2);
  CHECK(one.at("contenders").at(0).at("cpu_s_per_gb").at("median") > 0);
  CHECK(one.at("contenders").at(0).at("latency_ms").at("p99") > 0);
}

TEST_CASE("dtbench: the price of options is a ratio to the kvstore without them") {
  const std::vector<std::vector<std::string>> prices = {
      {"--deterministic", "--transport", "tcp", "--check"},
      {"--deterministic", "--transport", "shm", "--memory", "private", "--in-place", "--check"},
      {"--type", "dist_async", "--straggle", "2", "-w3"},
      {"--codec", "fp16", "--transport", "tcp", "--op", "push"},
  };
  for (auto words : prices) {
    words.insert(words.end(), {"--sizes", "3x80K", "--peer", "plain"});
    const auto one = good_json(quick(words)).at("measurements").at(0);
    CHECK(one.at("ratios").at(0).at("peer") == "plain");
    CHECK(one.at("contenders").at(1).at("operations_per_s") > 0);
  }
}

TEST_CASE("dtbench: of tensors that go one after the other few are kept at once") {
  const Emulated machine("1");
  const std::vector<std::pair<std::string, std::vector<std::string>>> ways = {
      {"staged_mib", {"--memory", "private", "--transport", "shm"}},
      {"pinned_mib", {"--device", "cuda:0", "--transport", "tcp"}},
      {"pinned_mib", {"--device", "cuda:0", "--server-device", "cuda:0", "--transport", "shm"}},
  };
  for (auto [kind, words] : ways) {
    INFO(kind);
    words.insert(words.end(), {"--sizes", "32x1M", "--chunk", "256K", "--json", "--reps", "4"});
    const auto kept = [&, kind = kind](const std::string& seconds, const char* how) {
      auto all = words;
      all.insert(all.end(), {"--seconds", seconds, how});
      const auto json = good_json(dtbench(all, DT_EMULATED_BENCH));
      const auto& ours = json.at("measurements").at(0).at("contenders").at(0);
      CHECK(ours.at("read_in_place") == 0);  // emulated devices share no memory between processes
      REQUIRE(ours.at("kept").is_object());
      return ours.at("kept").at(kind).get<double>();
    };
    CHECK(kept("0.5", "--stream") <= 4);
    CHECK(kept("0.5", "--in-place") >= 32);
  }
}

TEST_CASE("dtbench: arrays and values on devices give the right sums, beside copies and the CPU") {
  const Emulated machine("2");
  const std::vector<std::vector<std::string>> ways = {
      {"--device", "cuda:0", "--server-device", "cuda:0", "--transport", "tcp"},
      {"--device", "cuda:0", "--server-device", "cuda:0", "--transport", "shm", "--check"},
      {"--device", "cuda:0,cuda:1", "--server-device", "cuda:1", "-w3", "-s2", "--in-place"},
      {"--device", "cuda:1", "--check"},
      {"--server-device", "cuda:1", "--memory", "private", "--check"},
      {"--device", "cuda:0", "--colocated", "--deterministic"},
  };
  for (auto words : ways) {
    words.insert(words.end(),
                 {"--sizes", "5x12K+4+300K", "--chunk", "4K", "--peer", "copies,cpu,plain"});
    const auto json = good_json(machine.quick(words));
    const bool has_arrays = words[0] == "--device";
    CHECK(json.at("type") == (has_arrays ? "dist_device_sync" : "dist_sync"));
    CHECK(json.at("devices").empty() != has_arrays);
    if (words[1] == "cuda:0,cuda:1") {
      CHECK(json.at("devices") == std::vector<std::string>{"cuda:0", "cuda:1"});
      CHECK(json.at("server_device") == "cuda:1");
    }
    const auto& one = json.at("measurements").at(0);
    const std::vector<std::string> names = {"kvstore", "copies", "cpu", "plain"};
    REQUIRE(one.at("contenders").size() == names.size());
    for (std::size_t i = 0; i < names.size(); ++i) {
      CHECK(one.at("contenders").at(i).at("name") == names[i]);
      CHECK(one.at("contenders").at(i).at("bad") == 0);
      CHECK(one.at("contenders").at(i).at("ms").at("median") > 0);
      if (i > 0) CHECK(one.at("ratios").at(i - 1).at("time") > 0);
    }
  }
}

TEST_CASE("dtbench: the CPU beside devices has none of them") {
  auto parsed = parse_kv({"--device", "cuda:0,cuda:1", "--server-device", "cuda:0", "-w3"}, false);
  REQUIRE(parsed);
  CHECK(parsed->options.device_of(2) == 0);
  CHECK(parsed->options.type == "dist_device_sync");
  const KvOptions host = without_devices(parsed->options);
  CHECK_FALSE(host.uses_devices());
  CHECK(host.type == "dist_sync");
  CHECK(host.workers == 3);
}

TEST_CASE("dtbench: what else there is goes with devices too") {
  const Emulated machine("1");
  const std::vector<std::string> devices = {"--device", "cuda:0", "--server-device", "cuda:0"};
  const std::vector<std::vector<std::string>> ways = {
      {"--op", "push"},
      {"--op", "pull"},
      {"--type", "dist_async", "--check"},
      {"--optimizer", "sgd momentum=0.9", "--check"},
      {"--codec", "2bit", "--transport", "tcp", "--check"},
  };
  for (auto words : ways) {
    words.insert(words.end(), devices.begin(), devices.end());
    words.insert(words.end(), {"--sizes", "3x20K+4", "--chunk", "4K", "--peer", "cpu"});
    good_json(machine.quick(words));
  }
}

TEST_CASE("dtbench: a device that is not there is one sentence and exit code 77") {
  const std::vector<std::vector<std::string>> ways = {
      {"--device", "cuda:2"}, {"--device", "cuda:0,cuda:2"}, {"--server-device", "cuda:2"}};
  for (const auto& words : ways) {
    const Ended ended = Emulated("2").quick(words);
    CHECK(ended.status == 77);
    CHECK(ended.out == "dtbench: no CUDA device 2: this machine has 2\n");
  }
  const Ended ended = Emulated("0").quick({"--device", "cuda:0", "--check"});
  CHECK(ended.status == 77);
  CHECK(ended.out == "dtbench: no CUDA device on this machine\n");
}

TEST_CASE("dtbench: a device without the memory ends the run, whether of workers or servers") {
  const Emulated machine("1", "50000");
  const auto fails = [&](const std::vector<std::string>& words, const std::string& why) {
    const Ended ended = machine.quick(words);
    INFO(ended.out);
    CHECK(ended.status == 1);
    CHECK(ended.out.find(why) != std::string::npos);
  };
  fails({"--device", "cuda:0", "--sizes", "30K"}, "30K on cuda:0: out of memory");
  fails({"--server-device", "cuda:0", "--sizes", "60K"}, "CUDA device 0 is out of memory");
}

TEST_CASE(
    "dtbench: where one worker is late in turn, dist_sync waits for each and dist_async not") {
  const auto json =
      good_json(dtbench({"--type", "dist_async", "--peer", "plain", "--straggle", "100", "--sizes",
                         "4", "--reps", "1", "--seconds", "0.4", "--json"}));
  const auto& contenders = json.at("measurements").at(0).at("contenders");
  // The sleeps alone: 50 ms an operation, or 100.
  CHECK(contenders.at(0).at("ms").at("median") >= 50);
  CHECK(contenders.at(1).at("ms").at("median") >= 100);
  CHECK(contenders.at(0).at("operations").get<int>() % 2 == 0);
}

TEST_CASE("dtbench: wrong usage ends with 2 and names the option") {
  const auto refused = [](const std::vector<std::string>& words, const std::string& named) {
    const Ended ended = dtbench(words);
    INFO(ended.out);
    CHECK(ended.status == 2);
    CHECK(ended.out.find(named) != std::string::npos);
  };
  refused({"--bogus"}, "--bogus");
  refused({"-w", "0"}, "-w");
  refused({"--sizes", "3"}, "--sizes");
  refused({"--list", "vgg"}, "--list");
  refused({"--peer", "carrier-pigeon"}, "--peer");
  refused({"--op"}, "--op");
  refused({"--optimizer", "sgd speed=3"}, "--optimizer");
  refused({"--json=yes"}, "--json");
  refused({"--peer", "raw", "--op", "push"}, "--peer");
  refused({"-H", "hosts", "--loops", "2"}, "--loops");
  refused({"--colocated", "--transport", "shm"}, "--transport");
  refused({"--in-place", "--type", "dist_async"}, "--in-place");
  refused({"--straggle", "5", "--check"}, "--straggle");
  refused({"--stream", "--peer", "raw"}, "--stream");
  refused({"--device", "cpu"}, "--device");
  refused({"--device", "cuda:0,"}, "--device");
  refused({"--server-device", "cuda"}, "--server-device");
  refused({"--peer", "copies"}, "--peer copies");
  refused({"--device", "cuda:0", "--peer", "copies", "--op", "push"}, "--peer");
  refused({"-H", "hosts", "--device", "cuda:0"}, "--device");
  refused({"--", "--quiet"}, "-H");
}
