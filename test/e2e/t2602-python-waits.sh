# timeout=120 cost=12 needs=dttrain
# Python's arrays, signals, threads and errors while a call of a store waits for another worker, and arrays of 16 bits; over
# TCP and in shared memory. Workers that disagree about the parameters' names.
. "$(dirname "$0")/lib.sh"
export PYTHONPATH=$DT_SOURCE/kvstore/python DTKV_LIBRARY=$DT_BUILD/lib/libdtkv.so.0 TURNS=2000
for transport in tcp auto; do
  run job dtlaunch -n 2 -s 1 --transport $transport "$PYTHON" "$DT_SOURCE/test/e2e/python/waits.py"
  expect_status 0
  [ "$(grep -c 'mismatches: well' "$T/job.out")" = 2 ] || fail "not both workers came to the end"
  expect_nothing_left
done

say "workers with different parameters learn it at the first boundary"
waits() { run job dtlaunch -n 2 -s 1 --max-restarts 0 "$DT_SOURCE/test/e2e/python/waits.py" "$@"; }
waits a c
[ "$STATUS" != 0 ] || fail "other names are accepted"
expect_output job "worker 1: key 'c': worker 1 initialises it, and worker 0, which has rank 0, waits at the epoch boundary without it; it has 'b', which worker 1 has not"
waits a
[ "$STATUS" != 0 ] || fail "a worker without a parameter is accepted"
expect_output job "worker 1: key 'b': worker 0, which had rank 0, has initialised it before the first epoch boundary, and worker 1 has not"
expect_nothing_left
