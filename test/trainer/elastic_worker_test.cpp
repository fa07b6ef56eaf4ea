#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "test/support/catch.h"
#include "test/trainer/program.h"

namespace {

namespace fs = std::filesystem;

dt::test::Ended run(const std::string& arguments) {
  return dt::test::run_program(std::string(ELASTIC_WORKER) + " " + arguments);
}

struct LogFile {
  fs::path path = fs::temp_directory_path() / ("dt-mlp-" + std::to_string(getpid()) + ".jsonl");
  LogFile() { fs::remove(path); }
  ~LogFile() { fs::remove(path); }
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;
  [[nodiscard]] std::vector<nlohmann::json> lines() const {
    std::vector<nlohmann::json> all;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) all.push_back(nlohmann::json::parse(line));
    return all;
  }
};

}  // namespace

TEST_CASE("elastic_worker learns generated digits by itself and logs every boundary and step") {
  LogFile log;
  const auto ended =
      run("--kv-type local --epochs 2 --samples 640 --batch 32 --hash --log " + log.path.string());
  INFO(ended.output);
  REQUIRE(ended.status == 0);
  CHECK(ended.says("Epoch[1] Weights="));
  int steps = 0;
  int boundaries = 0;
  for (const auto& line : log.lines()) {
    if (line["event"] == "step") {
      ++steps;
      CHECK(line["begin_ns"].get<std::int64_t>() <= line["t_ns"].get<std::int64_t>());
    }
    if (line["event"] == "boundary_leave") ++boundaries;
    if (line["event"] == "epoch" && line["epoch"] == 1) CHECK(line["accuracy"] > 0.9);
  }
  CHECK(steps == 40);
  CHECK(boundaries == 2);
}

TEST_CASE("elastic_worker gives the same weights again, and others with another seed") {
  const std::string base = "--kv-type local --epochs 1 --samples 320 --hash ";
  const auto first = run(base);
  CHECK(first.output == run(base).output);
  CHECK(first.output != run(base + "--seed 2").output);
}

TEST_CASE("elastic_worker refuses what it does not understand with exit code 2") {
  CHECK(run("--epochs three").exit_code() == 2);
  CHECK(run("--no-such-option").exit_code() == 2);
  CHECK(run("stray").exit_code() == 2);
}

TEST_CASE("elastic_worker dies as told") {
  LogFile log;
  const auto ended = run("--kv-type local --samples 320 --crash-at 1:3 --log " + log.path.string());
  CHECK(WTERMSIG(ended.status) == SIGKILL);
  const auto lines = log.lines();
  REQUIRE(lines.size() > 2);
  CHECK(lines.back()["event"] == "misbehave");
  CHECK(lines[lines.size() - 2]["step"] == 2);
  CHECK(lines.back()["epoch"] == 1);
}
