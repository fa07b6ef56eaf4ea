#include "launcher/backend/ways_backend.h"

#include "io/asio.h"

namespace dt::launcher {

io::awaitable<Result<std::unique_ptr<io::ByteStream>>> WaysBackend::open(
    Host host, std::vector<std::string> argv) {
  auto opened = co_await of(host).open(host, std::move(argv));
  if (opened) co_return std::move(opened);
  const std::string remark = remark_(host);
  if (remark.empty()) co_return std::move(opened);
  co_return fail(opened.error().kind, "{} ({})", opened.error().message, remark);
}

}  // namespace dt::launcher
