#include "core/job/checkpoints.h"

#include <algorithm>
#include <utility>

namespace dt {

bool Checkpoints::is_wanted(Epoch epoch, Time now) const {
  if (last_begun_ && epoch <= *last_begun_) return false;
  if (policy_.every > 0) return epoch.value % policy_.every == 0;
  if (policy_.interval == Duration{} || !has_place_) return false;
  return !begun_at_ || now - *begun_at_ >= std::max(policy_.interval, kLeastShare * took_);
}

bool Checkpoints::place_is(std::string why_not) {
  const bool is_news = has_place_ ? !why_not.empty() : why_not != no_place_;
  has_place_ = why_not.empty();
  no_place_ = std::move(why_not);
  return is_news;
}

bool Checkpoints::is_late() {
  const bool was_noted = std::exchange(saving_->is_late_noted, true);
  return policy_.every > 0 || !was_noted;
}

void Checkpoints::begin(Epoch epoch, Generation generation, Time now) {
  saving_ = Saving{epoch, generation, {}, false, now, false};
  last_begun_ = epoch;
  begun_at_ = now;
}

void Checkpoints::timed(Time began, Duration took, std::uint64_t bytes) {
  begun_at_ = began;
  took_ = took;
  bytes_ = bytes;
}

void Checkpoints::taken(Epoch epoch) {
  std::erase_if(whole_, [epoch](Epoch other) { return other >= epoch; });
  whole_.push_back(epoch);
  if (whole_.size() > policy_.keep) whole_.erase(whole_.begin());
  saving_.reset();
}

std::optional<Epoch> Checkpoints::newest_but(Epoch epoch) const {
  const auto last =
      std::find_if(whole_.rbegin(), whole_.rend(), [epoch](Epoch other) { return other != epoch; });
  return last == whole_.rend() ? std::nullopt : std::optional(*last);
}

void Checkpoints::roll_back(Epoch epoch) {
  saving_.reset();
  last_begun_ = epoch;
}

bool Checkpoints::add(ServerId server, Generation generation, File file, std::size_t servers) {
  if (!is_about(generation) || saving_->is_sealing) return false;
  saving_->files[server] = file;
  saving_->is_sealing = saving_->files.size() == servers;
  return saving_->is_sealing;
}

}  // namespace dt
