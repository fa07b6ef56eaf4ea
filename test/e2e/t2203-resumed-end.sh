# A supervisor that dies between journalling the job's end and telling the agents: the next one
# tells them.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
run detached dtlaunch -n 1 --detach --stop-timeout 6s "$DT_BIN/mlp_worker" --log "$T/w%i.jsonl" \
  --samples 200 --epochs 100000 --steps-per-epoch 20 --step-ms 20
expect_status 0
wait_for 30 'in_epoch 1' || fail "the job has not begun"
read -r pid spec <<<"$(python3 -c 'import json
c = json.load(open(".dtlaunch/current.json"))
print(c["pid"], c["state_dir"] + "/spec.json")')"
# Deaf to TERM: the end lasts until its time is over.
worker=$(sed -nE '1s/.*"pid":([0-9]+).*/\1/p' "$T/w0.jsonl")
kill -STOP "$worker"
size=$(stat -c %s "${spec%/*}/journal")
start stop dtctl stop
wait_for 10 '[ "$(stat -c %s "${spec%/*}/journal")" -gt $size ]' || fail "the end is not journalled"
kill -KILL "$pid"
run again timeout 60 dtsupervisor --spec "$spec" --resume
expect_status 130
! _alive "$worker" || fail "the worker still runs"
expect_nothing_left 5
