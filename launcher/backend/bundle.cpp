#include "launcher/backend/bundle.h"

#include <openssl/evp.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>

#include "launcher/bundle_use.h"
#include "launcher/shell_word.h"

namespace dt::launcher {
namespace {

/// The folder of bundles, where it can be used.
constexpr std::string_view kRoot = "\"${XDG_CACHE_HOME:-$HOME/.cache}\"/dtlaunch";

/// Shell text: `each COMMAND` runs it with $c as each folder of bundles in turn, until it succeeds.
/// What is open to all counts only if it is this user's; with $make it is made.
std::string each_root() {
  return fmt::format(
      "u=$(id -u); each() {{ for c in {} \"$HOME\"/.cache/dtlaunch /var/tmp/dtlaunch-$u "
      "/tmp/dtlaunch-$u; do case $c in /var/tmp/dtlaunch-$u|/tmp/dtlaunch-$u) "
      "[ -z \"$make\" ] || mkdir -m 700 \"$c\" 2>/dev/null; "
      "[ -O \"$c\" ] && [ ! -L \"$c\" ] || continue;; esac; "
      "\"$@\" && return; done; return 1; }}; ",
      kRoot);
}

/// "DIR/HASH" with any hash: every bundle there, but no temporary folder.
std::string any_bundle_in(std::string_view folder) {
  return fmt::format("{}/{}", folder, std::string(32, '?'));
}

/// The first 32 hex digits of SHA-256; empty if this OpenSSL has none.
std::string hash_of(std::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1)
    return {};
  return fmt::format("{:02x}", fmt::join(digest.begin(), digest.begin() + 16, ""));
}

/// The file's content; of a program, as far as it is loaded: with its symbols it is many times as
/// large.
Result<std::string> read_program(const std::string& path) {
  constexpr std::size_t kHeaders = 4096;
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return tl::unexpected(errno_error(errno, "open " + path));
  const auto size = static_cast<std::size_t>(in.tellg());
  std::string bytes(std::min(size, kHeaders), '\0');
  in.seekg(0).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const std::size_t begun = bytes.size();
  bytes.resize(std::max(begun, loaded_size(bytes, size).value_or(size)));
  in.read(bytes.data() + begun, static_cast<std::streamsize>(bytes.size() - begun));
  if (!in) return fail(ErrorKind::kIo, "read {}: it was cut while it was read", path);
  return bytes;
}

Result<std::string> gzip(std::string_view bytes) {
  constexpr int kGzipWindow = MAX_WBITS + 16;  // 16: with gzip's header (zlib.h)
  constexpr int kMemory = 9;
  z_stream z{};
  if (::deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipWindow, kMemory,
                     Z_DEFAULT_STRATEGY) != Z_OK)
    return fail(ErrorKind::kIo, "zlib: no memory to compress the programs");
  const std::unique_ptr<z_stream, decltype(&::deflateEnd)> owner(&z, &::deflateEnd);
  std::string packed(::deflateBound(&z, bytes.size()), '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  z.avail_in = static_cast<uInt>(bytes.size());
  z.next_out = reinterpret_cast<Bytef*>(packed.data());
  z.avail_out = static_cast<uInt>(packed.size());
  if (::deflate(&z, Z_FINISH) != Z_STREAM_END)
    return fail(ErrorKind::kIo, "zlib: the programs cannot be compressed");
  packed.resize(z.total_out);
  packed.shrink_to_fit();
  return packed;
}

}  // namespace

Result<std::shared_ptr<const Bundle>> load_bundle(const std::vector<std::string>& paths) {
  DT_CHECK(!paths.empty(), "a bundle has files");
  auto bundle = std::make_shared<Bundle>();
  std::string listed;
  for (const std::string& path : paths) {
    auto bytes = read_program(path);
    if (!bytes) return tl::unexpected(bytes.error());
    BundleFile file{path.substr(path.rfind('/') + 1), without_symbols(std::move(*bytes)), {}};
    file.hash = hash_of(file.bytes);
    if (file.hash.empty()) return fail(ErrorKind::kIo, "SHA-256 is not available");
    listed += fmt::format("{} {}\n", file.name, file.hash);
    bundle->files.push_back(std::move(file));
  }
  bundle->needs = needs_of(bundle->files.front().bytes);
  bundle->hash = hash_of(listed);
  return bundle;
}

Result<std::vector<std::string>> pack_bundle(const Bundle& bundle) {
  std::vector<std::string> packed;
  for (const BundleFile& file : bundle.files) {
    auto member = gzip(file.bytes);
    if (!member) return tl::unexpected(member.error().at(file.name));
    packed.push_back(std::move(*member));
  }
  return packed;
}

