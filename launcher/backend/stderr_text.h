/// A command's stderr: its end, for messages, and all of it for who takes it.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace dt::launcher {

class StderrText {
 public:
  using Take = std::function<void(std::string_view)>;

  void feed(std::string_view bytes) {
    if (take_) take_(bytes);
    kept_.append(bytes);
    if (kept_.size() > (is_taken_ ? 2 * kTail : kEarly)) kept_.erase(0, kept_.size() - kTail);
  }

  /// What came before, up to kEarly, and from now on each piece. Once.
  void on_text(Take take) {
    is_taken_ = true;
    take_ = std::move(take);
    if (!kept_.empty()) take_(kept_);
  }

  /// Nobody takes it any more.
  void close() {
    is_taken_ = true;
    take_ = nullptr;
  }

  /// The last 8 kB, trimmed.
  [[nodiscard]] std::string tail() const {
    std::string text = kept_.substr(kept_.size() - std::min(kept_.size(), kTail));
    text.resize(text.find_last_not_of("\r\n ") + 1);
    return text;
  }

 private:
  static constexpr std::size_t kTail = 8192;
  /// A command may have written much before the coroutine that started it runs again.
  static constexpr std::size_t kEarly = std::size_t{1} << 20;

  std::string kept_;
  Take take_;
  bool is_taken_ = false;
};

}  // namespace dt::launcher
