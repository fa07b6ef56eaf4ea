#include "core/checkpoints.h"

#include <algorithm>

namespace dt {

bool Checkpoints::is_wanted(Epoch epoch) const {
  return every_ > 0 && epoch.value % every_ == 0 && (!last_begun_ || epoch > *last_begun_);
}

void Checkpoints::begin(Epoch epoch, Generation generation) {
  saving_ = Saving{epoch, generation, {}, false};
  last_begun_ = epoch;
}

void Checkpoints::taken(Epoch epoch) {
  std::erase_if(whole_, [epoch](Epoch other) { return other >= epoch; });
  whole_.push_back(epoch);
  if (whole_.size() > keep_) whole_.erase(whole_.begin());
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
