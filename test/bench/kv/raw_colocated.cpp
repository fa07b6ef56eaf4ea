// The floor over TCP where every process is a worker and a server: a process owns a share of the
// list, sums the others' contributions into its own gradient's share, and sends the sums back. The
// sockets carry as many bytes as a ring all-reduce.
//
// Two connections per pair of processes, one for each process's part as a server, so that here too
// a position in the stream identifies a byte.

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "test/bench/kv/raw_exchange.h"
#include "test/bench/kv/raw_parts.h"
#include "test/bench/kv/stream.h"
#include "test/bench/kv/worker.h"

namespace dt::bench {

namespace {

/// The connections of a process with another process.
struct Peering {
  io::Fd server;  ///< The other one is the server: our contribution out, its sums in.
  io::Fd client;  ///< We are the server: its contribution in, our sums out.
};

class Colocated final : public Exchange {
 public:
  Colocated(const std::vector<Stream>& streams, std::size_t me, std::vector<Peering> peers,
            std::size_t elements, Duration busy)
      : streams_(streams),
        me_(me),
        peers_(std::move(peers)),
        busy_(busy),
        scratch_(kScratch / sizeof(float)),
        gradient_(elements),
        result_(elements) {}

  std::span<float> gradient() override { return gradient_.values(); }
  std::span<const float> result() override { return result_.values(); }

  void run() override {
    if (peers_.size() == 1) {
      std::ranges::copy(gradient_.values(), result_.values().begin());
      return;
    }
    filled_ = 0;
    links_.assign(peers_.size(), Link());
    std::vector<pollfd> polls(2 * peers_.size(), pollfd{-1, 0, 0});
    for (;;) {
      for (std::size_t p = 0; p < peers_.size(); ++p)
        if (p != me_) take(p, polls[2 * p].revents, polls[2 * p + 1].revents);
      bool is_done = true;
      for (std::size_t p = 0; p < peers_.size(); ++p) {
        if (p == me_) continue;
        give(p);
        is_done = is_done && is_through(p);
        polls[2 * p] = ask(peers_[p].server, links_[p].received < streams_[p].bytes(),
                           links_[p].sent < streams_[p].bytes());
        polls[2 * p + 1] =
            ask(peers_[p].client, links_[p].added<own_bytes(), worth_sending(links_[p])> 0);
      }
      if (is_done) return;
      wait_for(polls, busy_);
    }
  }

 private:
  struct Link {
    // Where the other one is the server:
    std::size_t sent = 0;
    std::size_t received = 0;
    // Where we are:
    std::size_t added = 0;
    std::array<std::byte, sizeof(float)> torn{};
    std::size_t torn_bytes = 0;
    std::size_t replied = 0;
  };

  [[nodiscard]] std::size_t own_bytes() const { return streams_[me_].bytes(); }

  /// Receives the bytes that have arrived.
  void take(std::size_t p, short server_events, short client_events) {
    if (server_events & ~POLLOUT)
      receive(peers_[p].server, streams_[p], result_, links_[p].received);
    if (client_events & ~POLLOUT) add(p, links_[p]);
  }

  /// Sends what is ready, as far as the sockets accept it.
  void give(std::size_t p) {
    Link& link = links_[p];
    send(peers_[p].server, streams_[p], gradient_, link.sent, streams_[p].bytes());
    send(peers_[p].client, streams_[me_], result_, link.replied,
         link.replied + worth_sending(link));
  }

  [[nodiscard]] bool is_through(std::size_t p) const {
    const Link& link = links_[p];
    const std::size_t theirs = streams_[p].bytes();
    return link.sent == theirs && link.received == theirs && link.added == own_bytes() &&
           link.replied == own_bytes();
  }

  static pollfd ask(const io::Fd& fd, bool in, bool out) {
    return {in || out ? fd.get() : -1, static_cast<short>((in ? POLLIN : 0) | (out ? POLLOUT : 0)),
            0};
  }

  /// Adds the other process's contribution to this one's share: to this one's gradient if it is
  /// first.
  void add(std::size_t p, Link& link) {
    for (std::size_t turn = 0; turn < kTurn && link.added < own_bytes();) {
      const bool is_first = link.added == filled_;
      const std::size_t end = is_first ? own_bytes() : filled_;
      const std::size_t room = std::min(kScratch, end - link.added) - link.torn_bytes;
      const auto n =
          ::recv(peers_[p].client.get(), scratch_.bytes() + link.torn_bytes, room, MSG_DONTWAIT);
      if (n < 0 && would_block()) return;
      if (n <= 0) fail_socket(n < 0 ? errno : ECONNRESET);
      std::memcpy(scratch_.bytes(), link.torn.data(), link.torn_bytes);
      const std::size_t have = link.torn_bytes + static_cast<std::size_t>(n);
      const std::size_t ready = whole_floats(have);
      const float* from = scratch_.values().data();
      streams_[me_].for_each(link.added, ready, [&](std::size_t offset, std::size_t bytes) {
        float* into = result_.values().data() + offset / sizeof(float);
        const float* own = gradient_.values().data() + offset / sizeof(float);
        if (is_first)
          sum_(into, own, from, bytes / sizeof(float));
        else
          add_(into, from, bytes / sizeof(float));
        from += bytes / sizeof(float);
      });
      link.torn_bytes = have - ready;
      std::memcpy(link.torn.data(), scratch_.bytes() + ready, link.torn_bytes);
      link.added += ready;
      if (is_first) filled_ = link.added;
      turn += static_cast<std::size_t>(n);
    }
  }

  /// Bytes of this process's share that have all contributions.
  [[nodiscard]] std::size_t complete() const {
    std::size_t least = own_bytes();
    for (std::size_t p = 0; p < links_.size(); ++p)
      if (p != me_) least = std::min(least, links_[p].added);
    return least;
  }

  /// Sums that may go out: in pieces worth a system call, but for the last one.
  [[nodiscard]] std::size_t worth_sending(const Link& link) const {
    const std::size_t ready = complete();
    const std::size_t bytes = ready - link.replied;
    return ready == own_bytes() || bytes >= kScratch ? bytes : 0;
  }

  const std::vector<Stream>& streams_;
  std::size_t me_;
  std::vector<Peering> peers_;
  Duration busy_;
  std::vector<Link> links_;
  std::size_t filled_ = 0;  ///< Bytes of this process's share with at least one other contribution.
  Buffer scratch_;
  Buffer gradient_;
  Buffer result_;
  AddFloats add_ = best_add();
  SumFloats sum_ = best_sum();
};

}  // namespace

Contender start_raw_colocated(const KvOptions& options, const TensorList& list) {
  Contender raw("raw-colocated", options, list);
  const std::size_t size = options.workers;
  const auto streams = streams_of(list.elements, options.workers, options.chunk_bytes);
  std::vector<std::vector<Peering>> all(size);  // [process][other]
  for (auto& row : all) row.resize(size);
  for (std::size_t a = 0; a < size; ++a) {
    for (std::size_t b = 0; b < size; ++b) {
      if (a == b) continue;
      SocketPair pair = connected_pair();
      all[a][b].server = std::move(pair.connected);
      all[b][a].client = std::move(pair.accepted);
    }
  }
  raw.children.fork("raw process", options.workers, [&](std::uint32_t w) {
    std::vector<Peering> mine = std::move(all[w]);
    all.clear();
    Colocated process(streams, w, std::move(mine), list.total_elements(), options.busy_poll);
    take_part(raw.control, w, process);
  });
  return raw;
}

}  // namespace dt::bench
