#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <set>

#include "test/kvstore/server/shard_bench.h"

using namespace dt;
using namespace dt::kv;
using namespace dt::test;

TEST_CASE("rounds: any interleaving of contributions, resends, finishes and commits is sound",
          "[shard][property]") {
  // A second, simpler model: every worker adds its own power of two, so that a round's value
  // identifies its contributors.
  const bool holds = rc::check(
      "nothing is lost or doubled and every round ends",
      [](const std::vector<std::uint8_t>& script) {
        constexpr std::uint32_t kWorkers = 4;
        ShardBench bench;
        std::uint64_t generation = 1;
        std::set<std::uint32_t> members;
        for (std::uint32_t w = 0; w < kWorkers; ++w) members.insert(w);
        bench.commit(generation, {members.begin(), members.end()});
        bench.init(0, 0);
        bench.take();

        std::uint64_t open = 1;
        std::set<std::uint32_t> in;        // counted in the open round
        std::set<std::uint32_t> finished;  // this epoch
        std::uint64_t phase = 0;
        std::map<std::uint32_t, std::uint64_t> last;  // each worker's last counted round
        auto settle = [&] {
          // Answers must come exactly when the open round is due, with exactly the counted
          // contributions.
          const bool due = !in.empty() && std::all_of(members.begin(), members.end(), [&](auto w) {
            return in.count(w) || finished.count(w);
          });
          float want = 0;
          for (auto w : in) want += static_cast<float>(1u << w);
          std::set<std::uint32_t> told;
          for (const auto& answer : bench.take()) {
            if (answer.header.type != data::Type::kValue || answer.header.round.value != open)
              continue;
            RC_ASSERT(due);
            RC_ASSERT(ShardBench::floats(answer.payload).at(0) == want);
            RC_ASSERT(told.insert(answer.to.value).second);
          }
          if (due) {
            RC_ASSERT(told == in);
            ++open;
            in.clear();
          }
          const bool all =
              !finished.empty() && std::all_of(members.begin(), members.end(),
                                               [&](auto w) { return finished.count(w) > 0; });
          if (all) {
            finished.clear();
            ++phase;
          }
        };
        for (const auto byte : script) {
          const std::uint32_t w = byte % kWorkers;
          switch (byte / kWorkers % 8) {
            case 0:
            case 1:
            case 2:
            case 3:  // the next contribution, or a resend of the present one
              if (members.count(w) && !finished.count(w)) {
                bench.push(w, open, static_cast<float>(1u << w), generation - byte % 2);
                in.insert(w);
                last[w] = open;
              } else if (!members.count(w)) {
                bench.push(w, open, 1000, generation);
                const auto answers = bench.take();
                RC_ASSERT(answers.size() == 1u);
                RC_ASSERT(ShardBench::code(answers[0]) == data::Code::kFenced);
              }
              break;
            case 4:  // a resend of an old one
              if (members.count(w) && last.count(w) && last[w] < open) {
                bench.push(w, last[w], static_cast<float>(1u << w), generation);
                const auto answers = bench.take();
                RC_ASSERT(answers.size() == 1u);
                const bool is_there = last[w] + 1 == open;  // else the value is a later round's
                RC_ASSERT((answers[0].header.type == data::Type::kValue) == is_there);
                if (!is_there) RC_ASSERT(ShardBench::code(answers[0]) == data::Code::kInvalid);
              }
              break;
            case 5:
            case 6:
              if (members.count(w)) {
                bench.finish(w, byte % 2 ? phase : phase == 0 ? 0 : phase - 1);
                if (byte % 2 || phase == 0) finished.insert(w);
              }
              break;
            case 7:  // death
              if (members.size() > 1 && members.count(w)) {
                members.erase(w);
                finished.erase(w);
                bench.commit(++generation, {members.begin(), members.end()});
              }
              break;
          }
          settle();
        }
        // Liveness: when every live worker contributes, the round ends.
        for (auto w : members) {
          if (finished.count(w) || in.count(w)) continue;
          bench.push(w, open, static_cast<float>(1u << w), generation);
          in.insert(w);
        }
        if (!in.empty()) {
          const auto before = open;
          settle();
          RC_ASSERT(open == before + 1);
        }
      });
  CHECK(holds);
}
