# timeout=200 cost=43 package needs=dttrain
# The wheel: the same build makes the same bytes, it runs where its tag says, and in a virtual environment nothing else of
# dtlaunch is needed, on hosts nothing at all.
. "$(dirname "$0")/lib.sh"
for tool in patchelf pip3; do
  command -v $tool >/dev/null || skip "no $tool here"
done
unset PYTHONPATH DTKV_LIBRARY
"$DT_SOURCE/scripts/wheel" --build "$DT_BUILD" "$T/wheel" >/dev/null
wheel=$(echo "$T"/wheel/dtlaunch-*-py3-none-manylinux_2_34_x86_64.whl)
if is_nightly; then
  "$DT_SOURCE/scripts/wheel" --build "$DT_BUILD" "$T/again" >/dev/null
  cmp "$wheel" "$T/again/$(basename "$wheel")" || fail "the same build makes another wheel"
fi

/usr/bin/python3 -m venv --system-site-packages "$T/venv"  # for numpy
PIP_DISABLE_PIP_VERSION_CHECK=1 "$T/venv/bin/pip" install --quiet --no-index --no-deps "$wheel"
# Its symbols, licences and pages were checked when it was made; that check finds what it is there for.
run faults python3 "$DT_SOURCE/test/e2e/wheel_faults.py" "$DT_SOURCE/scripts/wheel-check" "$T/faulty"
expect_status 0
(cd "$DT_SOURCE/kvstore/python" && ls examples/*.py) | while read -r example; do
  [ -f "$T/venv/share/doc/dtlaunch/$example" ] || fail "$example is not in share/doc/dtlaunch"
done
[ -s "$(echo "$T"/venv/lib/python3.*/site-packages/dtlaunch-*.dist-info/licenses/libssh)" ] || fail "pip left the licences out"
driver=$(sed -n 's/^DT_NVIDIA_DRIVER:INTERNAL=//p' "$DT_BUILD/CMakeCache.txt")  # of a build with CUDA
[ -z "$driver" ] || grep -q "^GPUs need an NVIDIA driver $driver or later" "$T"/venv/lib/python3.*/site-packages/dtlaunch-*.dist-info/METADATA ||
  fail "the wheel's description does not name the driver $driver"
if command -v man >/dev/null; then
  for page in dtlaunch dtctl dtagent; do
    run man env -u MANPATH PATH="$T/venv/bin:$PATH" man -w $page
    expect_output man "^$T/venv/share/man/man[18]/$page.[18].gz$"
  done
fi
ldd "$T/venv/bin/dtsupervisor" >"$T/libraries.out"
expect_output libraries "libssh.so.4 => $T/venv/bin/../lib/dtlaunch/libssh"

new_hosts 2
cat >program.py <<'END'
import dtkv
import numpy as np

with dtkv.Store() as store:
    store.init({"sum": np.zeros(4)})
    store.epoch_boundary(0)
    total = np.ones(4)
    store.pushpull({"sum": total})
    print(f"total {total[0]:.0f} {store.type} {dtkv.__file__}")
END
# Nothing of the build: neither its programs nor its package.
clean=(env -u DT_BIN PATH="$T/venv/bin:/usr/bin:/bin")
run alone "${clean[@]}" python program.py
expect_status 0
expect_output alone "total 1 local $T/venv/lib/python3.*/site-packages/dtkv/"
run job "${clean[@]}" dtlaunch -n 2 -s 1 -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" --max-restarts 0 python3 program.py
expect_status 0
[ "$(grep -c 'total 2 dist_sync .*/dtkv.zip/dtkv/' "$T/job.out")" = 2 ] || fail "not both workers came to the end"
expect_nothing_left
