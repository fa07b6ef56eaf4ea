# cost=12
# What a terminal gets of many workers: the lead's lines, and the last ones of a worker that fails; or all, equal ones
# once; or none. The files in the job folder are whole in any case.
. "$(dirname "$0")/lib.sh"
cat >"$T/talk" <<'EOT'
#!/bin/sh
# meet WHERE: all workers are there. They begin at about the same time, and none ends before the others have spoken.
meet() {
  [ -n "${MEET-}" ] || return 0
  : >"$MEET/$1.$RANK"
  until [ "$(ls "$MEET" | grep -c "^$1")" = 6 ]; do sleep 0.05; done  # between two looks, not a wait
}
meet begin
for step in 0 1 2; do echo "step $step"; done
echo "I am $RANK"
meet end
printf 'no end of line'
[ "${FAILS-}" != "$RANK" ] || { echo; echo "boom" >&2; exit 7; }
[ -z "${STAYS-}" ] || exec sleep 60
EOT
chmod +x "$T/talk"
# whole: every worker's file has all of its lines.
whole() {
  local rank folder
  folder=$(ls -td .dtlaunch/*/logs | head -n 1)
  for rank in 0 1 2 3 4 5; do
    [ "$(tail -n 2 "$folder/worker-$rank.log" | head -n 1)" = "I am $rank" ] || fail "the file of worker $rank is not whole"
  done
}
job() { run "$1" dtlaunch -n 6 -s 0 "${@:2}" "$T/talk"; }

job lead
expect_status 0
expect_output lead '^\[worker 0 localhost\] step 2$'
expect_output lead '^\[worker 0 localhost\] no end of line$'
expect_output lead 'only those of rank 0 are shown'
! grep -q 'worker [1-5] localhost' "$T/lead.out" || fail "another worker's line is shown"
whole

mkdir "$T/meet"
MEET=$T/meet job all --output all --env MEET
expect_status 0
expect_output all '^\[workers [0-9,-]+\] step 0$'
for rank in 0 1 2 3 4 5; do
  [ "$(grep -c "^\[worker $rank localhost\] I am $rank\$" "$T/all.out")" = 1 ] || fail "worker $rank is not there once"
done
[ "$(grep -c 'step 1$' "$T/all.out")" -lt 6 ] || fail "equal lines are not folded"
# Folded or not, each worker's lines are in their order.
for rank in 0 1 2 3 4 5; do
  [ "$(python3 "$DT_SOURCE/test/e2e/lines_of.py" "$rank" <"$T/all.out" | tr '\n' ,)" = "step 0,step 1,step 2,I am $rank,no end of line," ] ||
    fail "the lines of worker $rank are not all there, in their order"
done
whole

job none --output none
expect_status 0
! grep -q 'step' "$T/none.out" || fail "a process's line is shown"
whole

FAILS=3 STAYS=1 job fails --env FAILS --env STAYS
expect_status 7
expect_output fails '^\[worker 3 localhost\] boom$'
! grep -qE 'worker [1245] localhost' "$T/fails.out" || fail "workers that were stopped are shown"

# A program that does not flush, and is killed: each line is shown at once, and is in its file.
cat >"$T/killed.py" <<'EOT'
import os
import time
print("epoch 0")
while not os.path.exists("seen"):
    time.sleep(0.01)  # between two looks, not a wait
print("epoch 1")
os.kill(os.getpid(), 9)
EOT
start killed env -u PYTHONUNBUFFERED dtlaunch -n 1 -s 0 python3 "$T/killed.py"
killed=$PID
wait_for 10 'grep -q "epoch 0" "$T/killed.out"' || fail "the line is held back"
touch seen
finished killed "$killed" 20
expect_status 137
expect_output killed '^\[worker 0 localhost\] epoch 1$'
[ "$(cat "$(ls -td .dtlaunch/*/logs | head -n 1)/worker-0.log")" = $'epoch 0\nepoch 1' ] || fail "its file is not whole"

# Nothing is held back at Ctrl-C.
export STAYS=1
start stays dtlaunch -n 6 -s 0 --output all --env STAYS "$T/talk"
job=$PID
wait_for 10 '[ "$(grep -c "I am" "$T/stays.out")" = 6 ]' || fail "not all are there"
kill -INT "$job"
finished stays "$job" 20
expect_status 130
for rank in 0 1 2 3 4 5; do
  expect_output stays "^\[worker $rank localhost\] no end of line\$"
done
expect_nothing_left
