# timeout=300 cost=70
# Workers with progress bars on a shared volume where each open() takes 20 ms: their output fills the volume's queue,
# and who waits for an answer does not notice. DT_SLOW_WORKERS=100 prints the figures for that many.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
WORKERS=${DT_SLOW_WORKERS:-24}
PATIENCE=100
# answers WHAT COMMAND...: it succeeds within 5 seconds, half of the limit of a call on the volume.
answers() {
  local what=$1 from=$EPOCHREALTIME took
  shift
  "$@" >"$T/answer.out" 2>&1 || fail "$what: $(output answer)"
  took=$(awk -v a="$from" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.2f", b - a }')
  say "$what: $took s"
  awk -v t="$took" 'BEGIN { exit t > 5 }' || fail "$what took $took s"
}
volume() { dtctl status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["volume"])'; }

LD_PRELOAD=$DT_BUILD/test/slow_open/slow_open.so DT_SLOW_OPEN_MS=20 \
  train -n "$WORKERS" -s 1 --checkpoint-every 1 --quiet --dead-after 60s --server-dead-after 60s -- --steps-per-epoch 5 --step-ms 500 --progress-bar
awaits ".supervisor_s>${DT_SLOW_SECONDS:-15}"  # long enough for a queue that grows to hold everything up
say "$WORKERS workers: $(volume)"
answers 'dtctl status' dtctl status
answers 'dtctl add' dtctl add localhost
answers 'host_worker is accepted' dtctl wait --timeout 60 'event file_accepted'
changed 'ADDED localhost'
answers 'dtctl remove is refused' sh -c '! dtctl remove localhost:1'
awaits 'event checkpoint_taken>=4'
say "$(event checkpoint_taken) checkpoints; $(volume)"
[ "$(event checkpoint_failed)" = 0 ] || fail "a checkpoint was not sealed within its epoch: $(grep checkpoint_failed "$(story)" | head -n 3)"
[ "$(event file_refused)" = 0 ] || fail "host_worker could not be read"
[ "$(event output_delayed)" = 0 ] || fail "output waits too long"
end_job
! grep -q 'lacks its last lines\|does not answer\|too slow' "$T/job.out" || fail "files lack their end: $(output job)"
tail -c 20 .dtlaunch/*/logs/worker-0.log | grep -q 'step' || fail "no output in the log"

say 'a worker prints more than the volume takes, 1 MB/s: nothing of it is missing, and the others do not notice'
rm -f "$T"/w*.jsonl
lines=300000 # of 38 bytes
! is_nightly || lines=600000
cat >"$T/some_flood" <<EOT
#!/bin/sh
flood() { seq -f 'worker says %012.0f ............' "\$@"; }
[ "\$RANK" = 0 ] || {
  flood 1 $lines
  : >"$T/first"
  until [ -e "$T/stalls" ]; do sleep 0.1; done  # between two looks, not a wait
  flood 1000001 1600000
  : >"$T/second"
} &
exec "$DT_BIN/elastic_worker" "\$@" >/dev/null
EOT
chmod +x "$T/some_flood"
TRAIN_COMMAND=("$T/some_flood")
LD_PRELOAD=$DT_BUILD/test/slow_open/slow_open.so DT_SLOW_KB_PER_S=1000 train -n 2 -s 1 --
seq -f 'worker says %012.0f ............' 1 $lines >"$T/all"
log=$(ls -td .dtlaunch/*/logs | head -n 1)/worker-1.log
PATIENCE=60
! is_nightly || happens output_waits 'worker 1 on localhost'
wait_for 60 '[ "$(stat -c %s "$log")" -ge "$(stat -c %s "$T/all")" ]' || fail "the log is not written"
cmp -n "$(stat -c %s "$T/all")" "$T/all" "$log" || fail "the log is not whole"
some_epochs 2

say 'it takes nothing: the worker does not wait'
helper=$(pgrep -P "$(supervisor)" -f volume-helper)
kill -STOP "$helper"
: >"$T/stalls"
wait_for 20 '[ -e "$T/second" ]' || fail "it waits for a volume that takes nothing"
some_epochs 2
awaits '.volume.stalled_s>8'
kill -CONT "$helper"
wait_for 60 'tail -n 1 "$log" | grep -q 000001600000' || fail "the log lacks its end"
grep -aEq '^\[dtlaunch: [0-9]+ bytes are missing here: the shared volume took nothing for [1-9][0-9]* s\]$' "$log" ||
  fail "no line tells what is missing: $(grep -a missing "$log")"
[ "$(event worker_stalls)$(event host_suspect)$(event worker_died)" = 000 ] || fail "somebody noticed: $(cut -c1-200 "$(story)" | tail -n 5)"
end_job
