#include "supervisor/volume/output_queue.h"

#include <map>
#include <random>
#include <string>
#include <vector>

#include "test/support/catch.h"

using namespace dt;
using namespace std::chrono_literals;
using supervisor::OutputDelay;
using supervisor::OutputQueue;

namespace {

constexpr std::size_t kMuch = std::size_t{8} << 20;

Time at(Duration since) { return Time{} + since; }

}  // namespace

TEST_CASE("output queue: what comes for one file while it waits becomes one append", "[volume]") {
  OutputQueue queue(kMuch);
  queue.add("/a", "1", 0, at(1s));
  queue.add("/b", "x", 0, at(2s));
  queue.add("/a", "2", 0, at(3s));
  queue.add("/a", "3", 0, at(4s));
  CHECK(queue.length() == 2);
  CHECK(queue.bytes() == 4);
  CHECK(queue.oldest() == at(1s));
  CHECK(queue.oldest("/b") == at(2s));
  CHECK_FALSE(queue.oldest("/c"));
  const auto a = queue.take();
  CHECK(a.path == "/a");
  CHECK(a.bytes == "123");
  CHECK(a.since == at(1s));
  // What comes while that one is written waits behind the other files.
  queue.add("/a", "4", 0, at(5s));
  CHECK(queue.take().path == "/b");
  CHECK(queue.take().bytes == "4");
  CHECK(queue.empty());
  CHECK(queue.memory() == 0);
  CHECK_FALSE(queue.oldest());
}

TEST_CASE("output queue: one append has a bound, the smaller the file's limit the lower",
          "[volume]") {
  OutputQueue queue(kMuch);
  for (int i = 0; i < 100; ++i) queue.add("/a", std::string(60'000, 'a'), 0, at(1s));
  for (int i = 0; i < 100; ++i) queue.add("/limited", std::string(100, 'l'), 8000, at(1s));
  std::map<std::string, std::size_t> longest;
  std::map<std::string, std::size_t> sums;
  while (!queue.empty()) {
    const auto one = queue.take();
    longest[one.path] = std::max(longest[one.path], one.bytes.size());
    sums[one.path] += one.bytes.size();
  }
  CHECK(longest["/a"] > 200'000);
  CHECK(longest["/a"] <= OutputQueue::kMostMerged);
  CHECK(longest["/limited"] == 1000);
  CHECK(sums["/a"] == 6'000'000);
  CHECK(sums["/limited"] == 10'000);
}

TEST_CASE("output queue: the bound is of memory: short output has no more than long one",
          "[volume]") {
  OutputQueue queue(100'000);
  // With an entry for each they would need a hundred times as much.
  for (int i = 0; i < 20'000; ++i)
    queue.add(fmt::format("/logs/worker-{}.log", i % 50), std::string(20, 'x'), 0, at(1s));
  CHECK(queue.memory() <= 100'000);
  CHECK(queue.dropped_bytes() + queue.bytes() == 400'000);
  CHECK(queue.bytes() > 30'000);  // most of the memory is output
  // Files that are written once each need their names, too.
  OutputQueue names(100'000);
  for (int i = 0; i < 20'000; ++i) names.add(fmt::format("/logs/worker-{}.log", i), "x", 0, at(1s));
  CHECK(names.memory() <= 100'000);
  CHECK(names.length() < 500);
}

TEST_CASE("output queue: over the bound the oldest goes, and its file says how much", "[volume]") {
  OutputQueue queue(20'000);
  queue.add("/old", std::string(9000, 'o'), 0, at(1s));
  queue.add("/new", std::string(9000, 'n'), 0, at(2s));
  queue.add("/new", std::string(9000, 'm'), 0, at(3s));
  CHECK(queue.dropped_bytes() == 9000);
  CHECK(queue.oldest() == at(2s));
  queue.add("/old", "end", 0, at(4s));
  CHECK(queue.take("/old").bytes ==
        "\n[dtlaunch: 9000 bytes are missing here: the shared volume did not take them]\nend");
  queue.add("/old", "more", 0, at(5s));
  CHECK(queue.take("/old").bytes == "more");
  queue.lose("/old", 5, "the disk is full");
  queue.add("/old", "last", 0, at(6s));
  CHECK(queue.take("/old").bytes ==
        "\n[dtlaunch: 5 bytes are missing here: the disk is full]\nlast");
}

TEST_CASE("output queue: each file's output comes out in order, all but what was dropped",
          "[volume]") {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    OutputQueue queue(3000 + random() % 20'000);
    std::map<std::string, std::string> in;
    std::map<std::string, std::string> out;
    std::uint64_t noted = 0;
    const auto take = [&](OutputQueue::Append one) {
      if (one.mark > 0) noted += std::stoull(one.bytes.substr(std::string("\n[dtlaunch: ").size()));
      one.bytes.erase(0, one.mark);
      out[one.path] += one.bytes;
    };
    for (int i = 0; i < 3000; ++i) {
      const std::string path = fmt::format("/{}", random() % 7);
      const std::string bytes = fmt::format("<{}>", i) + std::string(random() % 100, '.');
      in[path] += bytes;
      queue.add(path, bytes, random() % 3 == 0 ? 4000 : 0, at(i * 1ms));
      if (random() % 5 == 0 && !queue.empty()) take(queue.take());
      if (random() % 9 == 0 && queue.oldest(path)) take(queue.take(path));
      if (queue.memory() > 23'000) FAIL("over the bound");
    }
    for (int i = 0; i < 7; ++i) {
      const std::string path = fmt::format("/{}", i);
      in[path] += "end";
      queue.add(path, "end", 0, at(1h));
    }
    while (!queue.empty()) take(queue.take());
    std::uint64_t missing = 0;
    for (auto& [path, all] : in) {
      missing += all.size() - out[path].size();
      // A subsequence: nothing is moved or written twice.
      std::size_t from = 0;
      for (const char c : out[path]) from = std::min(all.size(), all.find(c, from)) + 1;
      CHECK(from <= all.size());
    }
    CHECK(missing == queue.dropped_bytes());
    CHECK(noted <= missing);
    CHECK(queue.memory() == 0);
  }
}

TEST_CASE("output motion: a stall is told by its length", "[volume]") {
  supervisor::OutputMotion motion;
  motion.began(at(10s));
  CHECK_FALSE(motion.is_stalled(at(11900ms)));
  CHECK(motion.is_stalled(at(12s)));
  motion.moved(at(24s));
  CHECK_FALSE(motion.is_stalled(at(24s)));
  motion.moved(at(25s));
  CHECK(motion.last_stall() == 14s);
}

TEST_CASE("output delay: it begins once and is over once", "[volume]") {
  using News = OutputDelay::News;
  OutputDelay delay;
  CHECK(delay.look(9s) == News::kNone);
  CHECK(delay.look(10s) == News::kBegins);
  CHECK(delay.look(60s) == News::kNone);
  CHECK(delay.look(9s) == News::kNone);
  CHECK(delay.look(1s) == News::kOver);
  CHECK(delay.look(0s) == News::kNone);
  CHECK(delay.look(11s) == News::kBegins);
}