std::string bundle_exec_script(const Bundle& bundle, const std::vector<std::string>& argv) {
  DT_CHECK(!argv.empty(), "a command has a name");
  std::string words;
  for (std::size_t i = 1; i < argv.size(); ++i) words += " " + shell_word(argv[i]);
  // Without its loader no program starts, and each architecture has another: asking for it costs
  // no process.
  std::string script;
  if (!bundle.needs.loader.empty())
    script = fmt::format("[ -e {} ] || {{ echo \"{}$(uname -m)\"; exit 0; }}; ",
                         shell_word(bundle.needs.loader), kForeignLine);
  // The folder appears whole or not at all; the programs find each other in it.
  std::string hashes;
  for (const BundleFile& file : bundle.files) hashes += " " + file.hash;
  script += fmt::format(
      "d={}/{}; [ -d \"$d\" ] || {{ make=; {}"
      "has() {{ [ -d \"$c\"/{} ] && d=\"$c\"/{}; }}; each has; }}; ",
      kRoot, bundle.hash, each_root(), bundle.hash, bundle.hash);
  script += fmt::format(
      "[ -d \"$d\" ] || {{ m={}; holds() {{ set -- {}/.$f; [ -e \"$1\" ]; }}; "
      "for f in{}; do each holds || m=\"$m $f\"; done; echo \"$m\"; exit 0; }}; ",
      kMissingLine, any_bundle_in("\"$c\""), hashes);
  return script +
         fmt::format("echo {}; exec \"$d\"/{}{}", kReadyLine, shell_word(argv.front()), words);
}

std::string bundle_copy_script(const Bundle& bundle, const std::vector<SentFile>& sent,
                               const std::string& token) {
  std::string script = fmt::format(
      "umask 077; make=1; {0}"
      "fits() {{ d=\"$c\"/{1}; t=\"$d\".{2}; mkdir -p \"$t\" && echo '#!/bin/sh' > \"$t\"/.try && "
      "chmod 700 \"$t\"/.try && \"$t\"/.try && rm \"$t\"/.try || {{ rm -rf \"$t\"; return 1; }}; "
      "}}; "
      "each fits || exit {3}; r=\"$c\"; make=; [ \"$r\" = {4} ] || echo \"{5}$r\"; "
      "give_up() {{ rm -rf \"$t\"; exit 1; }}; "
      // From a pipe head reads no byte more than it is to print.
      "take() {{ head -c $1 | gzip -dc > \"$t\"/.$2 && chmod 700 \"$t\"/.$2 && "
      "[ \"$(wc -c < \"$t\"/.$2)\" -eq $3 ]; }}; ",
      each_root(), bundle.hash, token, kNoRoot, kRoot, kRootLine);
  for (const SentFile& one : sent) {
    const BundleFile& file = bundle.files[one.index];
    script += fmt::format("take {} {} {} || give_up; ", one.bytes, file.hash, file.bytes.size());
  }
  // Where a file system has no hard links, a copy serves.
  script += fmt::format(
      "link() {{ ln \"$1\" \"$2\" 2>/dev/null || cp -p \"$1\" \"$2\"; }}; "
      "old() {{ for o in {}/.$1; do link \"$o\" \"$t\"/.$1 && return; done; return 1; }}; "
      "put() {{ [ -e \"$t\"/.$1 ] || each old $1; link \"$t\"/.$1 \"$t\"/$2; }}; ",
      any_bundle_in("\"$c\""));
  for (const BundleFile& file : bundle.files)
    script += fmt::format("put {} {} || give_up; ", file.hash, shell_word(file.name));
  // A machine that loses its power must not keep the folder with empty files in it.
  script +=
      "sync \"$t\"/* 2>/dev/null; mv -T \"$t\" \"$d\" 2>/dev/null || rm -rf \"$t\"; "
      "[ -d \"$d\" ] || exit 1; ";
  // What runs from a bundle touches it once in a while: see bundle_use.h.
  const std::string name(32, '?');
  script += fmt::format(
      "find \"$r\" -mindepth 1 -maxdepth 1 -type d ! -path \"$d\" "
      "\"(\" -name \"{0}\" -mmin +{1} -o -name \"{0}.*\" -mmin +{2} \")\" "
      "-exec rm -rf \"{{}}\" + 2>/dev/null; :",
      name, kBundleKept.count(), kTokenKept.count());
  return script;
}

std::string login_command(std::string_view script) {
  // Inside single quotes csh interprets ! and newlines, fish backslashes: such characters are sent
  // as octal escapes, which printf decodes.
  auto harmless = [](char c) { return c >= ' ' && c < 0x7f && c != '\'' && c != '\\' && c != '!'; };
  if (std::ranges::all_of(script, harmless)) return fmt::format("exec /bin/sh -c '{}'", script);
  std::string coded;
  for (const char c : script)
    coded +=
        harmless(c) ? std::string(1, c) : fmt::format("\\0{:03o}", static_cast<unsigned char>(c));
  return fmt::format("exec /bin/sh -c 'eval \"$(printf %b \"$1\")\"' sh '{}'", coded);
}

}  // namespace dt::launcher
