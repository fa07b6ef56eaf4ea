# timeout=180 cost=30
# A shared volume that stalls delays nothing and is reported. While the journal cannot be written, the job
# waits at its next boundary and does nothing that is not journalled.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
helper() { pgrep -P "$(supervisor)" -f volume-helper; }

say 'the volume stalls for a while'
train -n 1 --
pid=$(helper)
kill -STOP "$pid"
echo localhost >>host_worker
awaits '.volume.stalled_s>2'
dtctl status >"$T/text.out"
expect_output text 'the shared volume has not answered for'
some_epochs 2
kill -CONT "$pid"
changed 'ADDED localhost'
members 0,1
worker_log once "$T/w0.jsonl"

say 'and at the end'
pid=$(helper)
kill -STOP "$pid"
dtctl stop >"$T/stop.out" 2>&1 || true
finished dtlaunch "$JOB_PID" 60
expect_status 130
expect_output job 'WARNING the job was stopped: (Ctrl-C|dtctl stop by )'
expect_output job 'WARNING the shared volume does not answer'
expect_nothing_left
dtctl stop >"$T/stop.out" 2>&1 || true  # that it has ended could not be written

say 'the journal has no room'
# A file-size limit stands for a full disk. The supervisor ignores the signal that comes with it.
rm -f "$T"/w*.jsonl
train -n 1 --
state=$(python3 -c 'import json; print(json.load(open(".dtlaunch/current.json"))["state_dir"])')
worker=$(pgrep -f "elastic_worker --log $T/w%i" | head -n 1)
prlimit --pid "$(supervisor)" --fsize="$(stat -c %s "$state/journal"):" || skip "no limit can be set"
happens journal_full 'nothing is decided until it can be written'
shows 's["journal"]["waits_s"] > 1'
dtctl status >"$T/text.out"
expect_output text 'File too large: nothing is decided for .* training waits at the next boundary'
run refusal dtctl leave localhost --in 1h  # 10 s later: what is not journalled is not done
expect_status 1
expect_output refusal 'File too large: it is done when that can be written, unless the supervisor ends before'
start leave dtctl leave localhost --in 1h
LEAVE_PID=$PID
prlimit --pid "$(supervisor)" --fsize=unlimited:
happens journal_written
finished leave "$LEAVE_PID" 10
expect_status 0
dtctl leave localhost --cancel
some_epochs 2
alive "$worker" || fail "the worker was not left alone"
prlimit --pid "$(supervisor)" --fsize="$(stat -c %s "$state/journal"):"
happens journal_full . 2
dtctl stop >"$T/stop.out" 2>&1 || true
finished dtlaunch "$JOB_PID" 30
expect_status 130
expect_nothing_left

say 'a supervisor that cannot start again is tried until it can'
rm -f "$T"/w*.jsonl
train -n 1 --
state=$(python3 -c 'import json; print(json.load(open(".dtlaunch/current.json"))["state_dir"])')
mv "$state/spec.json" "$T/spec.json"
kill -KILL "$(supervisor)"
wait_for 20 'grep -q "The supervisor cannot go on yet" "$T/job.out"' || fail "it is not tried again"
mv "$T/spec.json" "$state/spec.json"
shows 's["term"] == 2'
some_epochs 2
end_job
expect_nothing_left
