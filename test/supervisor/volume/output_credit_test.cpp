#include "supervisor/volume/output_credit.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "test/support/catch.h"

using namespace dt;
using supervisor::OutputCredit;

namespace {

constexpr std::uint64_t kShared = std::uint64_t{1} << 20;

struct Sender {
  std::uint64_t room = kFirstOutputRoom;
  std::uint64_t sent = 0;   ///< Over this link.
  std::uint64_t waits = 0;  ///< Not written.
  std::uint64_t all = 0;
  bool is_up = true;
};

/// Hosts by their number, and a volume.
struct Senders {
  std::vector<Sender> of;
  int messages = 0;
  OutputCredit credit{kShared, [this](const Host& host, const OutputRoom& room) {
                        Sender& sender = of[host.port];
                        if (sender.is_up) sender.room = room.bytes, ++messages;
                        return sender.is_up;
                      }};

  static Host host(std::size_t i) {
    Host out;
    out.name = "h";
    out.port = static_cast<std::uint16_t>(i);
    return out;
  }
  static std::string file(std::size_t i) { return std::to_string(i); }
  void send(std::size_t i, std::uint64_t most) {
    Sender& sender = of[i];
    const std::uint64_t n = std::min(most, sender.room - sender.sent);
    if (!sender.is_up || n == 0) return;
    sender.sent += n, sender.waits += n, sender.all += n;
    credit.received(host(i), n, file(i), n);
  }
  void write(std::size_t i, std::uint64_t most) {
    const std::uint64_t n = std::min(most, of[i].waits);
    of[i].waits -= n;
    credit.written(file(i), n);
  }
  [[nodiscard]] std::uint64_t granted() const {
    return std::accumulate(of.begin(), of.end(), std::uint64_t{0}, [](auto sum, const Sender& s) {
      return sum + s.waits + s.room - s.sent;
    });
  }
};

}  // namespace

TEST_CASE("output credit: never more than the bound, nobody is forgotten, links come and go",
          "[volume]") {
  for (unsigned seed = 0; seed < 10; ++seed) {
    std::mt19937 random(seed);
    Senders senders;
    senders.of.resize(1 + random() % 20);
    const std::uint64_t bound = kShared + senders.of.size() * kFirstOutputRoom;
    for (int step = 0; step < 3000; ++step) {
      const std::size_t i = random() % senders.of.size();
      Sender& sender = senders.of[i];
      switch (random() % 20) {
        case 0:
          sender.is_up = false;
          break;
        case 1:
          senders.write(i, sender.waits);
          senders.credit.begin(Senders::host(i));
          sender = {kFirstOutputRoom, 0, sender.waits, sender.all, true};
          break;
        case 2:
          senders.credit.repeat(false);
          break;
        default:
          random() % 2 ? senders.send(i, random() % 100'000) : senders.write(i, random() % 100'000);
      }
      if (senders.granted() > bound) FAIL("seed " << seed << ": " << senders.granted());
    }
    for (std::size_t i = 0; i < senders.of.size(); ++i) {
      senders.credit.begin(Senders::host(i));
      senders.of[i] = {kFirstOutputRoom, 0, senders.of[i].waits, 0, true};
    }
    // Each one sends ten times the bound, though they are not written in turn.
    for (int step = 0; step < 200'000; ++step) {
      senders.send(random() % senders.of.size(), 1 << 16);
      senders.write(random() % senders.of.size(), 1 << 16);
    }
    for (const Sender& sender : senders.of) CHECK(sender.all > 10 * bound / senders.of.size());
  }
}

TEST_CASE("output credit: a host alone gets half of the room, and few messages", "[volume]") {
  Senders senders;
  senders.of.resize(1);
  senders.send(0, kFirstOutputRoom);
  CHECK(senders.of[0].room == kFirstOutputRoom + kShared / 2);
  for (int i = 0; i < 1000; ++i) senders.send(0, 10'000), senders.write(0, 10'000);
  CHECK(senders.of[0].all > 9'000'000);
  CHECK(senders.messages < 60);
}

TEST_CASE("output credit: who has sent all hears of it before it comes, and who is quiet does not",
          "[volume]") {
  Senders senders;
  senders.of.resize(1);
  senders.send(0, kFirstOutputRoom);
  senders.write(0, kFirstOutputRoom);
  const auto repeats = [&](int times) {
    const int before = senders.messages;
    for (int i = 0; i < times; ++i) senders.credit.repeat(false);
    return senders.messages - before;
  };
  CHECK(repeats(5) == 5);
  CHECK(repeats(1000) < 10);
}
