# timeout=120 cost=20 needs=dttrain
# How a Python job ends, in mid-epoch with a DataLoader of four forked workers: an exception, sys.exit, Ctrl-C. The exit
# code is the program's, the exception's traceback is its last word, and nothing is left.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
export PYTHONPATH=$DT_SOURCE/kvstore/python DTKV_LIBRARY=$DT_BUILD/lib/libdtkv.so.0
ends=("$PYTHON" "$DT_SOURCE/test/e2e/python/ends.py")

all=(2)
! is_nightly || all+=(1)
for workers in "${all[@]}"; do
  run raised dtlaunch -n $workers -s 1 --max-restarts 0 "${ends[@]}" raise
  expect_status 1
  log=$(ls -t .dtlaunch/*/logs/worker-$((workers - 1)).log | head -n 1)
  [ "$(tail -n 1 "$log")" = "ValueError: the data is bad" ] || fail "not the last word: $(tail -n 5 "$log")"
  grep -q 'in one_epoch' "$log" || fail "no traceback in $log"
  expect_nothing_left
done

run left dtlaunch -n 1 -s 1 --max-restarts 0 "${ends[@]}" 3
expect_status 3
expect_nothing_left

say "Ctrl-C"
start job dtlaunch -n 2 -s 1 "${ends[@]}" wait
wait_for 20 '[ -e waits ]' || fail "no step was made"
kill -INT "$PID"
finished dtlaunch "$PID" 15
expect_status 130
expect_nothing_left

say "sys.exit(0) in mid-epoch on one worker: it has left, and the other goes on to its end"
start job dtlaunch -n 2 -s 1 --elastic-training-enabled --poll-interval 300ms "${ends[@]}" 0
finished dtlaunch "$PID" 30
expect_status 0
happens worker_exited 'worker 1'
[ "$(grep -l 'the last line' .dtlaunch/*/logs/worker-*.log | wc -l)" = 1 ] || fail "not one worker came to its end"
expect_nothing_left
