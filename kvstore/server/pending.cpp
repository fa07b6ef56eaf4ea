#include "kvstore/server/pending.h"

#include <algorithm>
#include <iterator>

namespace dt::kv {

PendingRequests::What PendingRequests::what(const data::Header& header) {
  const bool is_of_a_chunk = header.type == data::Type::kInit;
  const std::uint64_t key = header.key.value;
  return {header.type, is_of_a_chunk ? (key << 32) | header.chunk : 0};
}

bool PendingRequests::put(const data::Header& header, Payload payload) {
  Frame frame{header, std::move(payload)};
  const std::size_t bytes = cost(frame);
  std::size_t& of_worker = worker_bytes_[header.worker];
  if (of_worker + bytes > limits_.worker_bytes || bytes_ + bytes > limits_.all_bytes) {
    if (of_worker == 0) worker_bytes_.erase(header.worker);
    return false;
  }
  of_worker += bytes;
  bytes_ += bytes;
  frames_[what(header)].push_back(std::move(frame));
  return true;
}

void PendingRequests::leaves(const Frame& frame) {
  const auto of_worker = worker_bytes_.find(frame.header.worker);
  of_worker->second -= cost(frame);
  if (of_worker->second == 0) worker_bytes_.erase(of_worker);
  bytes_ -= cost(frame);
}

std::vector<PendingRequests::Frame> PendingRequests::take(const What& what) {
  auto found = frames_.extract(what);
  if (!found) return {};
  for (const Frame& frame : found.mapped()) leaves(frame);
  return std::move(found.mapped());
}

std::vector<PendingRequests::Frame> PendingRequests::take_all() {
  std::vector<Frame> all;
  for (auto& [what, frames] : frames_) std::ranges::move(frames, std::back_inserter(all));
  frames_.clear();
  worker_bytes_.clear();
  bytes_ = 0;
  return all;
}

void PendingRequests::forget(WorkerId worker) {
  if (!worker_bytes_.contains(worker)) return;
  for (auto it = frames_.begin(); it != frames_.end();) {
    std::erase_if(it->second, [&](const Frame& frame) {
      const bool is_of_worker = frame.header.worker == worker;
      if (is_of_worker) leaves(frame);
      return is_of_worker;
    });
    it = it->second.empty() ? frames_.erase(it) : std::next(it);
  }
}

}  // namespace dt::kv
