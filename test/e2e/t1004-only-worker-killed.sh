# timeout=120 nightly
# The only worker is killed: a new one begins the interrupted epoch again and the job ends well.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
train -n 1 -- --epochs 8 --crash-at 3:7 --victim 0
finished dtlaunch "$JOB_PID" 60
expect_status 0
changed 'REMOVED localhost' 'ADDED localhost'
happens nobody_left 'epoch 3 starts again'
grep -m 1 '"event":"step"' "$T/w1.jsonl" | grep -q '"epoch":3,"event":"step","step":0,' ||
  fail "worker 1 did not begin with step 0 of epoch 3"
worker_log once "$T/w1.jsonl"
tail -n 1 "$T/w1.jsonl" | grep -q '"epoch":7,"event":"end"' || fail "worker 1 did not end epoch 7"
expect_nothing_left
