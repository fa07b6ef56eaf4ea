# What is installed runs from where it was installed, with its manual beside it.
. "$(dirname "$0")/lib.sh"
cmake --install "$DT_BUILD" --prefix "$T/prefix" >"$T/install.out" || fail "install: $(tail -n 3 "$T/install.out")"
bin=$T/prefix/bin
for program in "$bin"/dt*; do
  name=$(basename "$program")
  # Only what lies under the root may be found, not the build tree.
  run "$name" env -u LD_LIBRARY_PATH PATH="$bin:/usr/bin:/bin" "$name" --version
  expect_status 0
  expect_output "$name" "^$name [0-9.]+ \(commit "
  [ -n "$(find "$T/prefix/share/man" -name "$name.?.gz")" ] || fail "no man page for $name"
done
for page in "$T"/prefix/share/man/man?/*.gz; do
  gzip -dc "$page" | head -n 1 | grep -q '^\.T[Hh]' || fail "$page is not a man page"
done
[ -f "$T/prefix/share/doc/dtlaunch/copyright" ] || fail "no copyright file"
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
manual_is_whole dtbench 1 kv
manual_is_whole dtgpucheck 1
manual_is_whole dtsupervisor 8
