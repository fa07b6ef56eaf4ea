#include "launcher/backend/ssh/splice.h"

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <string>

namespace dt::launcher {
namespace {

io::awaitable<void> copy(io::ByteStream& from, io::ByteStream& to) {
  std::string buffer(std::size_t{16} << 10, '\0');
  for (;;) {
    auto n = co_await from.read(buffer);
    if (!n || *n == 0) break;
    const std::string_view bytes(buffer.data(), *n);
    auto sent = co_await to.write(bytes);
    if (!sent) break;
  }
  from.close();
  to.close();
}

}  // namespace

io::awaitable<void> splice(std::unique_ptr<SshStream> channel, io::UnixSocket socket) {
  const auto local = io::unix_stream(std::move(socket));
  using namespace io::asio::experimental::awaitable_operators;
  auto both = copy(*channel, *local) && copy(*local, *channel);
  co_await std::move(both);
}

}  // namespace dt::launcher
