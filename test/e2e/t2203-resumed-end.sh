# A supervisor that dies between journalling the job's end and telling the agents: the next one
# tells them.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
run detached dtlaunch -n 1 --detach "$DT_BIN/mlp_worker" --log "$T/w%i.jsonl" \
  --samples 200 --epochs 100000 --steps-per-epoch 20 --step-ms 20
expect_status 0
wait_for 30 'in_epoch 1' || fail "the job has not begun"
read -r pid spec <<<"$(python3 -c 'import json
c = json.load(open(".dtlaunch/current.json"))
print(c["pid"], c["state_dir"] + "/spec.json")')"
worker=$(sed -nE '1s/.*"pid":([0-9]+).*/\1/p' "$T/w0.jsonl")
# What is said to the agent from now on does not reach it.
bridge=$(pgrep -P "$pid" -f -- --attach)
kill -STOP "$bridge"
start stop dtctl stop
shows 's["state"] == "stopping"'
kill -KILL "$pid" "$bridge"
_alive "$worker" || fail "the worker was told already"
run again timeout 60 dtsupervisor --spec "$spec" --resume
expect_status 130
! _alive "$worker" || fail "the worker still runs"
expect_nothing_left 5
