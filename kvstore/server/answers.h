/// The answers to workers' requests.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "kvstore/compute/payload.h"
#include "kvstore/protocol/messages.h"

namespace dt::kv {

class Answers {
 public:
  virtual ~Answers() = default;
  /// Where they go. A worker without a connection gets none: it resends the request after it has
  /// reconnected.
  virtual void answer(WorkerId to, const data::Header& header,
                      std::shared_ptr<const Payload> payload) = 0;

  void reply(const data::Header& to, data::Type type, std::shared_ptr<const Payload> payload = {}) {
    data::Header header = to;
    header.type = type;
    const bool is_in_place = type == data::Type::kValue && !payload;
    if (!is_in_place) header.flags &= static_cast<std::uint8_t>(~data::kShared);
    header.payload = payload ? static_cast<std::uint32_t>(payload->size()) : 0;
    answer(to.worker, header, std::move(payload));
  }
  template <class Message>
  void reply_with(const data::Header& to, data::Type type, const Message& message) {
    reply(to, type, std::make_shared<Payload>(wire::body_of(message)));
  }
  void refuse(const data::Header& to, const data::Failure& why) {
    reply_with(to, data::Type::kFailed, why);
  }
  template <class... Args>
  void refuse(const data::Header& to, data::Code code, fmt::format_string<Args...> text,
              Args&&... args) {
    refuse(to, {code, fmt::format(text, std::forward<Args>(args)...)});
  }
};

}  // namespace dt::kv
