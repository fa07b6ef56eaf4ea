/// Deaths of members, and starts that failed while no member was alive, since an epoch was
/// completed: with too many of them the job makes no progress. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace dt {

class FutileTries {
 public:
  void add(std::string why) {
    ++count_;
    why_ = std::move(why);
  }
  void reset() { count_ = 0; }

  [[nodiscard]] std::uint32_t count() const { return count_; }
  /// Why the last one failed.
  [[nodiscard]] const std::string& why() const { return why_; }

 private:
  std::uint32_t count_ = 0;
  std::string why_;
};

}  // namespace dt
