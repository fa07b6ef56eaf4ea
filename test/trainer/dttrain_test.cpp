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

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

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
  CHECK(metrics[1]["samples_per_s"] > 0);
  // The only worker does not wait for other workers' steps.
  CHECK(metrics[1]["worker_samples_per_s"] >= metrics[1]["samples_per_s"]);
}

TEST_CASE("dttrain goes on from a checkpoint as if it had never stopped", "[nightly]") {
  Folder folder;
  const auto train = [&](const std::string& prefix, const std::string& how) {
    auto ended = run("--network mlp --dataset generated --samples 300 --lr 0.01 --model-prefix " +
                     folder.file(prefix) + how);
    INFO(ended.output);
    REQUIRE(ended.exit_code() == 0);
    return ended;
  };
  train("whole", " --optimizer adam --num-epochs 2");
  train("parts", " --optimizer adam --num-epochs 1");
  train("parts", " --optimizer adam --num-epochs 2 --load-epoch 1");
  for (const std::string file : {"-0002.safetensors", "-0002.optimizer.safetensors"}) {
    REQUIRE(fs::exists(folder.file("whole" + file)));
    CHECK(bytes_of(folder.file("whole" + file)) == bytes_of(folder.file("parts" + file)));
  }
  const std::string sgd = " --num-epochs 2 --load-epoch 1";
  CHECK(train("parts", sgd).says("it is of the optimizer 'adam"));
  fs::remove(folder.file("parts-0001.optimizer.safetensors"));
  CHECK(train("parts", sgd).says("the optimizer begins without the state of "));
}

TEST_CASE("dttrain --mom and --wd count beside an optimizer's name", "[nightly]") {
  Folder folder;
  const std::pair<const char*, const char*> cases[] = {
      {"", "sgd momentum=0.9 nesterov=0 weight_decay=0.0001"},
      {"--mom 0.8", "sgd momentum=0.8 nesterov=0 weight_decay=0.0001"},
      {"--optimizer sgd", "sgd momentum=0 nesterov=0 weight_decay=0"},
      {"--optimizer sgd --mom 0.9 --wd 1e-4", "sgd momentum=0.9 nesterov=0 weight_decay=0.0001"},
      {"--optimizer adam --wd 0.5", "adam beta1=0.9 beta2=0.999 eps=1e-08 weight_decay=0.5"}};
  for (const auto& [options, text] : cases) {
    const auto ended =
        run("--network mlp --dataset generated --samples 64 --num-epochs 1 --no-eval " +
            std::string(options) + " --model-prefix " + folder.file("net"));
    INFO(ended.output);
    REQUIRE(ended.exit_code() == 0);
    CHECK(bytes_of(folder.file("net-0001.optimizer.safetensors")).find(text) != std::string::npos);
  }
}

TEST_CASE("dttrain ends with an error when the loss is not finite, and leaves the last good file") {
  const std::string how = GENERATE("", " --no-eval");
  Folder folder;
  const std::string base =
      "--network mlp --dataset generated --samples 64 --model-prefix " + folder.file("net") + how;
  REQUIRE(run(base + " --num-epochs 1").exit_code() == 0);
  const auto good = bytes_of(folder.file("net-0001.safetensors"));
  const auto ended = run(base + " --lr 3e38 --num-epochs 9 --load-epoch 1 --metrics-json " +
                         folder.file("metrics"));
  INFO(ended.output);
  CHECK(ended.exit_code() == 1);
  CHECK(ended.says("not finite"));
  // An epoch has one step: the loss after it is the evaluation's, or the next epoch's.
  CHECK(fs::exists(folder.file("net-0002.safetensors")) != how.empty());
  CHECK_FALSE(fs::exists(folder.file("net-0003.safetensors")));
  CHECK((bytes_of(folder.file("net-0001.safetensors")) == good));
  for (const auto& line : json_lines(folder.file("metrics")))
    CHECK_FALSE(line["train_loss"].is_null());
}

