# timeout=120 cost=15 needs=dttrain
# Hosts on which nothing of dtlaunch is installed: the programs that it starts there import its Python package. Another
# library by DTKV_LIBRARY is refused in one sentence; --no-python leaves programs with what is installed.
. "$(dirname "$0")/lib.sh"
unset PYTHONPATH DTKV_LIBRARY
new_hosts 2
cat >program.py <<'END'
import os
import sys

import dtkv

with dtkv.Store() as store:
    import numpy as np

    store.init({"sum": np.zeros(4)})
    store.epoch_boundary(0)
    total = np.ones(4)
    store.pushpull({"sum": total})
    print(f"total {total[0]:.0f} package {dtkv.__file__} library {dtkv._library.library()._name}")
END
job=(dtlaunch -n 2 -s 1 -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" --max-restarts 0)

run bundle "${job[@]}" "$PYTHON" program.py
expect_status 0
[ "$(grep -cE 'total 2 package .*/cache/dtlaunch/[0-9a-f]{32}/dtkv\.zip/dtkv/__init__\.py library .*/cache/dtlaunch/[0-9a-f]{32}/libdtkv\.so\.0' "$T/bundle.out")" = 2 ] ||
  fail "not both workers had the package that was brought to them"
run local dtlaunch -n 2 -s 1 --max-restarts 0 "$PYTHON" program.py
expect_status 0
! grep -q 'has no dtkv.zip' "$T/local.out" || fail "a warning without a reason"
expect_output local 'total 2 package .*/lib/dtlaunch/dtkv\.zip/'

run none "${job[@]}" --no-python "$PYTHON" -c 'import importlib.util, sys; sys.exit(7 if importlib.util.find_spec("dtkv") is None else 0)'
[ "$STATUS" = 7 ] || "$PYTHON" -c 'import dtkv' || fail "--no-python: exit status $STATUS"

cat >old.c <<'END'
int dtkv_abi(void) { return 0; }
END
cc -shared -fPIC -o old.so old.c
run old "${job[@]}" --env DTKV_LIBRARY="$PWD/old.so" --env PYTHONPATH="$DT_SOURCE/kvstore/python" "$PYTHON" program.py
expect_status 1
expect_output old 'old\.so has ABI 0, and this package of dtkv needs 1: install both of one version'

mkdir bare
cp "$DT_BIN"/{dtlaunch,dtsupervisor,dtagent,dtserver} bare
run bare bare/dtlaunch -n 1 -s 1 "$PYTHON" -c 0
expect_output bare 'no dtkv.zip \(cmake --build \.\.\. --target dt_python_zip\): `import dtkv` needs an installation on the hosts'
expect_nothing_left
