#include "launcher/backend/elf_program.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace dt::launcher {
namespace {

/// The T that begins at `at`; none if the file ends before.
template <class T>
bool read_at(std::string_view bytes, std::size_t at, T& into) {
  if (at > bytes.size() || bytes.size() - at < sizeof into) return false;
  std::memcpy(&into, bytes.data() + at, sizeof into);
  return true;
}

struct Elf {
  Elf64_Ehdr head{};
  std::vector<Elf64_Phdr> segments;
};

/// The header and all program headers; nothing if one of them is missing.
std::optional<Elf> parse(std::string_view program) {
  Elf elf;
  if (!program.starts_with(std::string_view(ELFMAG, SELFMAG))) return std::nullopt;
  if (!read_at(program, 0, elf.head) || elf.head.e_phentsize != sizeof(Elf64_Phdr))
    return std::nullopt;
  elf.segments.resize(elf.head.e_phnum);
  for (std::size_t i = 0; i < elf.segments.size(); ++i)
    if (!read_at(program, elf.head.e_phoff + i * sizeof(Elf64_Phdr), elf.segments[i]))
      return std::nullopt;
  return elf;
}

std::string machine_name(Elf64_Half machine) {
  static constexpr std::pair<Elf64_Half, const char*> kNames[] = {{EM_X86_64, "x86_64"},
                                                                  {EM_AARCH64, "aarch64"},
                                                                  {EM_PPC64, "ppc64le"},
                                                                  {EM_RISCV, "riscv64"},
                                                                  {EM_S390, "s390x"}};
  for (const auto& [known, name] : kNames)
    if (machine == known) return name;
  return fmt::format("machine type {}", machine);
}

}  // namespace

ProgramNeeds needs_of(std::string_view program) {
  ProgramNeeds needs;
  const auto elf = parse(program);
  if (!elf) return needs;
  needs.machine = machine_name(elf->head.e_machine);
  for (const Elf64_Phdr& segment : elf->segments) {
    if (segment.p_type != PT_INTERP || segment.p_offset > program.size()) continue;
    needs.loader = program.substr(segment.p_offset, segment.p_filesz);
    needs.loader.resize(std::strlen(needs.loader.c_str()));
  }
  return needs;
}

std::optional<std::size_t> loaded_size(std::string_view beginning, std::size_t size) {
  const auto elf = parse(beginning);
  if (!elf || elf->head.e_type == ET_REL) return std::nullopt;
  std::size_t end = elf->head.e_phoff + elf->segments.size() * sizeof(Elf64_Phdr);
  for (const Elf64_Phdr& segment : elf->segments) {
    if (segment.p_offset > size || segment.p_filesz > size - segment.p_offset) return std::nullopt;
    end = std::max(end, segment.p_offset + segment.p_filesz);
  }
  return end;
}

std::string without_symbols(std::string program) {
  const auto end = loaded_size(program, program.size());
  if (!end) return program;
  auto elf = parse(program);
  elf->head.e_shoff = 0;
  elf->head.e_shnum = 0;
  elf->head.e_shstrndx = SHN_UNDEF;
  program.resize(*end);
  std::memcpy(program.data(), &elf->head, sizeof elf->head);
  program.shrink_to_fit();
  return program;
}

}  // namespace dt::launcher
