# timeout=180 cost=15 needs=dttrain
# Workers in Python, with numpy and a DataLoader's processes: a worker joins, is killed with -9 while its
# DataLoader's processes live, comes back, and leaves with exit code 0.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
export PYTHONPATH=$DT_SOURCE/kvstore/python DTKV_LIBRARY=$DT_BUILD/lib/libdtkv.so.0
TRAIN_COMMAND=("$PYTHON" "$DT_SOURCE/test/e2e/python/worker.py")

# last WORKER FIELD: of the last line of its log.
last() { tail -n 1 "$T/w$1.jsonl" | python3 -c 'import json, sys
value = json.loads(sys.stdin.read())[sys.argv[1]]
print(*value) if isinstance(value, list) else print(value)' "$2"; }

train -n 1 --max-restarts 3 --
echo localhost >>host_worker
changed 'ADDED localhost'
awaits workers=2
some_epochs 1 1

say "a worker is killed while its DataLoader's processes live"
read -ra children <<<"$(last 1 children)"
[ ${#children[@]} = 2 ] || fail "no processes of a DataLoader: $(tail -n 1 "$T/w1.jsonl")"
kill -KILL "$(last 1 pid)"
changed 'ADDED localhost' 'REMOVED localhost' 'ADDED localhost'
for child in "${children[@]}"; do
  wait_for 2 "! alive $child" || fail "process $child of the killed worker's DataLoader is left"
done
awaits workers=2
some_epochs 1 2

say "a worker leaves"
echo localhost >host_worker
changed 'ADDED localhost' 'REMOVED localhost' 'ADDED localhost' 'REMOVED localhost'
happens worker_removed 'worker 2 .*(exit|left|0)'
some_epochs 2
[ "$(last 0 world)" = 1 ] || fail "the view has still $(last 0 world) workers"
# Worker 1's processes may complain: they lose the process that they send batches to.
! grep -hE 'Warning|Traceback|Error' "$JOB"/.dtlaunch/*/logs/worker-[02].log || fail "a worker complains"
end_job
