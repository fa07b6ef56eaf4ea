#include "launcher/backend/ssh/known_hosts.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "core/base/lookup.h"
#include "core/base/words.h"
#include "io/fd.h"
#include "launcher/backend/ssh/config_text.h"
#include "launcher/backend/ssh/ssh_bytes.h"

namespace dt::launcher {
namespace {

// SHA-1's own functions let the salt's half of each HMAC be done once, which EVP cannot; ten
// thousand hashed lines are looked through for every host.

/// SHA-1 after the block of a key xor'ed with HMAC's inner or outer pad.
SHA_CTX keyed(std::string_view key, std::uint8_t pad) {
  std::array<std::uint8_t, SHA_CBLOCK> block;
  block.fill(pad);
  for (std::size_t i = 0; i < std::min(key.size(), block.size()); ++i)
    block[i] = static_cast<std::uint8_t>(block[i] ^ static_cast<std::uint8_t>(key[i]));
  SHA_CTX sha;
  SHA1_Init(&sha);
  SHA1_Update(&sha, block.data(), block.size());
  return sha;
}

using Digest = std::array<unsigned char, SHA_DIGEST_LENGTH>;

template <class Bytes>
Digest digest_of(SHA_CTX state, const Bytes& message) {
  Digest digest;
  SHA1_Update(&state, message.data(), message.size());
  SHA1_Final(digest.data(), &state);
  return digest;
}

}  // namespace

std::string known_hosts_name(std::string_view name, std::uint16_t port) {
  const std::string low = lower_case(name);
  return port == 0 || port == 22 ? low : fmt::format("[{}]:{}", low, port);
}

KnownHosts::KnownHosts(std::vector<std::string> files) {
  for (std::string& path : files) files_.push_back(File{std::move(path), {}});
  DT_CHECK(!files_.empty(), "a KnownHosts has at least one file");
}

KnownHosts::Stamp KnownHosts::stamp_of(const struct stat& file) {
  return {std::int64_t{file.st_mtim.tv_sec} * 1'000'000'000 + file.st_mtim.tv_nsec, file.st_size};
}

void KnownHosts::refresh() {
  bool changed = false;
  for (File& file : files_) {
    struct stat s {};
    const bool is_there = ::stat(file.path.c_str(), &s) == 0;
    const Stamp stamp = is_there ? stamp_of(s) : Stamp{0, 0};
    changed |= std::exchange(file.stamp, stamp) != stamp;
  }
  if (!changed) return;
  entries_.clear();
  plain_.clear();
  patterned_.clear();
  hashed_.clear();
  found_.clear();
  line_counts_.assign(files_.size(), 0);
  for (std::uint32_t i = 0; i < files_.size(); ++i) load(i);
}

void KnownHosts::load(std::uint32_t file) {
  std::ifstream in(files_[file].path, std::ios::binary);
  std::uint32_t number = 0;
  for (std::string line; std::getline(in, line);) add_line(line, file, ++number);
  line_counts_[file] = number;
}

void KnownHosts::add_line(std::string_view line, std::uint32_t file, std::uint32_t number) {
  std::string_view names = next_word(line);
  if (names.empty() || names.front() == '#') return;
  Entry entry;
  entry.file = file;
  entry.line = number;
  entry.revoked = names == "@revoked";
  entry.is_authority = names == "@cert-authority";
  if (entry.revoked || entry.is_authority) names = next_word(line);
  entry.key.type = next_word(line);
  entry.key.base64 = next_word(line);
  if (entry.key.base64.empty()) return;  // SSH1 or garbage
  const auto index = static_cast<std::uint32_t>(entries_.size());

  if (names.substr(0, 3) == "|1|") {
    const std::size_t bar = names.find('|', 3);
    if (bar == std::string_view::npos) return;
    const std::string salt = decode_base64(names.substr(3, bar - 3));
    const std::string digest = decode_base64(names.substr(bar + 1));
    if (digest.size() != SHA_DIGEST_LENGTH) return;
    hashed_.push_back({keyed(salt, 0x36), keyed(salt, 0x5c), digest, index});
  } else if (names.find_first_of("*?!") != std::string_view::npos) {
    entry.patterns = split_list(lower_case(names));
    patterned_.push_back(index);
  } else {
    for (const std::string& one : split_list(lower_case(names))) plain_[one].push_back(index);
  }
  entries_.push_back(std::move(entry));
}

const std::vector<std::uint32_t>& KnownHosts::find(const std::string& name) {
  const auto [at, fresh] = found_.try_emplace(name);
  std::vector<std::uint32_t>& found = at->second;
  if (!fresh) return found;
  found = value_in(plain_, name);
  for (const std::uint32_t index : patterned_)
    if (patterns_match(entries_[index].patterns, name)) found.push_back(index);
  for (const Hashed& hashed : hashed_) {
    const Digest digest = digest_of(hashed.outer, digest_of(hashed.inner, name));
    if (std::memcmp(digest.data(), hashed.digest.data(), digest.size()) == 0)
      found.push_back(hashed.entry);
  }
  std::sort(found.begin(), found.end());
  return found;
}

KnownHosts::Finding KnownHosts::check(std::string_view name, std::uint16_t port,
                                      const HostKey& key) {
  refresh();
  const std::vector<std::uint32_t>& found = find(known_hosts_name(name, port));
  auto place = [this](const Entry& entry) {
    return fmt::format("{}:{}", files_[entry.file].path, entry.line);
  };
  for (const std::uint32_t index : found) {
    const Entry& entry = entries_[index];
    if (entry.revoked && entry.key == key) return {Verdict::kRevoked, place(entry)};
  }
  Finding finding;
  for (const std::uint32_t index : found) {
    const Entry& entry = entries_[index];
    if (entry.revoked) continue;
    if (entry.is_authority) {
      if (finding.verdict == Verdict::kUnknown) finding = {Verdict::kAuthority, place(entry)};
      continue;
    }
    if (entry.key == key) return {Verdict::kMatch, place(entry)};
    const bool same_type = entry.key.type == key.type;
    if (finding.verdict == Verdict::kUnknown || finding.verdict == Verdict::kAuthority ||
        (finding.verdict == Verdict::kOtherType && same_type))
      finding = {same_type ? Verdict::kChanged : Verdict::kOtherType, place(entry)};
  }
  return finding;
}

std::vector<std::string> KnownHosts::key_types(std::string_view name, std::uint16_t port) {
  refresh();
  std::vector<std::string> types;
  for (const std::uint32_t index : find(known_hosts_name(name, port))) {
    const Entry& entry = entries_[index];
    const bool is_key = !entry.revoked && !entry.is_authority;
    if (is_key && std::ranges::count(types, entry.key.type) == 0) types.push_back(entry.key.type);
  }
  return types;
}

Result<void> KnownHosts::add(std::string_view name, std::uint16_t port, const HostKey& key) {
  refresh();
  if (check(name, port, key).verdict == Verdict::kMatch) return {};
  File& file = files_.front();
  const std::string doing = fmt::format("add {} to {}", name, file.path);
  if (const std::size_t slash = file.path.rfind('/'); slash != std::string::npos && slash > 0)
    ::mkdir(file.path.substr(0, slash).c_str(), 0700);        // an error shows at the open
  const int flags = O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC;  // tidy: allow (a user's link)
  const io::Fd fd(::open(file.path.c_str(), flags, 0600));
  if (!fd) return tl::unexpected(errno_error(errno, doing));
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  for (int tries = 0; ::fcntl(fd.get(), F_SETLK, &lock) != 0; ++tries) {
    if ((errno != EAGAIN && errno != EACCES && errno != EINTR) || tries == 100)
      return tl::unexpected(errno_error(errno, doing));
    ::poll(nullptr, 0, 5);  // another process appends its one line
  }
  struct stat before {};
  if (::fstat(fd.get(), &before) != 0) return tl::unexpected(errno_error(errno, doing));
  const bool ours = stamp_of(before) == file.stamp;
  std::string line = fmt::format("{} {} {}\n", known_hosts_name(name, port), key.type, key.base64);
  char last = '\n';
  const bool cut =
      before.st_size > 0 && ::pread(fd.get(), &last, 1, before.st_size - 1) == 1 && last != '\n';
  if (cut) line.insert(0, 1, '\n');
  if (!io::write_all(fd.get(), line)) return tl::unexpected(errno_error(errno, doing));
  struct stat after {};
  // Take our own line into the index instead of reading ten thousand others again.
  if ((ours || (before.st_size == 0 && file.stamp.size == 0)) && !cut &&
      ::fstat(fd.get(), &after) == 0) {
    file.stamp = stamp_of(after);
    line.pop_back();
    found_.erase(known_hosts_name(name, port));
    add_line(line, 0, ++line_counts_.front());
  }
  return {};
}

}  // namespace dt::launcher
