# timeout=120 cost=20
# --auto-resume says first what differs from the last job, and does what is asked now.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
cat >worker <<'EOT'
#!/bin/sh
echo "LR=$LR of $WORLD_SIZE" >>"$DT_JOB.ran"
exec elastic_worker --samples 200 --epochs "${EPOCHS-100000}" --steps-per-epoch 5 --step-ms 20
EOT
chmod +x worker
job() { python3 -c 'import json; print(json.load(open(".dtlaunch/current.json"))["job"])'; }
workers() { left_over | awk '$2 ~ /elastic_worker$/ { print $1 }'; }
# begin DETACH: a job of one worker, with a checkpoint, whose dtlaunch and supervisor are killed.
begin() {
  start first dtlaunch -n 1 --env LR=0.1 --checkpoint-every 1 $1 ./worker
  awaits --start 'checkpoint>=1'
  if [ "${2-}" = ends ]; then
    kill -INT "$PID" && finished first "$PID" 20
  else
    supervisor=$(supervisor)
    kill -STOP "$supervisor"  # it must not end the job because dtlaunch died
    kill -KILL "$PID" 2>/dev/null || true
    kill -KILL "$supervisor"
  fi
}
# again EXPECTED-LINE OPTIONS...: then what ran.
again() {
  local line=$1 before
  shift
  before=$(job)
  start again dtlaunch --auto-resume --checkpoint-every 1 "$@" ./worker
  wait_for 20 'grep -Eq -- "'"$line"'" "$T/again.out"' || fail "no such line: $line: $(output again)"
  BEFORE=$before wait_for 20 '[ "$(job)" != "$BEFORE" ] && [ -n "$(workers)" ] && dtctl wait "epoch>=1" --timeout 5 >/dev/null 2>&1' || fail "it does not train: $(output again)"
  kill -INT "$PID"
  finished again "$PID" 20
  expect_status 130
  expect_nothing_left
}
for how in '' --detach; do
  say "left${how:+, $how}: the same is taken up, in the foreground"
  begin "$how"
  worker=$(workers)
  start again dtlaunch --auto-resume --checkpoint-every 1 -n 1 --env LR=0.1 ./worker
  wait_for 20 'grep -q "did not come to its end: it is taken up" "$T/again.out"' || fail "$(output again)"
  wait_for 20 'dtctl status >/dev/null 2>&1'
  [ "$(workers)" = "$worker" ] || fail "it is another worker"
  kill -INT "$PID"
  finished again "$PID" 20
  expect_status 130
  say "left${how:+, $how}: other options stop it, and count"
  begin "$how"
  again 'changed since: --env LR, -n 3 \(was 1\), --hang-timeout: it is stopped' -n 3 --env LR=0.01 --hang-timeout 90s
  expect_output again 'it goes on with epoch [0-9]+ from'
  grep -qx 'LR=0.01 of 3' "$(ls -t ./*.ran | head -n 1)" || fail "it ran otherwise: $(tail -n 3 ./*.ran)"
done
say "ended: the same, and other ones"
begin '' ends
again 'ended with exit code 130 \(Ctrl-C\): it goes on with' -n 1 --env LR=0.1
again 'changed since: -n 2 \(was 1\): it goes on with' -n 2 --env LR=0.1
say "with a supervisor: refused"
run running dtlaunch -n 1 --detach --env LR=0.1 ./worker
run refused dtlaunch -n 1 --auto-resume --env LR=0.1 ./worker
expect_status 68
run stopped dtctl stop
say "a new job over one that is left stops it first"
begin ''
start new dtlaunch -n 2 --env LR=0.5 ./worker
wait_for 20 'grep -q "what lives of it is stopped first" "$T/new.out"' || fail "$(output new)"
wait_for 20 'dtctl wait workers=2 --timeout 5 >/dev/null 2>&1' || fail "it does not begin: $(output new)"
wait_for 20 '[ "$(workers | wc -l)" -ge 2 ]' || fail "its workers do not run: $(output new)"
[ "$(workers | wc -l)" = 2 ] || fail "two jobs run"
kill -INT "$PID"
finished new "$PID" 20
expect_status 130
expect_nothing_left
