# timeout=180
# dtlaunch and its supervisor are killed: dtlaunch --resume adopts the workers that still train; none
# restarts.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
start job dtlaunch -n 2 -s 1 --checkpoint-every 2 "$DT_BIN/elastic_worker" --log "$T/w%i.jsonl" \
  --samples 200 --epochs 8 --steps-per-epoch 20 --step-ms 20 --victim 1 --stop-at 4:9
job=$PID
PATIENCE=60 awaits --start 'epoch>=4'
worker=$(pid_of workers 1)
stands "$worker"  # until it is taken over: the job cannot end before
run twice dtlaunch --resume .
expect_status 68
expect_output twice 'is running: see dtctl status'
supervisor=$(supervisor)
kill -STOP "$supervisor"  # it must not end the job because dtlaunch died
kill -KILL "$job" "$supervisor"
finished job "$job" 10
start again dtlaunch --resume .
awaits 'term>=2'
kill -CONT "$worker"
finished again "$PID" 90
expect_status 0
! grep -q 'Going on with epoch' "$T/again.out" || fail "it began anew: $(output again)"
for id in 0 1; do
  [ "$(grep -c '"event":"start"' "$T/w$id.jsonl")" = 1 ] || fail "worker $id was started twice"
  worker_log once "$T/w$id.jsonl"
done
expect_nothing_left
