#include "test/support/catch.h"
#include "test/trainer/program.h"

namespace {

dt::test::Ended run(const std::string& arguments) {
  return dt::test::run_program(std::string(MLP_WORKER) + " " + arguments);
}

}  // namespace

TEST_CASE("mlp_worker learns generated digits by itself") {
  const auto ended = run("--epochs 2 --samples 640");
  INFO(ended.output);
  REQUIRE(ended.status == 0);
  CHECK(ended.says("Epoch[0] Validation-accuracy=0."));
  CHECK((ended.says("Epoch[1] Validation-accuracy=0.9") ||
         ended.says("Epoch[1] Validation-accuracy=1.0")));
}

TEST_CASE("mlp_worker refuses what it does not understand with exit code 2") {
  for (const char* arguments : {"--epochs three", "--batch -1", "--no-such-option", "stray"}) {
    CAPTURE(arguments);
    CHECK(run(arguments).exit_code() == 2);
  }
  CHECK(run("--help").exit_code() == 0);
}
