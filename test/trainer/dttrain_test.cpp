#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "test/support/catch.h"
#include "test/trainer/program.h"

namespace {

namespace fs = std::filesystem;

dt::test::Ended run(const std::string& arguments) {
  return dt::test::run_program("env OMP_NUM_THREADS=1 " DTTRAIN " --kv-store local " + arguments);
}

struct Folder {
  fs::path path = fs::temp_directory_path() / ("dt-dttrain-" + std::to_string(getpid()));
  Folder() { fs::create_directory(path); }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string file(const std::string& name) const { return (path / name).string(); }
};

std::vector<nlohmann::json> json_lines(const std::string& path) {
  std::vector<nlohmann::json> all;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) all.push_back(nlohmann::json::parse(line));
  return all;
}

}  // namespace

TEST_CASE("dttrain trains on generated digits, reports, saves, and goes on from there") {
  Folder folder;
  const std::string base = "--network mlp --dataset generated --samples 2000 --model-prefix " +
                           folder.file("new/net") + " --metrics-json " + folder.file("metrics");
  const auto first = run(base + " --num-epochs 1 --disp-batches 10 --log " + folder.file("log-%i"));
  INFO(first.output);
  REQUIRE(first.exit_code() == 0);
  CHECK(first.says("on generated digits"));
  CHECK(first.says("Epoch[0] Batch [10] Speed: "));
  CHECK(first.says("Epoch[0] Train-accuracy="));
  CHECK(first.says("Epoch[0] Validation-accuracy="));
  REQUIRE(fs::exists(folder.file("new/net-0001.safetensors")));
  const auto log = json_lines(folder.file("log-0"));
  REQUIRE(log.size() > 3);
  CHECK(log[0]["event"] == "boundary_enter");
  CHECK(log[2]["event"] == "step");

  const auto second = run(base + " --num-epochs 2 --load-epoch 1");
  INFO(second.output);
  REQUIRE(second.exit_code() == 0);
  CHECK_FALSE(second.says("Epoch[0]"));
  const auto metrics = json_lines(folder.file("metrics"));
  REQUIRE(metrics.size() == 2);
  CHECK(metrics[1]["epoch"] == 1);
  CHECK(metrics[1]["validation_accuracy"] > 0.8);
}

TEST_CASE("dttrain learns from gradients in two bits or in sixteen") {
  for (const std::string how : {"2bit --gc-threshold 0.001", "fp16", "bf16"}) {
    Folder folder;
    const auto ended =
        run("--network mlp --dataset generated --samples 2000 --num-epochs 3 --metrics-json " +
            folder.file("metrics") + " --gc-type " + how);
    INFO(ended.output);
    REQUIRE(ended.exit_code() == 0);
    CHECK(json_lines(folder.file("metrics")).back()["validation_accuracy"] > 0.75);
  }
}

TEST_CASE("dttrain on the CPU refuses --gpus with a sentence and its own exit code") {
  const auto ended = run("--gpus 0");
  CHECK(ended.exit_code() == 3);
  CHECK(ended.says("--gpus 0"));
  CHECK(ended.says("leave --gpus out to train on the CPU"));
}

TEST_CASE("dttrain names what it cannot use") {
  const auto bad_option = run("--bogus");
  CHECK(bad_option.exit_code() == 2);
  CHECK(bad_option.says("--bogus"));
  CHECK(run("stray").exit_code() == 2);
  CHECK(run("--lr fast").exit_code() == 2);
  CHECK(run("--gc-type 3bit").exit_code() == 2);
  CHECK(run("--gc-type 2bit --gc-threshold 0").exit_code() == 2);
  const auto no_data = run("--data /nonexistent");
  CHECK(no_data.exit_code() == 1);
  CHECK(no_data.says("/nonexistent"));
  const auto no_network = run("--network vgg");
  CHECK(no_network.exit_code() == 1);
  CHECK(no_network.says("unknown network vgg"));
  CHECK(run("--load-epoch 3").says("--load-epoch needs --model-prefix"));
}

TEST_CASE("dttrain --help and --version work") {
  CHECK(run("--help").says("--lr-step-epochs"));
  CHECK(run("--version").says("dttrain 0."));
}

TEST_CASE("LeNet on real MNIST is right on 96 of 100 test digits after one short epoch") {
  const char* given = std::getenv("DT_TEST_DATA");
  const fs::path folder = given != nullptr ? fs::path(given) : fs::path(DT_SHARED_DATA) / "mnist";
  if (!fs::exists(folder / "train-images-idx3-ubyte.gz")) {
    WARN("SKIPPED: no MNIST; DT_TEST_DATA may name its folder");
    return;
  }
  Folder out;
  const auto ended = run("--data " + folder.string() + " --num-epochs 1 --samples 20000" +
                         " --lr-smooth-steps 0 --metrics-json " + out.file("metrics"));
  INFO(ended.output);
  REQUIRE(ended.exit_code() == 0);
  CHECK(json_lines(out.file("metrics")).at(0)["validation_accuracy"] > 0.96);
}
