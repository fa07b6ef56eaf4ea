// The stores of one process through the C++ face of libdtkv, and what dtkv_create refuses.

#include <cstdlib>
#include <string>
#include <vector>

#include "kvstore/kvstore.h"
#include "test/support/catch.h"

TEST_CASE("local: one worker's store has the same rounds, means and optimizers", "[local]") {
  for (const char* type : {"local", "device"}) {
    dtkv::KVStore store(type);
    std::vector<double> values(5, 1);
    store.init({{"w", values}});
    store.set_optimizer("sgd momentum=0.5");
    std::vector<double> g(5, 1);
    dtkv::Push push;
    push.learning_rate = 1;
    store.pushpull({{"w", g}}, {{"w", values}}, push);
    store.pushpull({{"w", g}}, {{"w", values}}, push);
    CHECK(values == std::vector<double>(5, 1 - 1 - 1.5));
    CHECK(store.epoch_boundary(4)->epoch == 4);
    CHECK_THROWS_AS(store.epoch_boundary(4), dtkv::Error);
    CHECK_THROWS_AS(store.epoch_boundary(0), dtkv::Error);
    CHECK(store.epoch_boundary(5)->epoch == 5);
    std::vector<float> other(5);
    CHECK_THROWS_AS(store.pull({{"w", other}}), dtkv::Error);
    CHECK_THROWS_AS(store.pull({{"v", other}}), dtkv::Error);
  }
}

TEST_CASE("local: without samples there is no step, and without an optimizer the value is zeros",
          "[local]") {
  dtkv::KVStore store("local");
  std::vector<float> weights(2, 3);
  std::vector<float> mean(2, 3);
  std::vector<float> g(2, 5);
  store.init({{"mean", mean}}, DTKV_KEY_AUXILIARY);
  CHECK_THROWS_AS(store.init({{"none", mean}}, 4), dtkv::Error);
  store.pushpull({{"mean", g}}, {{"mean", mean}}, {});
  CHECK(mean == g);
  store.pushpull({{"mean", g}}, {{"mean", mean}}, {.samples = 0});
  CHECK(mean == std::vector<float>(2, 0));
  store.init({{"w", weights}});
  store.set_optimizer("sgd");
  store.pushpull({{"w", g}}, {{"w", weights}}, {.samples = 0, .learning_rate = 1});
  CHECK(weights == std::vector<float>(2, 3));
}

TEST_CASE("local: gradients are compressed with the servers' arithmetic", "[local]") {
  dtkv::KVStore store("local");
  std::vector<float> values(5, 0);
  store.init({{"w", values}});
  CHECK_THROWS_AS(store.set_gradient_compression("3bit"), dtkv::Error);
  store.set_gradient_compression("2bit threshold=0.5");
  std::vector<float> g(5, 0.3f);
  store.pushpull({{"w", g}}, {{"w", values}}, {});
  CHECK(values == std::vector<float>(5, 0));
  store.pushpull({{"w", g}}, {{"w", values}}, {});
  CHECK(values == std::vector<float>(5, 0.5f));
  store.set_gradient_compression("none");
  store.pushpull({{"w", g}}, {{"w", values}}, {});
  CHECK(values == g);
}

TEST_CASE("create: a wrong type and a missing launcher are said plainly", "[local]") {
  dtkv_store* store = nullptr;
  CHECK(dtkv_create("dist_snyc", &store) == DTKV_INVALID);
  CHECK(std::string(dtkv_last_error()).find("dist_snyc") != std::string::npos);
  ::unsetenv("DT_AGENT_SOCKET");
  CHECK(dtkv_create("dist_sync", &store) == DTKV_INVALID);
  CHECK(std::string(dtkv_last_error()).find("dtlaunch") != std::string::npos);
  CHECK(store == nullptr);
}
