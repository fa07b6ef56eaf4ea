# timeout=400 cost=45
# A server is killed in mid-epoch: with a checkpoint the job rolls back to it, with new servers and the
# same workers, and ends with the weights of an undisturbed job, bit by bit. It does so also when
# another server, or the supervisor, dies before all are back, and when a server is only stopped.
# Without a checkpoint it ends with 67.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"

# job NAME OPTIONS...: starts a job of eight epochs; its workers' logs are $T/NAME<id>.jsonl. Worker 1 stops itself
# at STOP_AT, so that the test acts in mid-epoch on any machine.
STOP_AT=
job() {
  NAME=$1
  shift
  start "$NAME" dtlaunch -n 2 -s 2 --deterministic "$@" "$DT_BIN/elastic_worker" --log "$T/$NAME%i.jsonl" \
    --samples 200 --epochs 8 --steps-per-epoch 20 --step-ms 10 --hash --momentum 0.9 \
    ${STOP_AT:+--victim 1 --stop-at $STOP_AT}
  JOB_PID=$PID
}
weights() { grep -Eo 'Epoch\[7\] Weights=[0-9a-f]{16}' "$T/$NAME.out" | sort -u | cut -d= -f2; }
# holds EPOCH =N|>=N: waits until worker 1 is stopped in the middle of this epoch and such a checkpoint is the
# newest; sets HELD to its process.
holds() {
  PATIENCE=60 awaits --start "epoch=$1" "checkpoint$2" .rolling_back=null
  wait_for 20 'HELD=$(pid_of workers 1) && [ "$HELD" -gt 0 ]' || fail "worker 1 has no process"
  stands "$HELD"
}
goes_on() { kill -CONT "$HELD"; }
# loses_server N: the Nth is killed and the job sees it.
loses_server() {
  local before
  before=$(event rolling_back)
  kill -KILL "$(pid_of servers "$1")"
  happens rolling_back . $((before + 1))
}
# ends_as_if_nothing_happened: and no worker was started again.
ends_as_if_nothing_happened() {
  finished "$NAME" "$JOB_PID" 90
  expect_status 0
  [ "$(weights)" = "$want" ] || fail "other weights: $(weights), not $want"
  for log in "$T/$NAME"[0-9].jsonl; do
    [ "$(grep -c '"event":"start"' "$log")" = 1 ] || fail "$log: more than one process"
    grep -q '"result":"rollback"' "$log" || fail "$log: not rolled back"
  done
  [ -z "$(ls "$T/$NAME"[2-9]*.jsonl 2>/dev/null)" ] || fail "other workers were started"
  [ ! -s host_worker_log ] || fail "host_worker_log: $(cat host_worker_log)"
  expect_nothing_left
}

