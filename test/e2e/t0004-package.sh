# timeout=180 cost=25 package
# The Debian packages: only the trainer needs libtorch, and what is unpacked runs.
. "$(dirname "$0")/lib.sh"
command -v dpkg-shlibdeps >/dev/null || skip "no dpkg-dev here"
run cpack cpack --config "$DT_BUILD/CPackConfig.cmake" -B "$T/deb"
expect_status 0
tools=$(echo "$T"/deb/dtlaunch_*.deb)
[ -f "$tools" ] || fail "no package dtlaunch: $(ls "$T/deb")"
dpkg-deb -f "$tools" Depends >"$T/depends.out"
expect_output depends 'libssh-4'
! grep -qE 'torch|boost' "$T/depends.out" || fail "dtlaunch should not need $(cat "$T/depends.out")"
trainer=$(echo "$T"/deb/dtlaunch-trainer_*.deb)
[ ! -f "$trainer" ] || dpkg-deb -f "$trainer" Depends | grep -q libtorch || fail "the trainer's package does not name libtorch"
dpkg-deb -x "$tools" "$T/unpacked"
[ -f "$T/unpacked/usr/share/doc/dtlaunch/copyright" ] || fail "no copyright file"
run version env PATH="$T/unpacked/usr/bin:/usr/bin:/bin" dtlaunch --version
expect_status 0
expect_output version '^dtlaunch [0-9.]+ \(commit '
