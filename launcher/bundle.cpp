#include "launcher/bundle.h"

#include <elf.h>
#include <openssl/evp.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "launcher/shell_word.h"

namespace dt::launcher {
namespace {

std::string folder_of(const Bundle& bundle) {
  return fmt::format("\"${{XDG_CACHE_HOME:-$HOME/.cache}}\"/dtlaunch/{}", bundle.hash);
}

std::string machine_name(Elf64_Half machine) {
  switch (machine) {
    case EM_X86_64:
      return "x86_64";
    case EM_AARCH64:
      return "aarch64";
    case EM_PPC64:
      return "ppc64le";
    case EM_RISCV:
      return "riscv64";
    case EM_S390:
      return "s390x";
    default:
      return fmt::format("machine type {}", machine);
  }
}

/// A T that begins at `at`, if there is so much.
template <class T>
bool read_at(std::string_view bytes, std::size_t at, T& into) {
  if (at > bytes.size() || bytes.size() - at < sizeof into) return false;
  std::memcpy(&into, bytes.data() + at, sizeof into);
  return true;
}

/// What a program needs of a host, from its ELF header (elf(5)). This machine's byte order and word
/// size are the program's: it lies beside the one that runs here.
void read_needs(std::string_view program, Bundle& bundle) {
  Elf64_Ehdr head;
  if (!program.starts_with(std::string_view(ELFMAG, SELFMAG)) || !read_at(program, 0, head)) return;
  bundle.machine = machine_name(head.e_machine);
  for (std::size_t i = 0; i < head.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (!read_at(program, head.e_phoff + i * head.e_phentsize, segment)) return;
    if (segment.p_type != PT_INTERP || segment.p_offset > program.size()) continue;
    bundle.loader = program.substr(segment.p_offset, segment.p_filesz);
    bundle.loader.resize(std::strlen(bundle.loader.c_str()));
  }
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
  read_needs(bundle->files.front().bytes, *bundle);
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
  // Without its loader no program starts, and each architecture has another: asking for it costs
  // no process.
  std::string script;
  if (!bundle.loader.empty())
    script = fmt::format("[ -e {} ] || {{ echo \"{}$(uname -m)\"; exit 0; }}; ",
                         shell_word(bundle.loader), kForeignLine);
  // The folder appears whole or not at all; the programs find each other in it.
  return script +
         fmt::format("d={}; [ -d \"$d\" ] || {{ echo {}; exit 0; }}; echo {}; exec \"$d\"/{}{}",
                     folder_of(bundle), kMissingLine, kReadyLine, shell_word(argv.front()), words);
}

std::string bundle_store_script(const Bundle& bundle, const BundleFile& file,
                                const std::string& token) {
  const std::string folder = fmt::format("{}.{}", folder_of(bundle), token);
  return fmt::format("umask 077; d={}; mkdir -p \"$d\" && cat > \"$d\"/{} && chmod 700 \"$d\"/{}",
                     folder, shell_word(file.name), shell_word(file.name));
}

std::string bundle_commit_script(const Bundle& bundle, const std::string& token) {
  // A machine that loses its power must not keep the folder with empty files in it.
  return fmt::format(
      "d={}; sync \"$d\".{}/* 2>/dev/null; mv -T \"$d\".{} \"$d\" 2>/dev/null || rm -rf \"$d\".{}; "
      "[ -d \"$d\" ]",
      folder_of(bundle), token, token, token);
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
