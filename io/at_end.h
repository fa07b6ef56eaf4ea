/// What is done at the end of a scope, however that ends: a coroutine may be destroyed while it
/// waits.
#pragma once

#include <utility>

namespace dt::io {

template <class Act>
class AtEnd {
 public:
  explicit AtEnd(Act act) : act_(std::move(act)) {}
  ~AtEnd() { act_(); }
  AtEnd(const AtEnd&) = delete;
  AtEnd& operator=(const AtEnd&) = delete;

 private:
  Act act_;
};

}  // namespace dt::io
