/// What the hosts of a swarm share: how its workers train, and the times of what has happened. One
/// thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "core/base/id.h"
#include "core/base/time.h"
#include "core/protocol/control_messages.h"

namespace dt::swarm {

/// How workers train: synchronous steps, so that all members are at the same step, and an epoch
/// that ends for all of them at once or over a while.
struct Course {
  Duration load{};  ///< From a worker's start until it opens the kvstore.
  Duration epoch = std::chrono::seconds(5);
  Duration spread{};  ///< Between the first and the last member's arrival.
  Duration step = std::chrono::milliseconds(200);
  Duration skew = std::chrono::milliseconds(20);  ///< A round is open for so long in each step.
  std::uint32_t epochs = 0;  ///< Then workers end with exit code 0. 0: they go on.
  bool may_open = true;      ///< Else workers wait before they open the kvstore.
};

/// Begin and end of what many do at about the same time.
struct Span {
  std::size_t count = 0;
  Time first;
  Time last;
  void add(Time at) {
    first = count++ == 0 ? at : std::min(first, at);
    last = std::max(last, at);
  }
};

/// A boundary as its workers see it.
struct BoundaryTimes {
  Span arrivals;  ///< Of members; of the first boundary: of everyone.
  Span releases;  ///< Newcomers' too.
  std::uint32_t world_size = 0;
};

/// A commit as the servers see it.
struct CommitTimes {
  std::size_t contributors = 0;
  Span received;
};

struct Tally {
  std::size_t waiting = 0;  ///< Workers that wait until they may open the kvstore.
  std::size_t warm = 0;     ///< Newcomers that have joined and are not released yet.
  Time last_warm;           ///< When the last of them came.
  std::map<Epoch, BoundaryTimes> boundaries;
  std::map<Generation, CommitTimes> commits;
};

struct World {
  Course course;
  Tally tally;
  std::set<ServerId> servers;    ///< That listen.
  std::set<WorkerId> connected;  ///< With connections to the servers that carry something.
  std::set<WorkerId> training;   ///< Released, and not yet at the next boundary.
  std::map<Epoch, Time> began;   ///< When an epoch's first worker was released.

  /// When a worker comes to the end of an epoch.
  [[nodiscard]] Time end_of(Epoch epoch, WorkerId worker) const {
    constexpr std::uint32_t kParts = 1000;
    const auto begin = began.find(epoch);
    const std::uint32_t part = worker.value * 7919 % (kParts + 1);
    return begin->second + course.epoch + course.spread / kParts * part;
  }
  /// What each server sees at `now`.
  [[nodiscard]] Traffic traffic(Time now) const {
    Traffic t;
    t.alive.assign(connected.begin(), connected.end());
    t.busy.assign(training.begin(), training.end());
    if (began.empty() || course.step <= Duration{}) return t;
    const bool is_open = (now - began.rbegin()->second) % course.step < course.skew;
    if (!is_open) return t;
    const auto half = t.busy.begin() + static_cast<std::ptrdiff_t>(t.busy.size() / 2);
    t.waiting.assign(t.busy.begin(), half);
    t.owing.assign(half, t.busy.end());
    return t;
  }
};

}  // namespace dt::swarm
