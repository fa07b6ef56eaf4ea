# timeout=240 cost=45 schedulers nightly
# An elastic job inside a gridengine job: on the host of its script without a starter, on the others by
# qrsh -inherit. It grows and shrinks; each qrsh and the supervisor are killed; qdel leaves nothing.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
. "$(dirname "$0")/sge.sh"
sge_up 3
dtctl() { in_sge "$DT_BIN/dtctl" --job-dir "$JOB" "$@"; }
of_job() { left_over | grep -E "dt(agent|launch|server|supervisor)|elastic_worker|qrsh " || true; }
# submit PE SLOTS OPTIONS...: a job of the script on stdin; its output in $T/home/PE.txt; sets NUMBER.
submit() {
  local pe=$1 slots=$2
  STATUS=0
  cat >"$T/$pe.sh"
  chmod 755 "$T/$pe.sh"
  in_sge qsub "${@:3}" -V -o "$T/home/$pe.txt" -j y -pe "$pe" "$slots" "$T/$pe.sh" >"$T/qsub.txt" 2>&1 || STATUS=$?
  NUMBER=$(sed -nE 's/^Your job ([0-9]+) .*/\1/p' "$T/qsub.txt")
  [ -n "$NUMBER" ] || fail "qsub: $(cat "$T/qsub.txt")"
}
said() { grep -Eq -- "$2" "$T/home/$1.txt" || fail "nothing like /$2/: $(cat "$T/home/$1.txt")"; }

say "control_slaves FALSE: refused, with what to do"
submit loose 2 -sync y <<EOT
cd $JOB
exec $DT_BIN/dtlaunch -s 0 true
EOT
expect_status 2
said loose '^dtlaunch: SGE job [0-9]+: its parallel environment loose has control_slaves FALSE, .*qconf -mp loose'

say "job_is_first_task FALSE: a worker on each host"
submit mpi 2 -sync y <<EOT
cd $JOB
$DT_BIN/dtlaunch --dry-run train_cmd
exec $DT_BIN/dtlaunch -s 0 sh -c 'echo "\$RANK of \$WORLD_SIZE"'
EOT
expect_status 0
said mpi '^g[1-3] is this machine, g[1-3] by qrsh -inherit -V g[1-3] /bin/sh, not elastic$'
said mpi '\[worker 0 g[1-3]\] 0 of 2$'
said mpi '\[worker 1 g[1-3]\] 1 of 2$'

say "job_is_first_task TRUE: 1 -> 3 -> 1 workers"
submit first 3 <<EOT
cd $JOB
set -- \$(cut -d' ' -f1 "\$PE_HOSTFILE")
echo \$* >$T/home/hosts
$DT_BIN/starter_echo sge \$2 || exit 1
$DT_BIN/starter_echo sge \$1 && exit 1
exec $DT_BIN/dtlaunch -n 1 --dead-after 20s --poll-interval 300ms --elastic-training-enabled \
  $DT_BIN/elastic_worker --log $T/home/w%i.jsonl --samples 200 --epochs 100000 --steps-per-epoch 20 --step-ms 20
EOT
PATIENCE=60 awaits --start 'epoch>=1'
said first "^starter_echo: .*didn't accept task.*: SGE lets a job start as many tasks at once"
read -r own second third <"$T/home/hosts"
echo "$second" >>host_worker
PATIENCE=40 changed "ADDED $second"
echo "$third" >>host_worker
PATIENCE=40 changed "ADDED $second" "ADDED $third"
members 0,1,2
pids_of() { dtctl status --json | python3 -c 'import json, sys
print(*[p["pid"] for p in json.load(sys.stdin)[sys.argv[1]]])' "$1"; }

say "each qrsh is killed: attached again, nothing restarted"
before="$(pids_of workers) $(pids_of servers)"
for host in "$second" "$third"; do
  kill -KILL $(pgrep -f "qrsh -inherit -V $host ")
  happens link_down "$host"
  PATIENCE=40 awaits "host $host up"
done

say "the supervisor is killed: its qrshs go with it, a new one attaches"
supervisor=$(python3 -c 'import json; print(json.load(open(".dtlaunch/current.json"))["pid"])')
starters=$(pgrep -P "$supervisor" qrsh)
[ -n "$starters" ] || fail "the supervisor has no qrsh"
kill -KILL "$supervisor"
for pid in $starters; do wait_for 5 "! alive $pid" || fail "qrsh $pid outlives its supervisor"; done
PATIENCE=40 awaits "host $own up" "host $second up" "host $third up"
[ "$(pids_of workers) $(pids_of servers)" = "$before" ] || fail "something was restarted"
members 0,1,2

say "what the workers see is there, and is no task's of qrsh"
for pid in $(pids_of workers); do
  tr '\0' '\n' <"/proc/$pid/environ" >"$T/seen"
  ! grep -E '^PE_HOSTFILE=' "$T/seen" || fail "worker $pid sees a task"
  grep -qx "JOB_ID=$NUMBER" "$T/seen" || fail "worker $pid does not see its job"
  folder=$(sed -n 's/^TMPDIR=//p' "$T/seen")
  [ -d "/proc/$pid/root${folder:-/tmp}" ] || fail "worker $pid has a TMPDIR that is gone: $folder"
done

sed -i '$d' host_worker
changed "ADDED $second" "ADDED $third" "REMOVED $third"
sed -i '$d' host_worker
changed "ADDED $second" "ADDED $third" "REMOVED $third" "REMOVED $second"
members 0

say "a host joins again; qdel: nothing is left"
echo "$second" >>host_worker
PATIENCE=40 changed "ADDED $second" "ADDED $third" "REMOVED $third" "REMOVED $second" "ADDED $second"
members 0,3
in_sge qdel "$NUMBER" >>"$T/qsub.txt"
deleted=$SECONDS
STEP=0.2 wait_for 10 '[ -z "$(of_job)" ]' || fail "left after qdel: $(of_job)"
say "nothing is left $((SECONDS - deleted)) s after qdel"
