#include "supervisor/volume/output_credit.h"

namespace dt::supervisor {
namespace {

/// Less is not worth a message, and a host with less unused than that is short of it.
constexpr std::uint64_t kLeastGrant = kFirstOutputRoom / 2;
constexpr int kOfLate = 10;  ///< Repeats.

}  // namespace

template <class Change>
void OutputCredit::change(Account& account, Change change) {
  used_ -= account.share();
  change(account);
  used_ += account.share();
}

void OutputCredit::begin(const Host& host) {
  change(accounts_[host], [](Account& a) { a.granted = kFirstOutputRoom, a.received = 0; });
}

void OutputCredit::received(const Host& host, std::uint64_t bytes, const std::string& file,
                            std::uint64_t stored) {
  Account& account = accounts_[host];
  change(account, [&](Account& a) {
    a.received += bytes;
    a.quiet = 0;
    a.granted = std::max(a.granted, a.received);
    a.waits += stored;
  });
  if (stored > 0) {
    File& of_file = files_[file];
    of_file.host = host;
    of_file.waits += stored;
  }
  grant(host, account);
}

void OutputCredit::written(const std::string& file, std::uint64_t bytes) {
  is_stalled_ = false;
  const auto found = files_.find(file);
  if (found == files_.end()) return;
  const Host host = found->second.host;
  bytes = std::min(bytes, found->second.waits);
  found->second.waits -= bytes;
  if (found->second.waits == 0) files_.erase(found);
  Account& account = accounts_[host];
  change(account, [bytes](Account& a) { a.waits -= std::min(a.waits, bytes); });
  grant(host, account);
}

void OutputCredit::grant(const Host& host, Account& account) {
  // As much of the shared room as stays free after it.
  const std::uint64_t others = used_ - account.share();
  const std::uint64_t half = (shared_ - std::min(shared_, others)) / 2;
  const std::uint64_t most = kFirstOutputRoom + std::max(account.share(), half);
  const std::uint64_t now = account.unused() + account.waits;
  const std::uint64_t more = most - std::min(most, now);
  if (more < std::max(kLeastGrant, account.unused())) return;
  if (give_(host, {account.granted + more, is_stalled_}))
    change(account, [more](Account& a) { a.granted += more; });
}

void OutputCredit::repeat(bool is_stalled) {
  is_stalled_ = is_stalled;
  for (auto& [host, account] : accounts_)
    if (account.unused() < kLeastGrant || account.quiet++ < kOfLate)
      give_(host, {account.granted, is_stalled});
}

}  // namespace dt::supervisor
