#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "test/support/catch.h"

namespace {

namespace fs = std::filesystem;

struct Ended {
  int status = 0;  ///< As of waitpid.
  std::string output;
};

/// Runs a program to its end; stdout and stderr together.
Ended run(const std::string& arguments) {
  std::string command = std::string("exec ") + MLP_WORKER + " " + arguments + " 2>&1";
  std::FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  Ended ended;
  for (int c = 0; (c = std::fgetc(pipe)) != EOF;) ended.output.push_back(static_cast<char>(c));
  ended.status = pclose(pipe);
  return ended;
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

TEST_CASE("mlp_worker learns generated digits by itself and logs every boundary and step") {
  LogFile log;
  const auto ended =
      run("--kv-type local --epochs 2 --samples 640 --batch 32 --hash --log " + log.path.string());
  INFO(ended.output);
  REQUIRE(ended.status == 0);
  CHECK(ended.output.find("Epoch[1] Weights=") != std::string::npos);
  int steps = 0;
  int boundaries = 0;
  for (const auto& line : log.lines()) {
    if (line["event"] == "step") {
      ++steps;
      CHECK(line["begin_ns"].get<int64_t>() <= line["t_ns"].get<int64_t>());
    }
    if (line["event"] == "boundary_leave") ++boundaries;
    if (line["event"] == "epoch" && line["epoch"] == 1) CHECK(line["accuracy"] > 0.9);
  }
  CHECK(steps == 40);
  CHECK(boundaries == 2);
}

TEST_CASE("mlp_worker gives the same weights again, and others with another seed") {
  const std::string base = "--kv-type local --epochs 1 --samples 320 --hash ";
  const auto first = run(base);
  CHECK(first.output == run(base).output);
  CHECK(first.output != run(base + "--seed 2").output);
}

TEST_CASE("mlp_worker refuses what it does not understand with exit code 2") {
  CHECK(WEXITSTATUS(run("--epochs three").status) == 2);
  CHECK(WEXITSTATUS(run("--no-such-option").status) == 2);
  CHECK(WEXITSTATUS(run("stray").status) == 2);
}

TEST_CASE("mlp_worker dies as told") {
  LogFile log;
  const auto ended = run("--kv-type local --samples 320 --crash-at 1:3 --log " + log.path.string());
  CHECK(WTERMSIG(ended.status) == SIGKILL);
  const auto lines = log.lines();
  REQUIRE(lines.size() > 2);
  CHECK(lines.back()["event"] == "misbehave");
  CHECK(lines[lines.size() - 2]["step"] == 2);
  CHECK(lines.back()["epoch"] == 1);
}
