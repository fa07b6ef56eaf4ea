#include <utility>

#include "test/sim/cluster.h"

namespace dt::sim {

using namespace std::chrono_literals;

void Cluster::plan_clocks() {
  if (clock_rng_.chance(0.15) || kinds_.clocks)
    after(clock_rng_.time(1s, 10s), [this] { step_clock(); });
  if (clock_rng_.chance(0.1) || kinds_.full_disk)
    after(clock_rng_.time(1s, 20s), [this] { fill_disk(); });
}

void Cluster::step_clock() {
  if (healed_ || over_) return;
  const Duration most = clock_rng_.chance(0.3) ? Duration(4h) : Duration(20s);
  const Duration by = clock_rng_.time(0s, 2 * most) - most;
  wall_ahead_ += by;
  trace(54, 0, "!! the wall clock steps by {:.1f} s", seconds(by));
  has_stepped_ = true;
  after(clock_rng_.time(2s, 20s), [this] { step_clock(); });
}

void Cluster::fill_disk() {
  if (healed_ || over_) return;
  trace(55, 0, "!! the journal's disk is full");
  is_disk_full_ = true;
  excuse();
  after(clock_rng_.time(100ms, 15s), [this] { is_disk_full_ = false; });
  after(clock_rng_.time(20s, 60s), [this] { fill_disk(); });
}

void Cluster::look_at_room() {
  if (!room_.is_due(now_) || second_.is_doubtful) return;
  if (is_disk_full_) return room_.put_off("it is full", now_);
  trace(56, 0, "the journal can be written again");
  std::vector<Effect> effects = {room_.first()};
  for (Effect& effect : room_.let_go(now_)) effects.push_back(std::move(effect));
  const auto life = life_;
  carry_out(effects);
  while (alive_ && life == life_ && !room_.is_out() && !waiting_.empty()) {
    const JobEvent event = std::move(waiting_.front());
    waiting_.pop_front();
    feed(event);
  }
}

}  // namespace dt::sim
