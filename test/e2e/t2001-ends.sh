# timeout=180
# However a job is ended, none of its processes is left on any host after 10 s, not even a worker's
# child in its own session.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
ssh_hosts 2
cat >"$T/worker" <<EOT
#!/bin/sh
setsid sleep 1000 </dev/null >/dev/null 2>&1 &
exec "$DT_BIN/elastic_worker" "\$@"
EOT
chmod +x "$T/worker"
TRAIN_COMMAND=$T/worker

for way in "INT 130" "TERM 130" "HUP 130" "KILL 137"; do
  read -r signal code <<<"$way"
  say "$signal"
  rm -f "$T"/w*.jsonl
  train -n 2 -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" --
  left_over | grep -q 'sleep 1000' || fail "the worker's child in its own session is not there to be left over"
  kill "-$signal" "$JOB_PID"
  finished dtlaunch "$JOB_PID" 15
  expect_status "$code"
  expect_nothing_left 10
  [ ! -e .dtlaunch/lock ] || fail "the job's lock is still there"
done

say "Ctrl-C twice does not wait for a worker that ignores TERM"
cat >"$T/stubborn" <<EOT
#!/bin/sh
trap '' TERM
"$DT_BIN/elastic_worker" "\$@" &
while :; do wait; done
EOT
chmod +x "$T/stubborn"
rm -f "$T"/w*.jsonl
TRAIN_COMMAND=$T/stubborn
train -n 1 --stop-timeout 60 --
kill -INT "$JOB_PID"
wait_for 5 'grep -q "Stopping the job" "$T/job.out"' || fail "the first Ctrl-C was not answered"
STEP=0.3 nap  # how long the same order may come by another way, not a wait
kill -INT "$JOB_PID"
finished dtlaunch "$JOB_PID" 10
expect_status 130
expect_nothing_left 10
