/// Keeps the answers that a part of a shard gives.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "kvstore/server/answers.h"
#include "test/support/catch.h"

namespace dt::test {

struct RecordedAnswers final : kv::Answers {
  struct Answer {
    WorkerId to;
    data::Header header;
    std::string payload;
  };
  void answer(WorkerId to, const data::Header& header,
              std::shared_ptr<const kv::Payload> payload) override {
    all.push_back({to, header, payload ? std::string(payload->text()) : std::string()});
  }
  [[nodiscard]] data::Failure failure(std::size_t at) const {
    REQUIRE(all.at(at).header.type == data::Type::kFailed);
    return wire::parse<data::Failure>(all[at].payload).value();
  }
  std::vector<Answer> all;
};

inline std::vector<float> floats_of(std::string_view payload) {
  std::vector<float> out(payload.size() / sizeof(float));
  std::memcpy(out.data(), payload.data(), payload.size());
  return out;
}

}  // namespace dt::test
