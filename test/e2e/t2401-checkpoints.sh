# timeout=300 cost=40
# Checkpoints while a job trains; a server killed in mid-epoch; all processes killed at once. A job that
# continues from a checkpoint ends with the weights of an undisturbed job, bit by bit.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"

# job NAME OPTIONS...: starts a job of eight epochs. Worker 1 stops itself at STOP_AT, if that is set.
STOP_AT=
job() {
  local name=$1
  shift
  start "$name" dtlaunch -n 2 -s 2 --deterministic "$@" "$DT_BIN/elastic_worker" --samples 200 \
    --epochs 8 --steps-per-epoch 20 --step-ms 10 --hash --momentum 0.9 ${STOP_AT:+--victim 1 --stop-at $STOP_AT}
}
# weights NAME: of the job's end.
weights() { grep -Eo 'Epoch\[7\] Weights=[0-9a-f]{16}' "$T/$1.out" | sort -u | cut -d= -f2; }
checkpoints() { echo $(cd "$JOB/.dtlaunch/$1/checkpoints" && ls); }
# pointer MEMBER: of the file that names the folder's job.
pointer() { python3 -c "import json; print(json.load(open('.dtlaunch/current.json'))['$1'])"; }
name() { pointer job; }
kill_everything() {
  while read -r pid _; do kill -KILL "$pid" 2>/dev/null || true; done < <(left_over)
  STEP=0.5 wait_for 10 '[ -z "$(left_over)" ]' || fail "left over: $(left_over)"
}
# holds EPOCH [CHECKPOINT]: the job just started is in mid-epoch, with that checkpoint as its newest; sets HELD,
# the worker for which it waits.
holds() {
  PATIENCE=60 awaits --start "epoch=$1" ${2:+"checkpoint=$2"}
  wait_for 20 'HELD=$(pid_of workers 1) && [ "$HELD" -gt 0 ]' || fail "worker 1 has no process"
  stands "$HELD"
}

# resumed NAME: the folder's job continues from a checkpoint; its leftovers have ended then.
resumed() {
  start "$1" dtlaunch --resume .
  wait_for 30 "grep -q '^Going on with' '$T/$1.out'" || fail "it does not go on: $(output "$1")"
}

job undisturbed
finished undisturbed "$PID" 60
expect_status 0
want=$(weights undisturbed)
[ ${#want} = 16 ] || fail "the workers do not agree: $want"

say "a server is killed in mid-epoch"
STOP_AT=4:9
job first --checkpoint-every 1 --keep-checkpoints 2
first=$PID
holds 4 4
killed_in=$(name)
kill -KILL "$(pid_of servers 1)"
awaits 'event rolling_back'
kill -CONT "$HELD"
finished first "$first" 60
expect_status 0
expect_output first 'back to the checkpoint of epoch 4, with new servers'
expect_nothing_left
[ "$(weights first)" = "$want" ] || fail "other weights: $(weights first), not $want"
[ "$(checkpoints "$killed_in" | wc -w)" -le 3 ] || fail "too many: $(checkpoints "$killed_in")"
[[ "$(checkpoints "$killed_in")" = *epoch-000007 ]] || fail "not the newest: $(checkpoints "$killed_in")"

say "everything is killed"
job third --checkpoint-every 3 --keep-checkpoints 2
third=$PID
holds 4 3
kill -STOP "$(pointer pid)"  # it must not decide anything when dtlaunch dies
kill -KILL "$third"
kill_everything
finished third "$third" 10
resumed fourth
fourth=$PID
holds 4
expect_output fourth 'Going on with epoch 3 from .*epoch-000003'

say "everything is killed after the job's end was decided"
journal=$(pointer state_dir)/journal
for pid in $(left_over | awk '$2 ~ /dtagent/ { print $1 }'); do kill -STOP "$pid"; done
kill -KILL "$fourth"
wait_for 10 'grep -aq "the dtlaunch that owns the job is gone" "$journal"' || fail "no end decided"
kill_everything
finished fourth "$fourth" 10
resumed fifth
fifth=$PID
holds 4
kill -CONT "$HELD"
finished fifth "$fifth" 90
expect_status 0
expect_output fifth 'Going on with epoch 3 from .*epoch-000003'
[ "$(weights fifth)" = "$want" ] || fail "other weights: $(weights fifth), not $want"

say "a checkpoint that is damaged is passed over"
STOP_AT=
job whole --checkpoint-every 3 --keep-checkpoints 2
finished whole "$PID" 60
expect_status 0
file=$JOB/.dtlaunch/$(name)/checkpoints/epoch-000006/server-0.safetensors
at=$(($(stat -c %s "$file") - 6))  # in the middle of the last array
byte=$(od -An -tu1 -j "$at" -N 1 "$file")
printf "\\$(printf %o $((byte ^ 1)))" | dd of="$file" bs=1 seek="$at" conv=notrunc 2>/dev/null
run finished dtlaunch --resume "$JOB"
expect_status 0
expect_output finished 'job .* has finished'
start sixth dtlaunch --resume "$JOB" --again
finished sixth "$PID" 60
expect_status 0
expect_output sixth 'passed over: .*epoch-000006/server-0.safetensors: key[0-9]+.* is damaged \(its checksum differs\)'
expect_output sixth 'Going on with epoch 3 from'
[ "$(weights sixth)" = "$want" ] || fail "other weights: $(weights sixth), not $want"

say "resumed before the supervisor of the ended job has gone: a stand-in listens in its place"
start stopped dtlaunch -n 1 --checkpoint-every 1 "$DT_BIN/elastic_worker" --samples 50 --epochs 100000 --steps-per-epoch 20 --step-ms 10
PATIENCE=30 awaits --start 'epoch>=2' 'checkpoint>=2'
dtctl stop >/dev/null
finished stopped "$PID" 20
expect_status 130
cat >"$T/stand_in.py" <<'END'
import json, os, socket, sys, time
path = sys.argv[1]
with open(path) as file:
    pointer = json.load(file)
os.makedirs(os.path.dirname(pointer["socket"]), mode=0o700, exist_ok=True)
listener = socket.socket(socket.AF_UNIX)
listener.bind(pointer["socket"])
listener.listen()
pointer["pid"] = os.getpid()
with open(path + ".new", "w") as file:
    json.dump(pointer, file)
os.rename(path + ".new", path)
listener.accept()  # a client asks whether the job runs
time.sleep(0.5)  # how long it does not answer, not a wait
os.unlink(pointer["socket"])
END
start stand_in python3 "$T/stand_in.py" "$JOB/.dtlaunch/current.json"
stand_in=$PID
wait_for 5 '[ "$(pointer pid)" = "$stand_in" ]' || fail "no stand-in"
resumed resumed
! alive "$stand_in" || fail "the job was resumed beside the one before"
PATIENCE=30 awaits --start 'epoch>=2'
dtctl stop >/dev/null
finished resumed "$PID" 20
expect_status 130

say "what cannot be gone on with"
mkdir "$T/empty"
run nothing dtlaunch --resume "$T/empty"
expect_status 2
expect_output nothing 'no job was ever started in'
run extra dtlaunch --resume "$JOB" -n 3
expect_status 2
expect_output extra 'no command and no other options'
cd "$T/empty"
run without dtlaunch -n 1 -s 1 --checkpoint-every 0 "$DT_BIN/elastic_worker" --samples 50 --epochs 1
expect_status 0
run none dtlaunch --resume . --again
expect_status 2
expect_output none 'no checkpoint is there to begin with: none was asked for'
