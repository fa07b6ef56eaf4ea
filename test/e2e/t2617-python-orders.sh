# timeout=120 cost=25 plain
# Workers that come to wait for each other: told with both keys, and the job ends with 74, not by --boundary-timeout. It is
# none if one only sleeps; that is lost time as well.
. "$(dirname "$0")/lib.sh"
export PYTHONPATH=$DT_SOURCE/kvstore/python DTKV_LIBRARY=$DT_BUILD/lib/libdtkv.so.0
stands() { # NAME PATTERN
  run "$1" timeout 20 dtlaunch -n 2 -s 2 --hang-timeout 4s --boundary-timeout 2s "$PYTHON" "$DT_SOURCE/test/e2e/python/orders.py" "$1"
  expect_status 74
  expect_output "$1" "nothing has moved for 2.* all workers wait for each other: $2; the job ends in"
  expect_output "$1" "$2: a call that not every worker makes, or in another order"
  grep -Eq 'goodput: [0-9]{1,2}\.[0-9] %.*standstill' .dtlaunch/*/events.jsonl || fail "the time is not lost"
  expect_nothing_left
  rm -r .dtlaunch
}
stands order 'worker 0 in a for worker 1, worker 1 in b for worker 0'
stands alone 'worker 0 in a for worker 1, worker 1 in init of dtkv.all_reduce.float32.1 for worker 0'
stands barrier 'worker 0 in barrier\(\) for worker 1, worker 1 in a for worker 0'

run sleeps dtlaunch -n 2 -s 1 --hang-timeout 20s "$PYTHON" "$DT_SOURCE/test/e2e/python/orders.py" sleeps
expect_status 0
! grep -q standstill .dtlaunch/*/events.jsonl || fail "a sleep counts as a standstill"
grep -Eq 'goodput: .*hang [4-6]\.' .dtlaunch/*/events.jsonl || fail "the waiting is not lost"
