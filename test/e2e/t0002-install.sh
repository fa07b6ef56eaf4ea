# timeout=120 package
# Installed programs run from their prefix, with their manual next to them.
. "$(dirname "$0")/lib.sh"
cmake --install "$DT_BUILD" --prefix "$T/prefix" >"$T/install.out" || fail "install: $(tail -n 3 "$T/install.out")"
bin=$T/prefix/bin
for program in "$bin"/dt*; do
  name=$(basename "$program")
  # Only files under the root may be found, not the build tree.
  run "$name" env -u LD_LIBRARY_PATH PATH="$bin:/usr/bin:/bin" "$name" --version
  expect_status 0
  expect_output "$name" "^$name [0-9.]+ \(commit "
  [ -n "$(find "$T/prefix/share/man" -name "$name.?.gz")" ] || fail "no man page for $name"
done
for page in "$T"/prefix/share/man/man?/*.gz; do
  [[ $(gzip -dc "$page" | sed -n 1p) == .T[Hh]* ]] || fail "$page is not a man page"
done
[ -f "$T/prefix/share/doc/dtlaunch/copyright" ] || fail "no copyright file"
[ ! -e "$bin/dtbench" ] || fail "a program of the tests is installed"
# A manual names every option that --help names.
manual_is_whole() {
  local program=$1 section=$2 manual option
  shift 2
  [ -x "$bin/$program" ] || return 0
  manual=$(gzip -dc "$T/prefix/share/man/man$section/$program.$section.gz" | sed 's/\\-/-/g')
  for option in $("$bin/$program" "$@" --help | sed -nE 's/^  (-., |-. \[ )? *(--[a-z][a-z-]+).*/\2/p'); do
    grep -qF -- "$option" <<<"$manual" || fail "$program.$section does not name $option"
  done
}
manual_is_whole dtlaunch 1
for command in $("$bin/dtctl" --help | sed -nE 's/^  ([a-z]+) .*/\1/p' | grep -vxE 'exec|clean'); do
  manual_is_whole dtctl 1 "$command"
done
manual_is_whole dtgpucheck 1
manual_is_whole dtsupervisor 8
manual_is_whole dtfleet 8
gzip -dc "$T/prefix/share/man/man1/dtctl.1.gz" | sed -nE 's/^\\fB(.*)\\fR$/status.\1/p' >"$T/fields"
[ -z "$(grep -vxFf "$T/fields" "$DT_SOURCE/test/contracts/status.txt")" ] || fail "dtctl.1 lacks a field of the status"

# A user's program is built against the installation, with pkg-config if available and with CMake.
# A sanitized library requires a sanitized user.
case $(ldd "$(find "$T/prefix" -name 'libdtkv.so')") in *san.so*) exit 0 ;; esac
mkdir "$T/user"
cat >"$T/user/user.cpp" <<'END'
#include <dtlaunch/kvstore/kvstore.h>

#include <cstdio>
#include <vector>

int main() {
  try {
    dtkv::KVStore kv("local");
    std::vector<float> weights{1, 2, 3};
    std::vector<float> gradient{1, 1, 1};
    kv.init({{"w", weights}});
    kv.pushpull({{"w", gradient}}, {{"w", weights}}, {.samples = 1});
    std::printf("%s: %g %g %g\n", kv.type().c_str(), weights[0], weights[1], weights[2]);
  } catch (const dtkv::Error& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
END
cat >"$T/user/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(dtlaunch ${wanted} REQUIRED)
add_executable(user user.cpp)
target_link_libraries(user PRIVATE dtlaunch::dtkv)
END
wanted=$(sed -nE 's/^project\(.* VERSION ([0-9]+\.[0-9]+).*/\1/p' "$DT_SOURCE/CMakeLists.txt")
run cmake sh -c "cmake -S '$T/user' -B '$T/user/build' -Dwanted=$wanted -DCMAKE_PREFIX_PATH='$T/prefix' && cmake --build '$T/user/build'"
expect_status 0
run user "$T/user/build/user"
expect_status 0
expect_output user '^local: 1 1 1$'
if command -v pkg-config >/dev/null; then
  export PKG_CONFIG_PATH
  PKG_CONFIG_PATH=$(dirname "$(find "$T/prefix" -name dtkv.pc)")
  lib=$(pkg-config --variable=libdir dtkv)
  # shellcheck disable=SC2046
  run pc g++ -std=c++20 "$T/user/user.cpp" $(pkg-config --cflags --libs dtkv) "-Wl,-rpath,$lib" -o "$T/user/by-pc"
  expect_status 0
  run user "$T/user/by-pc"
  expect_status 0
  expect_output user '^local: 1 1 1$'
fi
