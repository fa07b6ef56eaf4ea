#include "io/job/checkpoint_manifest.h"

#include "test/support/catch.h"

using namespace dt;

namespace {

io::Manifest sample() {
  io::Manifest manifest;
  manifest.job = "20261120-223000-1a2b";
  manifest.epoch = Epoch(12);
  manifest.generation = Generation(5);
  manifest.step = 1234;
  manifest.wall_ns = 1'763'664'000'123'456'789;
  manifest.files = {{"server-0.safetensors", 4096, 0xdeadbeef}, {"server-1.safetensors", 8, 7}};
  return manifest;
}

}  // namespace

TEST_CASE("a manifest comes back as it was written") {
  const auto back = io::manifest_from_json(to_json(sample()));
  REQUIRE(back);
  CHECK(*back == sample());
}

TEST_CASE("a manifest that is none is refused with what is wrong") {
  const auto why = [](std::string text) {
    const auto manifest = io::manifest_from_json(text);
    return manifest ? "accepted" : manifest.error().message;
  };
  const std::string good = to_json(sample());
  const auto with = [&good](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  CHECK(why(good) == "accepted");
  CHECK(why("").find("not a checkpoint's manifest") == 0);
  CHECK(why(good.substr(0, good.size() / 2)).find("not a checkpoint's manifest") == 0);
  CHECK(why(with("checkpoint 1", "checkpoint 2")) ==
        "of another format than 'dtlaunch checkpoint 1'");
  CHECK(why(with("server-0.s", "../s")) == "'../safetensors' is no file of a checkpoint");
  CHECK(why(with("deadbeef", "deadbee")).find("'deadbee' is no checksum") != std::string::npos);
  CHECK(why(with("\"epoch\": 12", "\"epoch\": []")).find("a list is no whole number") !=
        std::string::npos);
  for (const char* number : {"1e300", "-1", "12.5", "4294967296"})
    CHECK(why(with("\"epoch\": 12", fmt::format("\"epoch\": {}", number)))
              .find("is no whole number") != std::string::npos);
  CHECK(why(std::string(io::kMaxManifest + 1, ' ')) == "longer than any manifest");
  CHECK(why(std::string(1 << 20, '[')).find("not a checkpoint's manifest") == 0);
}

TEST_CASE("folder names say the epoch and whether the checkpoint is whole") {
  CHECK(io::checkpoint_name(Epoch(3)) == "epoch-000003");
  CHECK(io::checkpoint_name(Epoch(12345678)) == "epoch-12345678");
  CHECK(io::checkpoint_epoch("epoch-000003") == Epoch(3));
  CHECK(io::checkpoint_epoch("epoch-12345678") == Epoch(12345678));
  for (const char* other : {"epoch-3", "epoch-000003.g7.partial", "epoch-", "epoch--00001", "other",
                            "epoch-99999999999", "xepoch-000003", "epoch-000003 "})
    CHECK_FALSE(io::checkpoint_epoch(other));
  CHECK(io::partial_epoch(io::partial_name(Epoch(3), Generation(7))) == Epoch(3));
  CHECK_FALSE(io::partial_epoch("epoch-000003"));
}

TEST_CASE("the oldest checkpoints go, and what was given up before the newest") {
  const std::vector<std::string> names = {"epoch-000001", "epoch-000002.g7.partial", "epoch-000003",
                                          "epoch-000005", "epoch-000007.g7.partial", "epoch-000010",
                                          "notes.txt",    "epoch-000011.g7.partial"};
  using Names = std::vector<std::string>;
  CHECK(
      io::outdated_checkpoints(names, 2, Epoch(10)) ==
      Names{"epoch-000001", "epoch-000002.g7.partial", "epoch-000003", "epoch-000007.g7.partial"});
  CHECK(io::outdated_checkpoints(names, 99, Epoch(10)) ==
        Names{"epoch-000002.g7.partial", "epoch-000007.g7.partial"});
  // The newest always stays.
  CHECK(io::outdated_checkpoints({"epoch-000001", "epoch-000002"}, 0, Epoch(2)) ==
        Names{"epoch-000001"});
  // A later one belongs to epochs that the job rolled back.
  CHECK(io::outdated_checkpoints(names, 1, Epoch(5)) ==
        Names{"epoch-000001", "epoch-000002.g7.partial", "epoch-000003", "epoch-000010"});
}
