# timeout=400 cost=150 package
# The Debian packages: only the trainer needs libtorch, and the unpacked programs run.
. "$(dirname "$0")/lib.sh"
command -v dpkg-shlibdeps >/dev/null || skip "no dpkg-dev here"
run cpack cpack -D CPACK_DEBIAN_COMPRESSION_TYPE=gzip --config "$DT_BUILD/CPackConfig.cmake" -B "$T/deb"
expect_status 0
tools=$(echo "$T"/deb/dtlaunch_*.deb)
[ -f "$tools" ] || fail "no package dtlaunch: $(ls "$T/deb")"
dpkg-deb -f "$tools" Depends >"$T/depends.out"
expect_output depends 'libssh-4'
! grep -qE 'torch|boost' "$T/depends.out" || fail "dtlaunch should not need $(cat "$T/depends.out")"
trainer=$(echo "$T"/deb/dtlaunch-trainer_*.deb)
for needed in libtorch 'libdtkv0 (= '; do
  [ ! -f "$trainer" ] || dpkg-deb -f "$trainer" Depends | grep -qF "$needed" || fail "the trainer's package does not name $needed"
done
dpkg-deb -x "$tools" "$T/unpacked"
dpkg-deb -c "$tools" >"$T/files.out"
for file in bash-completion/completions/dtctl doc/dtlaunch/packages.md systemd/user/dtlaunch@.service; do
  expect_output files "$file"
done
# A document that another one links to is in the same folder.
for name in $(grep -ohE '\]\([a-z]+\.md' "$T"/unpacked/usr/share/doc/dtlaunch/*.md | cut -c3- | sort -u); do
  [ -f "$T/unpacked/usr/share/doc/dtlaunch/$name" ] || fail "the documents name $name, which is not there"
done
python=$(echo "$T"/deb/python3-dtkv_*_all.deb)
if [ -f "$(echo "$T"/deb/libdtkv0_*.deb)" ]; then
  [ -f "$python" ] || fail "a library without its package for Python: $(ls "$T/deb")"
  dpkg-deb -x "$python" "$T/python"
  dpkg-deb -x "$T"/deb/libdtkv0_*.deb "$T/python"
  run python env PYTHONPATH="$T/python/usr/lib/python3/dist-packages" LD_LIBRARY_PATH="$(dirname "$(find "$T/python" -name libdtkv.so.0)")" \
    /usr/bin/python3 -c 'import dtkv; print(dtkv.Store().type, dtkv.version())'
  expect_status 0
  expect_output python '^local [0-9.]+'
  [ -f "$(echo "$T"/deb/libdtkv-dev_*.deb)" ] || fail "a library without its headers: $(ls "$T/deb")"
  # Sanitized programs need libraries that no package of Debian is to need.
  if is_nightly && [[ "$(basename "$DT_BUILD")" = release* ]] && command -v lintian >/dev/null; then
    run lintian lintian --allow-root --fail-on error,warning "$T"/deb/*.deb
    [ "$STATUS" = 0 ] || fail "lintian: $(output lintian)"
  fi
fi
[ -f "$T/unpacked/usr/share/doc/dtlaunch/copyright" ] || fail "no copyright file"
run version env PATH="$T/unpacked/usr/bin:/usr/bin:/bin" dtlaunch --version
expect_status 0
expect_output version '^dtlaunch [0-9.]+ \(commit '