job undisturbed
finished undisturbed "$PID" 60
expect_status 0
want=$(weights)
[ ${#want} = 16 ] || fail "the workers do not agree: $want"

say "a server is killed; its port is fixed"
port=$((20000 + $$ % 12000))  # outside the kernel's ephemeral ports
STOP_AT=3:9
job killed --checkpoint-every 1 --keep-checkpoints 1 --server-port $port
holds 3 =3
loses_server 1
goes_on
ends_as_if_nothing_happened
expect_output killed 'server 1 on .* ended \(killed by signal 9 \(KILL\)\): back to the checkpoint of epoch 3, with new servers'
expect_output killed 'epoch 3 begins again, [0-9.]+ s after server 1 on .* ended'
[ "$(event rolled_back '"recovery_s":')" = 1 ] || fail "no event tells how long it took"

say "without a word of checkpoints the job has one behind its first epochs"
job default
holds 3 '>=1'
loses_server 1
goes_on
ends_as_if_nothing_happened
expect_output default 'server 1 on .* ended \(killed by signal 9 \(KILL\)\): back to the checkpoint of epoch [1-3], with new servers'

say "on hosts of their own, twice; one of the second ones before everybody is back"
ssh_hosts 2
STOP_AT=3:9,5:9
job again -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" --checkpoint-every 2
holds 3 =2
loses_server 0
goes_on
happens rolled_back
holds 5 =4
loses_server 1  # before all are back
awaits '.rolling_back!=null' servers=2 '.servers[pid=0].length=0'
run status dtctl status
expect_output status 'going back to the checkpoint of epoch 4: server 3 on .* ended'
loses_server 0
goes_on
ends_as_if_nothing_happened
[ "$(event rolling_back)" = 3 ] && [ "$(event rolled_back)" = 2 ] || fail "not two of three came to an end"
rm -rf .dtlaunch host_worker host_worker_log events.jsonl

say "the supervisor is killed before everybody is back"
STOP_AT=3:9
job resumed --checkpoint-every 1
holds 3 =3
loses_server 1
kill -KILL "$(supervisor)"
awaits term=2 '.rolling_back!=null'
loses_server 0
kill -KILL "$(supervisor)"
goes_on
ends_as_if_nothing_happened

say "a server stands still in mid-epoch: named, lost, and no worker is blamed"
rm -rf .dtlaunch host_worker host_worker_log events.jsonl
job stopped --checkpoint-every 1
holds 3 =3
server=$(pid_of servers 1)
kill -STOP "$server"
goes_on
happens server_silent 'server 1 on .* says nothing for'
happens rolling_back 'server 1 on .* says nothing for [0-9.]+ s .--server-dead-after. .*stopped \(T\)'
ends_as_if_nothing_happened
! alive "$server" || fail "the server that stood still is still there"
[ "$(event worker_hung)" = 0 ] || fail "a worker was taken for hung"

say "an agent is killed, and with it a server and a worker"
rm -rf .dtlaunch host_worker host_worker_log events.jsonl
job agent -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" --checkpoint-every 1
holds 3 =3
kill -KILL "$(ps -o ppid= -p "$(pid_of servers 1)")"
happens rolling_back 'is lost with its host'
finished agent "$JOB_PID" 90
expect_status 0
expect_nothing_left

# damaged EPOCH HOW newest|all: damages checkpoints in that epoch, then kills a server. No epoch ends meanwhile.
damaged() {
  local from=$1 folder file at byte
  shift
  holds "$from" "=$from"
  folder=.dtlaunch/$(python3 -c 'import json; print(json.load(open(".dtlaunch/current.json"))["job"])')/checkpoints
  for folder in "$folder"/epoch-??????; do
    [ "$2" = all ] || [ "${folder##*-}" = "$(printf %06d "$from")" ] || continue
    file=$folder/server-1.safetensors
    case $1 in
      flipped)
        at=$(($(stat -c %s "$file") - 6))  # in the middle of the last array
        byte=$(od -An -tu1 -j "$at" -N 1 "$file")
        printf "\\$(printf %o $((byte ^ 1)))" | dd of="$file" bs=1 seek="$at" conv=notrunc 2>/dev/null
        ;;
      cut) truncate -s -7 "$file" ;;
      gone) rm "$file" ;;
    esac
  done
  kill -KILL "$(pid_of servers 0)"
  happens checkpoint_damaged "the checkpoint of epoch $from could not be used: server [0-9]+ on .*server-1.safetensors"
  goes_on 2>/dev/null || true  # without another checkpoint the job has ended by now
}

say "the newest checkpoint is damaged: back to the one before; three times"
rm -rf .dtlaunch host_worker host_worker_log events.jsonl
# The second stop in an epoch is for when it runs again: its checkpoint may take a slow disk longer than the epoch,
# and the next epoch then has none.
STOP_AT=3:9,3:12,4:9,4:12,5:9
job damaged --checkpoint-every 1
rounds=0
for how in flipped cut gone; do
  from=$((rounds + 3))
  damaged $from $how newest
  happens rolling_back "the checkpoint of epoch $from could not be used: back to the checkpoint of epoch $((from - 1)), with new servers"
  rounds=$((rounds + 1))
  happens rolled_back . $rounds
  [ $rounds = 3 ] || { holds "$from" "=$from" && goes_on; }
done
ends_as_if_nothing_happened
expect_output damaged 'server-1.safetensors: key[0-9]+.* is damaged \(its checksum differs\)'
expect_output damaged 'server-1.safetensors: No such file'

say "every checkpoint is damaged"
rm -rf .dtlaunch host_worker host_worker_log events.jsonl "$T"/damaged*
STOP_AT=3:9
job damaged --checkpoint-every 1 --keep-checkpoints 2
damaged 3 flipped all
finished damaged "$JOB_PID" 60
expect_status 67
[ "$(event checkpoint_damaged)" = 2 ] || fail "not both were tried"
expect_output damaged 'could not be used, and no other one is there to go back to'
expect_nothing_left

say "without a checkpoint"
for options in '--checkpoint-every 0' '--checkpoint-every 100'; do
  rm -rf .dtlaunch host_worker host_worker_log events.jsonl "$T"/none*
  STOP_AT=1:9
  job none $options
  PATIENCE=60 awaits --start epoch=1
  HELD=$(pid_of workers 1)
  stands "$HELD"
  kill -KILL "$(pid_of servers 1)"
  goes_on 2>/dev/null || true
  finished none "$JOB_PID" 30
  expect_status 67
  expect_output none 'server 1 on .* ended .* and no checkpoint is there to go back to'
  expect_nothing_left
done
