# timeout=180
# The supervisor may die at any moment: dtlaunch starts it again, no worker is restarted, no line of
# the log is lost or doubled; without a dtlaunch to restart it the job ends after --orphan-timeout.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"

train -n 1 --
echo localhost >>host_worker
happens worker_launched '"worker":1'
kill -KILL "$(supervisor)"
wait_for 10 'grep -q "supervisor died" "$T/job.out"' || fail "dtlaunch did not notice"
awaits term=2
echo 'localhost slots=2' >host_worker
changed 'ADDED localhost'
members 0,1
before="$(pids_of workers) $(pids_of servers)"
for term in 3 4 5; do
  kill -KILL "$(supervisor)"
  awaits "term=$term"
done
some_epochs 2
[ "$(pids_of workers) $(pids_of servers)" = "$before" ] || fail "something was restarted"
changed 'ADDED localhost'
worker_log once "$T/w0.jsonl"
end_job
python3 - <<'END' || fail "events are not numbered through"
import json
numbers = [json.loads(line)["n"] for line in open("events.jsonl")]
assert numbers == list(range(len(numbers))), numbers
END

say "by hand"
rm -f "$T"/w*.jsonl
run detached dtlaunch -n 1 --detach --orphan-timeout 5 "$DT_BIN/elastic_worker" --log "$T/w%i.jsonl" \
  --samples 200 --epochs 100000 --steps-per-epoch 20 --step-ms 20
expect_status 0
PATIENCE=30 awaits 'epoch>=1'
spec=$(python3 -c 'import json; print(json.load(open(".dtlaunch/current.json"))["state_dir"])')/spec.json
before=$(pids_of workers)
kill -KILL "$(supervisor)"
# Its parent has exited before it is ready: it continues.
start again python3 -c 'import os, signal, sys
read, write = os.pipe()
os.close(read)
os.set_inheritable(write, True)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
os.execvp("dtsupervisor", ["dtsupervisor", "--spec", sys.argv[1], "--resume", "--ready-fd", str(write)])' "$spec"
awaits term=2 'worker 0 member'
[ "$(pids_of workers)" = "$before" ] || fail "the worker was restarted"

say "by nobody"
kill -KILL "$(supervisor)"
expect_nothing_left 15
