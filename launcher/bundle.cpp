#include "launcher/bundle.h"

#include <openssl/evp.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <sstream>

namespace dt::launcher {
namespace {

std::string folder_of(const Bundle& bundle) {
  return fmt::format("\"${{XDG_CACHE_HOME:-$HOME/.cache}}\"/dtlaunch/{}", bundle.hash);
}

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_@%+=:,./-").find(c) != std::string_view::npos;
}

}  // namespace

Result<std::shared_ptr<const Bundle>> load_bundle(const std::vector<std::string>& paths) {
  DT_CHECK(!paths.empty(), "a bundle has files");
  auto bundle = std::make_shared<Bundle>();
  std::string listed;
  for (const std::string& path : paths) {
    std::ifstream in(path, std::ios::binary);
    if (!in) return tl::unexpected(errno_error(errno, "open " + path));
    std::ostringstream text;
    text << in.rdbuf();
    BundleFile file{path.substr(path.rfind('/') + 1), std::move(text).str()};
    listed += fmt::format("{} {}\n", file.name, file.bytes.size());
    listed += file.bytes;
    bundle->files.push_back(std::move(file));
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (EVP_Digest(listed.data(), listed.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1)
    return fail(ErrorKind::kIo, "SHA-256 is not available");
  for (std::size_t i = 0; i < 16; ++i) bundle->hash += fmt::format("{:02x}", digest[i]);
  return bundle;
}

std::string bundle_exec_script(const Bundle& bundle, const std::vector<std::string>& argv) {
  DT_CHECK(!argv.empty(), "a command has a name");
  std::string words;
  for (std::size_t i = 1; i < argv.size(); ++i) words += " " + shell_word(argv[i]);
  // The folder appears whole or not at all; the programs find each other in it.
  return fmt::format("d={}; [ -d \"$d\" ] || {{ echo {}; exit 0; }}; echo {}; exec \"$d\"/{}{}",
                     folder_of(bundle), kMissingLine, kReadyLine, shell_word(argv.front()), words);
}

std::string bundle_store_script(const Bundle& bundle, const BundleFile& file,
                                const std::string& token) {
  const std::string folder = fmt::format("{}.{}", folder_of(bundle), token);
  return fmt::format("umask 077; d={}; mkdir -p \"$d\" && cat > \"$d\"/{} && chmod 700 \"$d\"/{}",
                     folder, shell_word(file.name), shell_word(file.name));
}

std::string bundle_commit_script(const Bundle& bundle, const std::string& token) {
  return fmt::format("d={}; mv -T \"$d\".{} \"$d\" 2>/dev/null || rm -rf \"$d\".{}; [ -d \"$d\" ]",
                     folder_of(bundle), token, token);
}

std::string shell_word(std::string_view text) {
  bool plain = !text.empty();
  for (const char c : text) plain = plain && is_plain(c);
  if (plain) return std::string(text);
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'')
      out += "'\\''";
    else
      out += c;
  }
  return out + "'";
}

std::string login_command(std::string_view script) {
  // Inside single quotes csh minds ! and newlines, fish minds backslashes: such characters travel
  // as octal escapes and are put back by printf.
  auto harmless = [](char c) { return c >= ' ' && c < 0x7f && c != '\'' && c != '\\' && c != '!'; };
  bool plain = true;
  for (const char c : script) plain = plain && harmless(c);
  if (plain) return fmt::format("exec /bin/sh -c '{}'", script);
  std::string coded;
  for (const char c : script) {
    if (harmless(c))
      coded += c;
    else
      coded += fmt::format("\\0{:03o}", static_cast<unsigned char>(c));
  }
  return fmt::format("exec /bin/sh -c 'eval \"$(printf %b \"$1\")\"' sh '{}'", coded);
}

}  // namespace dt::launcher