TEST_CASE("dttrain learns from gradients in two bits or in sixteen", "[nightly]") {
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

TEST_CASE("dttrain on several devices makes the steps of one: the gradient is the batch's") {
  Folder folder;
  const std::string what = "--network mlp --dataset generated --samples 1500 --num-epochs 2 ";
  std::vector<double> losses;
  for (const std::string devices :
       {"", "--gpus cpu,cpu,cpu", "--gpus cpu,cpu --work-load-list 1,3.5"}) {
    const auto metrics = folder.file("metrics" + std::to_string(losses.size()));
    const auto ended = run(what + "--metrics-json " + metrics + " " + devices);
    INFO(ended.output);
    REQUIRE(ended.exit_code() == 0);
    const auto last = json_lines(metrics).back();
    losses.push_back(last["train_loss"]);
    CHECK(last["validation_accuracy"] > 0.6);
  }
  CHECK(losses[1] == Approx(losses[0]).epsilon(1e-3));
  CHECK(losses[2] == Approx(losses[0]).epsilon(1e-3));
}

TEST_CASE("dttrain on several devices keeps the statistics of BatchNorm together", "[nightly]") {
  Folder folder;
  const std::string what =
      "--network resnet --num-layers 8 --dataset generated --samples 600 "
      "--batch-size 32 --gpus cpu,cpu --model-prefix " +
      folder.file("model");
  const auto ended = run(what + " --num-epochs 2 --metrics-json " + folder.file("metrics"));
  INFO(ended.output);
  REQUIRE(ended.exit_code() == 0);
  // The accuracy after the epoch is the accuracy with which its checkpoint begins.
  const auto again =
      run(what + " --num-epochs 3 --load-epoch 2 --metrics-json " + folder.file("metrics"));
  INFO(again.output);
  REQUIRE(again.exit_code() == 0);
  const auto metrics = json_lines(folder.file("metrics"));
  REQUIRE(metrics.size() == 3);
  CHECK(metrics[2]["train_loss"] < metrics[1]["train_loss"]);
}

TEST_CASE("dttrain refuses devices and loads that make no sense") {
  const std::pair<const char*, const char*> wrong[] = {
      {"--gpus 0,one", "'one' is no device"},
      {"--gpus 0,0", "device 0 twice"},
      {"--gpus 0,cpu", "either GPUs or the CPU"},
      {"--gpus cpu,cpu --work-load-list 1", "1 loads for 2 devices"},
      {"--gpus cpu,cpu --work-load-list 1,0", "'0' is no number above 0"},
      {"--work-load-list 1,2", "2 loads for 1 devices"}};
  for (const auto& [options, words] : wrong) {
    const auto ended = run(options);
    INFO(ended.output);
    CHECK(ended.exit_code() == 2);
    CHECK(ended.says(words));
  }
}

TEST_CASE("dttrain names what it cannot use", "[nightly]") {
  const auto bad_option = run("--bogus");
  CHECK(bad_option.exit_code() == 2);
  CHECK(bad_option.says("--bogus"));
  CHECK(run("stray").exit_code() == 2);
  CHECK(run("--lr fast").exit_code() == 2);
  for (const char* rate : {"--lr nan", "--lr 0", "--lr -1", "--lr inf", "--lr-factor nan"}) {
    const auto ended = run(rate);
    CHECK(ended.exit_code() == 2);
    CHECK(ended.says("must be a number above 0"));
  }
  const auto twice = run("--optimizer 'sgd momentum=0.5' --wd 0.001");
  CHECK(twice.exit_code() == 2);
  CHECK(twice.says("has words of its own: add weight_decay=0.001"));
  CHECK(run("--gc-type 3bit").exit_code() == 2);
  CHECK(run("--gc-type 2bit --gc-threshold 0").exit_code() == 2);
  CHECK(run("--gc-type 2bit --gc-threshold inf").exit_code() == 2);
  CHECK(run("--gc-type 1bit").says("1bit is gone since 0.1.0"));
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
