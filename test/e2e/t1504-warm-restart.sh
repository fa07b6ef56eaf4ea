# timeout=300 cost=30
# python3 -m dtkv.run: one parent interpreter of a host imports the modules once and forks the workers of every group. A
# worker ends as its script does, in its own process group; the job's end leaves no parent.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
export PYTHONPATH=$DT_SOURCE/kvstore/python
mkdir modules
cat >modules/slow.py <<'END'
import os
import time
time.sleep(0.5)  # how long the import lasts, not a wait
print("never seen")
imported = os.getpid()
END
cat >script.py <<'END'
import os
import pathlib
import sys
import time
import slow
memory = bytearray(100_000_000) if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" else None
rank, restart = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
print(f"rank {rank} of {os.environ['WORLD_SIZE']} group {restart} imported-by {slow.imported} threads {len(os.listdir('/proc/self/task'))}",
      "words", *sys.argv[1:], "cwd", os.getcwd(), "name", __name__)
end = pathlib.Path("end-" + rank)
while not end.exists() or not end.read_text().endswith("\n"):
    if pathlib.Path("finish").exists():
        sys.exit(0)
    time.sleep(0.01)  # between two looks, not a wait
how = end.read_text().strip()
end.unlink()
if how == "raise":
    raise ValueError("no such batch")
sys.exit(int(how))
END
warm=("$PYTHON" -m dtkv.run --preload slow script.py one "two words")
export PYTHONPATH=$PYTHONPATH:$PWD/modules

start job dtlaunch -n 2 --elastic-training-enabled --on-change restart --change-settle 200ms --leave-timeout 200s --max-restarts 10 "${warm[@]}"
awaits --start state=running
group() { wait_for 20 "[ \$(grep -c 'group $1 ' '$T/job.out') = $2 ]" || fail "group $1 has not $2 workers"; }
group 0 2
awaits '.workers[rank=0].resident_bytes>100000000'  # its own process's, which is no child of the one that the agent knows
say 'an edit, a kill of the process that the agent knows, a kill of the child'
dtctl add localhost
group 1 3
kill -KILL "$(pid_of workers 2)"
group 2 3
child=$(pgrep -g "$(pid_of workers 2)" | grep -vx "$(pid_of workers 2)")
[ "$(echo "$child" | wc -w)" = 1 ] || fail "not one child in the worker's process group: $child"
kill -SEGV "$child"
group 3 3
wait_for 5 'grep -q "killed by signal 11 (SEGV)" "$(story)"' || fail 'the worker did not end as its child did'
say 'an exception, with its own traceback alone'
echo raise >end-1
group 4 3
grep -q 'ValueError: no such batch' "$T/job.out" || fail 'no traceback'
! grep -q 'dtkv/run.py' "$T/job.out" || fail "the traceback has frames that are not the script's"
touch finish
finished job "$PID" 20
expect_status 0
[ "$(grep -oE 'imported-by [0-9]+' "$T/job.out" | sort -u | wc -l)" = 1 ] || fail 'not one process imported for all'
[ "$(grep -c "threads 1 words one two words cwd $JOB name __main__" "$T/job.out")" = 14 ] || fail 'not 14 workers as they were asked for'
! grep -q 'never seen' "$T/job.out" || fail "the parent's output is a worker's"
expect_nothing_left

say 'a module that cannot be shared: the worker imports it itself, and says why'
rm finish
echo 'import threading, time; threading.Thread(target=time.sleep, args=(1000,), daemon=True).start(); imported = 0' >modules/slow.py
echo 7 >end-0
run threads dtlaunch -n 1 --max-restarts 0 "${warm[@]}"
expect_status 7
expect_output threads 'dtkv.run: --preload slow starts threads \(1\), which a fork would not have: this worker imports everything itself'
say 'without dtlaunch, and without a parent'
printf 'imported = 0\n' >modules/slow.py
for how in '' --no-warm; do
  echo 3 >end-0
  run alone env RANK=0 WORLD_SIZE=1 TORCHELASTIC_RESTART_COUNT=0 "$PYTHON" -m dtkv.run $how script.py
  expect_status 3
done
expect_nothing_left
