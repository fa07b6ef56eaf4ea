#include "launcher/backend/lines_stream.h"

#include <string>

#include "core/launch/lines.h"
#include "io/asio.h"

namespace dt::launcher {
namespace {

using io::awaitable;

class LinesStream final : public io::ByteStream {
 public:
  explicit LinesStream(io::StreamPtr carrier) : carrier_(std::move(carrier)) {}

  awaitable<Result<std::size_t>> read(std::span<char> into) override {
    while (taken_ == decoded_.size()) {
      if (decoder_.has_ended()) co_return std::size_t{0};
      auto n = co_await carrier_->read(piece_);
      if (!n || *n == 0) co_return n;
      decoded_.clear();
      taken_ = 0;
      const auto fed = decoder_.feed({piece_.data(), *n}, decoded_);
      if (!fed) co_return tl::unexpected(fed.error());
    }
    const std::size_t n = decoded_.copy(into.data(), into.size(), taken_);
    taken_ += n;
    co_return n;
  }
  awaitable<Result<void>> write(std::string_view bytes) override {
    coded_.clear();
    append_lines(coded_, bytes);
    co_return co_await carrier_->write(coded_);
  }
  void close() override { carrier_->close(); }

 private:
  io::StreamPtr carrier_;
  LineDecoder decoder_;
  std::string piece_ = std::string(kMostInLine, '\0');
  std::string decoded_;
  std::size_t taken_ = 0;
  std::string coded_;
};

}  // namespace

io::StreamPtr lines_stream(io::StreamPtr carrier) {
  return std::make_unique<LinesStream>(std::move(carrier));
}

}  // namespace dt::launcher
