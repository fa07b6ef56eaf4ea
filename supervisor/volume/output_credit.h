/// How much output each host may send, so that what waits for the shared volume is bounded and
/// nothing of it is dropped. Pure: what is granted goes out through a function.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "core/files/hosts.h"
#include "core/protocol/control_messages.h"

namespace dt::supervisor {

/// What hosts may send and have not sent, and what came and is not written, is never more than the
/// shared room and kFirstOutputRoom for each host. Whoever sends much gets of the shared room what
/// the others have not, but for as much again, which stays free for more hosts.
class OutputCredit {
 public:
  /// False: the host is out of reach; the grant does not count.
  using Give = std::function<bool(const Host&, const OutputRoom&)>;

  OutputCredit(std::uint64_t shared, Give give) : shared_(shared), give_(std::move(give)) {}

  /// The host's link is, or will be, a new one: what was granted over the last one is void. If
  /// output waits, the bound is exceeded by the new link's kFirstOutputRoom.
  void begin(const Host& host);
  /// Output has come, of which `stored` bytes wait to be written to `file`.
  void received(const Host& host, std::uint64_t bytes, const std::string& file,
                std::uint64_t stored);
  /// Bytes of this file do not wait any more: they are written, or lost.
  void written(const std::string& file, std::uint64_t bytes);
  /// Once a second: hosts that have used up most of theirs, or have sent something of late, get a
  /// sign of life, and learn whether the volume stalls. All that they may send can be on its way.
  void repeat(bool is_stalled);

 private:
  struct Account {
    std::uint64_t granted = kFirstOutputRoom;  ///< Over the present link.
    std::uint64_t received = 0;                ///< Over the present link.
    std::uint64_t waits = 0;                   ///< Bytes that are not written.
    int quiet = 0;                             ///< Repeats since something came.

    [[nodiscard]] std::uint64_t unused() const { return granted - received; }
    /// What it has of the shared room.
    [[nodiscard]] std::uint64_t share() const {
      const std::uint64_t all = unused() + waits;
      return all - std::min(all, kFirstOutputRoom);
    }
  };
  struct File {
    Host host;
    std::uint64_t waits = 0;
  };

  /// Changes an account, and with it the sum of all shares.
  template <class Change>
  void change(Account& account, Change change);
  void grant(const Host& host, Account& account);

  std::uint64_t shared_;
  std::uint64_t used_ = 0;  ///< Sum of all shares.
  bool is_stalled_ = false;
  Give give_;
  std::map<Host, Account> accounts_;
  std::map<std::string, File> files_;  ///< Those for which something waits.
};

}  // namespace dt::supervisor
