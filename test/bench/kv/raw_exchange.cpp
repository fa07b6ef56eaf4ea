// The floor over TCP.
//
//     worker w, per server: gathers its slices out of one buffer, sends, receives the sums in place
//     server s: the first contribution to reach a position is received straight into the
//               accumulator, the others into a buffer that stays in the cache and are added from
//               there; positions with all contributions are sent back from the accumulator
//
// poll(), non-blocking vectored calls, reno (bbr paces, and halves loopback's rate). Two
// accumulators take turns, since a worker may begin the next round while another still receives
// this one.

#include "test/bench/kv/raw_exchange.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "io/fd.h"
#include "test/bench/kv/raw_parts.h"
#include "test/bench/kv/stream.h"
#include "test/bench/kv/worker.h"

namespace dt::bench {

namespace {

// ---------------------------------------------------------------- worker

class RawWorker final : public Exchange {
 public:
  RawWorker(const std::vector<Stream>& streams, std::vector<io::Fd> fds, std::size_t elements,
            Duration busy)
      : streams_(streams),
        fds_(std::move(fds)),
        busy_(busy),
        gradient_(elements),
        result_(elements) {}

  std::span<float> gradient() override { return gradient_.values(); }
  std::span<const float> result() override { return result_.values(); }

  void run() override {
    std::vector<Position> at(fds_.size());
    std::vector<pollfd> polls(fds_.size());
    for (;;) {
      bool is_done = true;
      for (std::size_t s = 0; s < fds_.size(); ++s) {
        const std::size_t bytes = streams_[s].bytes();
        send(fds_[s], streams_[s], gradient_, at[s].sent, bytes);
        if (polls[s].revents != 0) receive(fds_[s], streams_[s], result_, at[s].received);
        const int wanted =
            (at[s].received < bytes ? POLLIN : 0) | (at[s].sent < bytes ? POLLOUT : 0);
        polls[s] = {wanted ? fds_[s].get() : -1, static_cast<short>(wanted), 0};
        if (wanted) is_done = false;
      }
      if (is_done) return;
      wait_for(polls, busy_);
    }
  }

 private:
  struct Position {
    std::size_t sent = 0;
    std::size_t received = 0;
  };

  const std::vector<Stream>& streams_;
  std::vector<io::Fd> fds_;
  Duration busy_;
  Buffer gradient_;
  Buffer result_;
};

// ---------------------------------------------------------------- server

class RawServer {
 public:
  RawServer(std::size_t bytes, std::vector<io::Fd> fds, Duration busy)
      : bytes_(bytes),
        fds_(std::move(fds)),
        busy_(busy),
        links_(fds_.size()),
        scratch_(kScratch / sizeof(float)) {
    for (auto& round : rounds_) round.sum = Buffer(bytes / sizeof(float));
  }

  /// Serves until the workers have ended.
  void run() {
    std::vector<pollfd> polls(fds_.size());
    for (;;) {
      for (std::size_t i = 0; i < fds_.size(); ++i) {
        const int wanted = (readable_bytes(i) > 0 ? POLLIN : 0) | (links_[i].is_full ? POLLOUT : 0);
        polls[i] = {fds_[i].get(), static_cast<short>(wanted), 0};
      }
      wait_for(polls, busy_);
      for (std::size_t i = 0; i < fds_.size(); ++i) {
        if (polls[i].revents & POLLOUT) links_[i].is_full = false;
        if (polls[i].revents & (POLLHUP | POLLERR)) return;
        if ((polls[i].revents & POLLIN) && !receive(i)) return;
        for (std::size_t to = 0; to < fds_.size(); ++to)
          if (!links_[to].is_full && !reply(to)) return;
      }
    }
  }

 private:
  static constexpr std::size_t kNobody = ~std::size_t{0};

  /// A round's sum. [0, filled) holds contributions; a float that `writer` has received in part may
  /// follow.
  struct Round {
    std::uint64_t number = 0;
    std::size_t filled = 0;
    std::size_t writer = kNobody;
    Buffer sum;
  };
  struct Link {
    std::uint64_t round = 0;  ///< The round that is being received.
    std::size_t received = 0;
    std::array<std::byte, sizeof(float)> torn{};  ///< The received bytes of an incomplete float.
    std::size_t torn_bytes = 0;
    std::uint64_t reply_round = 0;
    std::size_t sent = 0;
    bool is_full = false;  ///< The socket accepts no more now.
  };

  Round& round_of(const Link& link) {
    Round& round = rounds_[link.round % 2];
    if (round.number != link.round) {  // the round before last, which all workers have left
      round.number = link.round;
      round.filled = 0;
      round.writer = kNobody;
    }
    return round;
  }

