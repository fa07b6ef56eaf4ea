# Checkpoints while a job trains; a server killed in mid-epoch; everything killed at once. What goes
# on from a checkpoint ends with the weights of a job that nothing happened to, bit by bit.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"

# job NAME OPTIONS...: starts one of eight epochs, about 20 STEP_MS each.
STEP_MS=30
job() {
  local name=$1
  shift
  start "$name" dtlaunch -n 2 -s 2 --deterministic "$@" "$DT_BIN/mlp_worker" --samples 200 \
    --epochs 8 --steps-per-epoch 20 --step-ms $STEP_MS --hash --momentum 0.9
}
# weights NAME: of the job's end.
weights() { grep -Eo 'Epoch\[7\] Weights=[0-9a-f]{16}' "$T/$1.out" | sort -u | cut -d= -f2; }
checkpoints() { echo $(cd "$JOB/.dtlaunch/$1/checkpoints" && ls); }
# pointer MEMBER: of the file that names the folder's job.
pointer() { python3 -c "import json; print(json.load(open('.dtlaunch/current.json'))['$1'])"; }
name() { pointer job; }
kill_everything() {
  while read -r pid _; do kill -KILL "$pid" 2>/dev/null || true; done < <(left_over)
  wait_for 10 '[ -z "$(left_over)" ]' || fail "left over: $(left_over)"
}
server() { python3 -c 'import json, sys
s = json.load(open(sys.argv[1]))
print(s["servers"][1]["pid"])' "$T/status.json"; }

job undisturbed
finished undisturbed "$PID" 60
expect_status 0
want=$(weights undisturbed)
[ ${#want} = 16 ] || fail "the workers do not agree: $want"

say "a server is killed in mid-epoch"
job first --checkpoint-every 1 --keep-checkpoints 2
first=$PID
PATIENCE=60 shows 's["checkpoint"]["newest"] is not None'
killed_in=$(name)
victim=$(server)
# Told once it counts; the folder is there before.
wait_for 30 'grep -q "checkpoint of epoch [3-5]:" "$T/first.out"' || fail "no checkpoint of epoch 3"
kill -KILL "$victim"
finished first "$first" 60
expect_status 0
expect_output first 'back to the checkpoint of epoch [3-7], with new servers'
expect_nothing_left
[ "$(weights first)" = "$want" ] || fail "other weights: $(weights first), not $want"
[ "$(checkpoints "$killed_in" | wc -w)" -le 3 ] || fail "too many: $(checkpoints "$killed_in")"
[[ "$(checkpoints "$killed_in")" = *epoch-000007 ]] || fail "not the newest: $(checkpoints "$killed_in")"

say "everything is killed"
STEP_MS=80  # between two checkpoints there is time to look
job third --checkpoint-every 3 --keep-checkpoints 2
third=$PID
wait_for 60 '[ "$(checkpoints "$(name)" 2>/dev/null)" = epoch-000003 ]' || fail "no checkpoint of epoch 3"
kill -STOP "$(pointer pid)"  # it must not decide anything when dtlaunch dies
kill -KILL "$third"
kill_everything
finished third "$third" 10
start fourth dtlaunch --resume .
fourth=$PID
wait_for 30 'grep -q "Epoch.4. Weights" "$T/fourth.out"' || fail "it did not go on"
expect_output fourth 'Going on with epoch 3 from .*epoch-000003'

say "everything is killed after the job's end was decided"
journal=$(pointer state_dir)/journal
for pid in $(left_over | awk '$2 ~ /dtagent/ { print $1 }'); do kill -STOP "$pid"; done
kill -KILL "$fourth"
wait_for 10 'grep -aq "the dtlaunch that owns the job is gone" "$journal"' || fail "no end decided"
kill_everything
finished fourth "$fourth" 10
start fifth dtlaunch --resume .
finished fifth "$PID" 90
expect_status 0
expect_output fifth 'Going on with epoch [36] from .*epoch-00000[36]'
[ "$(weights fifth)" = "$want" ] || fail "other weights: $(weights fifth), not $want"

say "a checkpoint that is damaged is passed over"
STEP_MS=30
job whole --checkpoint-every 3 --keep-checkpoints 2
finished whole "$PID" 60
expect_status 0
file=$JOB/.dtlaunch/$(name)/checkpoints/epoch-000006/server-0.safetensors
at=$(($(stat -c %s "$file") - 6))  # in the middle of the last array
byte=$(od -An -tu1 -j "$at" -N 1 "$file")
printf "\\$(printf %o $((byte ^ 1)))" | dd of="$file" bs=1 seek="$at" conv=notrunc 2>/dev/null
start sixth dtlaunch --resume "$JOB"
finished sixth "$PID" 60
expect_status 0
expect_output sixth 'passed over: .*epoch-000006/server-0.safetensors: key[0-9]+.* is damaged \(its checksum differs\)'
expect_output sixth 'Going on with epoch 3 from'
[ "$(weights sixth)" = "$want" ] || fail "other weights: $(weights sixth), not $want"

say "what cannot be gone on with"
mkdir "$T/empty"
run nothing dtlaunch --resume "$T/empty"
expect_status 2
expect_output nothing 'no job was started in this folder'
run extra dtlaunch --resume "$JOB" -n 3
expect_status 2
expect_output extra 'no command and no other options'
cd "$T/empty"
run without dtlaunch -n 1 -s 1 "$DT_BIN/mlp_worker" --samples 50 --epochs 1
expect_status 0
run none dtlaunch --resume .
expect_status 2
expect_output none 'no checkpoint is there to begin with \(--checkpoint-every\)'
