# For tests of scripts/quickstart, after lib.sh. It installs nothing and takes what this build has built.
[ "$DT_BUILD" = "$DT_SOURCE/build/$(basename "$DT_BUILD")" ] || skip "quickstart knows builds under build/ only"
for tool in patchelf pip3; do
  command -v $tool >/dev/null || skip "no $tool here: quickstart makes a wheel"
done
unset XDG_RUNTIME_DIR XDG_STATE_HOME XDG_CACHE_HOME PYTHONPATH DTKV_LIBRARY
# All is built: cmake only notes what quickstart asks it for, in $T/built.
mkdir "$T/cmake"
printf '#!/bin/sh\necho "$@" >>"%s"\n' "$T/built" >"$T/cmake/cmake"
chmod +x "$T/cmake/cmake"
PATH=$T/cmake:$PATH
_quickstart=("$DT_SOURCE/scripts/quickstart" --no-install --preset "$(basename "$DT_BUILD")" --venv "$T/venv")

# ends: checks how it ended; sets WORK, its folder. Kept by quickstart for people; here in $T, which goes.
ends() {
  WORK=$(sed -n 's/^console *\(.*\)\/console.log$/\1/p' "$T/quickstart.out")
  expect_status 0
  mv "$WORK" "$T/work"
  WORK=$T/work
}
# quickstart WORD...: runs it to its end.
quickstart() {
  run quickstart "${_quickstart[@]}" "$@"
  ends
}
# starts_quickstart WORD...: until the first epoch has begun; sets QUICKSTART, its pid.
starts_quickstart() {
  start quickstart "${_quickstart[@]}" "$@"
  QUICKSTART=$PID
  wait_for 60 "grep -q '^== They train' '$T/quickstart.out'" || fail "quickstart: $(output quickstart)"
}
