/// Values by an id that is given once, in rising order: one array, for state that every message
/// reads and writes for many ids. It takes one slot for each id up to the highest, so ids from
/// outside have to be checked before.
#pragma once

#include <optional>
#include <vector>

namespace dt {

template <class Key, class T>
class ById {
 public:
  /// The value at `key`; a new one if there is none.
  T& operator[](Key key) {
    if (key.value >= slots_.size()) slots_.resize(key.value + std::size_t{1});
    auto& slot = slots_[key.value];
    if (!slot) slot.emplace();
    return *slot;
  }
  /// Null: there is none.
  [[nodiscard]] T* find(Key key) {
    return key.value < slots_.size() && slots_[key.value] ? &*slots_[key.value] : nullptr;
  }
  [[nodiscard]] const T* find(Key key) const {
    return key.value < slots_.size() && slots_[key.value] ? &*slots_[key.value] : nullptr;
  }
  void erase(Key key) {
    if (key.value < slots_.size()) slots_[key.value].reset();
  }
  /// Calls `f(key, value)` for every value, in the order of the ids.
  template <class F>
  void each(F f) {
    for (std::size_t i = 0; i < slots_.size(); ++i)
      if (slots_[i]) f(Key(static_cast<typename Key::rep>(i)), *slots_[i]);
  }
  template <class F>
  void each(F f) const {
    for (std::size_t i = 0; i < slots_.size(); ++i)
      if (slots_[i]) f(Key(static_cast<typename Key::rep>(i)), *slots_[i]);
  }

 private:
  std::vector<std::optional<T>> slots_;
};

}  // namespace dt
