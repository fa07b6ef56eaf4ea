// A member that sends anything: data frames cut from arbitrary bytes, decoded, checked and
// handled by a server's shard with two contributors, as in kvstore/server/server.cpp.

#include <cstdint>
#include <cstring>
#include <string_view>

#include "kvstore/server/shard.h"
#include "test/fuzz/target.h"

using namespace dt;

namespace {

class Nobody final : public kv::Answers {
 public:
  void answer(WorkerId, const data::Header&, std::shared_ptr<const kv::Payload>) override {}
};

}  // namespace

DT_FUZZ_TARGET(data_frame)
(const std::uint8_t* bytes, std::size_t size) {
  std::string_view in(reinterpret_cast<const char*>(bytes), size);
  Nobody nobody;
  kv::ShardOptions options;
  options.is_registrar = true;
  kv::Shard shard(options, nobody);
  ServerCommit commit;
  commit.generation = Generation(1);
  commit.contributors = {WorkerId(0), WorkerId(1)};
  shard.commit(commit, Time{});
  while (in.size() >= data::kHeaderBytes) {
    const auto header = data::decode(in.substr(0, data::kHeaderBytes));
    in.remove_prefix(data::kHeaderBytes);
    if (!header || !shard.check(*header) || header->payload > in.size()) return 0;
    kv::Payload payload = shard.take(*header);
    if (header->payload > 0) std::memcpy(payload.data(), in.data(), header->payload);
    in.remove_prefix(header->payload);
    shard.handle(*header, std::move(payload), Time{});
  }
  shard.expire(Time(std::chrono::seconds(3600)));
  return 0;
}
