# timeout=120 cost=12 needs=dttrain
# Python's arrays, signals, threads and errors while a call of a store waits for another worker, and arrays of 16 bits; over
# TCP and in shared memory.
. "$(dirname "$0")/lib.sh"
export PYTHONPATH=$DT_SOURCE/kvstore/python DTKV_LIBRARY=$DT_BUILD/lib/libdtkv.so.0 TURNS=2000
for transport in tcp auto; do
  run job dtlaunch -n 2 -s 1 --transport $transport "$DT_SOURCE/test/e2e/python/waits.py"
  expect_status 0
  [ "$(grep -c 'mismatches: well' "$T/job.out")" = 2 ] || fail "not both workers came to the end"
  expect_nothing_left
done
