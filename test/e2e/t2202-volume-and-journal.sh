# A shared volume that stalls holds up nothing and is told; a journal that cannot be written ends
# the job, and nothing is done that it does not hold.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
supervisor() { python3 -c 'import json; print(json.load(open(".dtlaunch/current.json"))["pid"])'; }
helper() { pgrep -P "$(supervisor)" -f volume-helper; }

say 'the volume stalls for a while'
train -n 1 --
pid=$(helper)
kill -STOP "$pid"
echo localhost >>host_worker
shows 's["volume"]["stalled_s"] > 2'
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

say 'the journal'
# A file-size limit stands for a full disk. The signal that would come with it is ignored.
rm -f "$T"/w*.jsonl
# Epochs are long: the file's edit is the next thing to journal.
trap '' XFSZ
train -n 1 -- --steps-per-epoch 150
state=$(python3 -c 'import json; print(json.load(open(".dtlaunch/current.json"))["state_dir"])')
prlimit --pid "$(supervisor)" --fsize="$(stat -c %s "$state/journal")" || skip "no limit can be set"
echo localhost >>host_worker
finished dtlaunch "$JOB_PID" 30
expect_status 1
expect_output job 'the journal cannot be written'
[ "$(event worker_launched '"worker":1')" = 0 ] || fail "a worker was launched"
expect_nothing_left