  /// Whether the next bytes from this connection go straight into the sum.
  bool writes(std::size_t i, const Round& round) const {
    return round.writer == i || (round.writer == kNobody && links_[i].received == round.filled);
  }

  /// Bytes that may be received now: 0 while they come after a float that another has begun.
  std::size_t readable_bytes(std::size_t i) {
    const Round& round = round_of(links_[i]);
    if (writes(i, round)) return bytes_ - links_[i].received;
    return std::min(kScratch, round.filled - links_[i].received) - links_[i].torn_bytes;
  }

  bool receive(std::size_t i) {
    Link& link = links_[i];
    for (std::size_t turn = 0; turn < kTurn;) {
      Round& round = round_of(link);
      const std::size_t room = std::min(kCall, readable_bytes(i));
      if (room == 0) return true;
      const bool straight = writes(i, round);
      std::byte* into =
          straight ? round.sum.bytes() + link.received : scratch_.bytes() + link.torn_bytes;
      const auto n = ::recv(fds_[i].get(), into, room, MSG_DONTWAIT);
      if (n < 0) return would_block();
      if (n == 0) return false;
      const auto got = static_cast<std::size_t>(n);
      turn += got;
      if (straight) {
        link.received += got;
        round.filled = whole_floats(link.received);
        round.writer = round.filled == link.received ? kNobody : i;
      } else {
        add_scratch(link, round, got);
      }
      if (link.received == bytes_) {
        ++link.round;
        link.received = 0;
      }
    }
    return true;
  }

  void add_scratch(Link& link, Round& round, std::size_t got) {
    std::memcpy(scratch_.bytes(), link.torn.data(), link.torn_bytes);
    const std::size_t have = link.torn_bytes + got;
    const std::size_t ready = whole_floats(have);
    add_(reinterpret_cast<float*>(round.sum.bytes() + link.received), scratch_.values().data(),
         ready / sizeof(float));
    link.torn_bytes = have - ready;
    std::memcpy(link.torn.data(), scratch_.bytes() + ready, link.torn_bytes);
    link.received += ready;
  }

  /// Bytes of a round's sum that have all contributions.
  [[nodiscard]] std::size_t complete(std::uint64_t number) const {
    std::size_t least = bytes_;
    for (const auto& link : links_)
      if (link.round <= number)
        least = std::min(least, link.round == number ? whole_floats(link.received) : 0);
    return least;
  }

  bool reply(std::size_t i) {
    Link& link = links_[i];
    const std::size_t ready = complete(link.reply_round);
    // In pieces worth a system call, but for the last one.
    while (ready > link.sent && (ready == bytes_ || ready - link.sent >= kScratch)) {
      const std::byte* from = rounds_[link.reply_round % 2].sum.bytes() + link.sent;
      const auto n = ::send(fds_[i].get(), from, std::min(kCall, ready - link.sent),
                            MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0) {
        link.is_full = would_block();
        return link.is_full;
      }
      link.sent += static_cast<std::size_t>(n);
      if (link.sent == bytes_) {
        link.sent = 0;
        ++link.reply_round;
        return true;
      }
    }
    return true;
  }

  std::size_t bytes_;
  std::vector<io::Fd> fds_;
  Duration busy_;
  std::vector<Link> links_;
  Buffer scratch_;
  std::array<Round, 2> rounds_;
  AddFloats add_ = best_add();
};

}  // namespace

Contender start_raw(const KvOptions& options, const TensorList& list) {
  Contender raw("raw", options, list);
  const auto streams = streams_of(list.elements, options.servers, options.chunk_bytes);
  std::vector<std::vector<SocketPair>> pairs(options.workers);  // [worker][server]
  for (auto& row : pairs)
    for (std::uint32_t s = 0; s < options.servers; ++s) row.push_back(connected_pair());
  // A child takes its own ends and closes all others, or an end would never be seen.
  raw.children.fork("raw server", options.servers, [&](std::uint32_t s) {
    std::vector<io::Fd> mine;
    for (auto& row : pairs) mine.push_back(std::move(row[s].accepted));
    pairs.clear();
    raw.control.server_ready(s, 0);
    RawServer(streams[s].bytes(), std::move(mine), options.busy_poll).run();
  });
  raw.children.fork("raw worker", options.workers, [&](std::uint32_t w) {
    std::vector<io::Fd> mine;
    for (auto& pair : pairs[w]) mine.push_back(std::move(pair.connected));
    pairs.clear();
    RawWorker worker(streams, std::move(mine), list.total_elements(), options.busy_poll);
    take_part(raw.control, w, worker);
  });
  return raw;
}

}  // namespace dt::bench
