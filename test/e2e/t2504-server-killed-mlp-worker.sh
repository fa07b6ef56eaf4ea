# timeout=120 cost=5 nightly
# A server is killed under the example of a user's program: its workers go on from the checkpoint.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"

# The job does not end by itself, so it cannot end before the kill.
start killed dtlaunch -n 2 --checkpoint-every 1 "$DT_BIN/mlp_worker" --epochs 100000
JOB_PID=$PID
PATIENCE=60 awaits --start 'checkpoint>=2'
kill -KILL "$(pid_of servers 0)"
PATIENCE=20 happens rolled_back
back=$(sed -nE 's/.*back to the checkpoint of epoch ([0-9]+), with new servers.*/\1/p' "$T/killed.out")
PATIENCE=60 awaits "epoch>=$((back + 2))"
end_job
