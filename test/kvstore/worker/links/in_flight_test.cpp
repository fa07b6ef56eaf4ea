#include "kvstore/worker/links/in_flight.h"

#include "test/support/catch.h"

using namespace dt;
using namespace dt::kv;

namespace {

Request numbered(std::uint32_t chunk) {
  Request request;
  request.header.chunk = chunk;
  return request;
}

}  // namespace

TEST_CASE("sent requests: one that waits long keeps no more than itself", "[sent_requests]") {
  SentRequests sent;
  Request& barrier = sent.add(numbered(1));
  const std::uint64_t number = barrier.header.request;
  std::uint64_t last = number;
  for (std::uint32_t i = 0; i < 100'000; ++i) {
    Request& request = sent.add(numbered(i));
    REQUIRE(request.header.request > last);
    last = request.header.request;
    CHECK(sent.take(request).header.chunk == i);
    CHECK_FALSE(sent.find(last));
  }
  CHECK(sent.capacity() <= 2);
  CHECK(sent.find(number) == &barrier);
  CHECK_FALSE(sent.find(0));
  CHECK_FALSE(sent.empty());
  (void)sent.take(barrier);
  CHECK(sent.empty());
}

TEST_CASE("sent requests: they are sent again in the order they were sent first",
          "[sent_requests]") {
  SentRequests sent;
  std::vector<Request*> all;
  for (std::uint32_t i = 0; i < 10; ++i) all.push_back(&sent.add(numbered(i)));
  for (const std::size_t i : {8U, 2U, 5U}) (void)sent.take(*all[i]);
  for (std::uint32_t i = 10; i < 14; ++i) sent.add(numbered(i));
  std::vector<std::uint32_t> order;
  for (const Request* request : sent.all()) order.push_back(request->header.chunk);
  CHECK(order == std::vector<std::uint32_t>{0, 1, 3, 4, 6, 7, 9, 10, 11, 12, 13});
}
