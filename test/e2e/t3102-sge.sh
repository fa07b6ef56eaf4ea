# timeout=240 cost=60 schedulers
# An elastic job inside a gridengine job: on the host of its script without a starter, on the others by
# qrsh -inherit. It grows and shrinks; each qrsh, the supervisor and an agent are killed; qdel, and
# kill -9 of dtlaunch with its supervisor, leave nothing.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
. "$(dirname "$0")/sge.sh"
sge_up 3
dtctl() { in_sge "$DT_BIN/dtctl" --job-dir "$JOB" "$@"; }
# All but gridengine's own: its daemons and shepherds, the hosts, and who waits for a job here.
of_job() { left_over | grep -Ev "^[0-9]+ (([^ ]*/)?(sge_|qrsh_starter)|sleep infinity|unshare |qsub )" || true; }
# submit NAME OPTIONS...: a job of the script on stdin; its output in $T/home/NAME.txt; sets NUMBER.
submit() {
  local name=$1
  STATUS=0
  cat >"$T/$name.sh"
  chmod 755 "$T/$name.sh"
  in_sge qsub "${@:2}" -V -o "$T/home/$name.txt" -j y "$T/$name.sh" >"$T/qsub.txt" 2>&1 || STATUS=$?
  NUMBER=$(sed -nE 's/^Your job ([0-9]+) .*/\1/p' "$T/qsub.txt")
  [ -n "$NUMBER" ] || fail "qsub: $(cat "$T/qsub.txt")"
}
said() { grep -Eq -- "$2" "$T/home/$1.txt" || fail "nothing like /$2/: $(cat "$T/home/$1.txt")"; }
# all_gone SECONDS: no process of the job is left, on any host.
all_gone() {
  local since=$SECONDS
  STEP=0.2 wait_until "$1" '[ -z "$(of_job)" ]' || fail "left after $1 s: $(of_job)"
  say "nothing is left $((SECONDS - since)) s later"
}

say "without a parallel environment, and with control_slaves FALSE: refused, with what to do"
submit plain <<EOT
cd $JOB
exec $DT_BIN/dtlaunch -s 0 true
EOT
submit loose -pe loose 2 -sync y <<EOT
cd $JOB
exec $DT_BIN/dtlaunch -s 0 true
EOT
expect_status 2
said loose '^dtlaunch: SGE job [0-9]+: its parallel environment loose has control_slaves FALSE, .*qconf -mp loose'
wait_for 10 '[ -s "$T/home/plain.txt" ]' || fail "the plain job says nothing"
said plain '^dtlaunch: -n is missing: .*this SGE job has none \(qsub -pe NAME SLOTS\)$'

say "job_is_first_task FALSE: a worker on each host, Ctrl-C, kill -9 of dtlaunch with its supervisor"
submit mpi -pe mpi 2 <<EOT
cd $JOB
$DT_BIN/dtlaunch -n 5 -s 0 true
$DT_BIN/dtlaunch --dry-run train_cmd
$DT_BIN/dtlaunch -s 0 sh -c 'echo "\$RANK of \$WORLD_SIZE"'
$DT_BIN/dtctl exec --timeout 20 -- 'printf "no end of line"; exit 3' || echo "exec: \$?"
$DT_BIN/dtlaunch -s 0 sleep 1001 &
echo \$! >$T/home/interrupted
wait \$! || echo "interrupted: \$?"
exec $DT_BIN/dtlaunch -s 0 sleep 1002
EOT
sleeps() { [ "$(left_over | grep -Ec "^[0-9]+ sleep $1\$")" = 2 ]; }
STEP=0.3 wait_for 40 'sleeps 1001' || fail "$(cat "$T/home/mpi.txt")"
said mpi '^dtlaunch: -n 5: SGE job [0-9]+ has 2 slots \(the slots of its parallel environment\)'
said mpi '^g[1-3] is this machine, g[1-3] by qrsh -inherit -noshell -V g[1-3] /bin/sh, not elastic$'
said mpi '\[worker 0 g[1-3]\] 0 of 2$'
said mpi '\[worker 1 g[1-3]\] 1 of 2$'
[ "$(grep -c '^\[g[1-3]\] no end of line$' "$T/home/mpi.txt")" = 2 ] || fail "$(cat "$T/home/mpi.txt")"
said mpi '^exec: 3$'
kill -INT "$(cat "$T/home/interrupted")"
STEP=0.3 wait_for 20 'sleeps 1002' || fail "$(cat "$T/home/mpi.txt")"
said mpi '^interrupted: 130$'
kill -KILL "$(supervisor)" "$(pgrep -f 'dtlaunch -s 0 sleep 1002$')"
all_gone 10

say "job_is_first_task TRUE: 1 -> 3 workers"
rm -rf .dtlaunch
submit first -pe first 3 <<EOT
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
printf '%s\n' "$second" "$third" >>host_worker
PATIENCE=40 awaits workers=3 .workers.length=3
STEP=0.2 wait_for 10 '[ "$(changes | wc -l)" = 2 ]' || fail "host_worker_log: $(changes)"
changes | sort -k 3 >"$T/changes"
grep -q "ADDED $second" "$T/changes" && grep -q "ADDED $third" "$T/changes" || fail "not added: $(cat "$T/changes")"
members 0,1,2

say "each qrsh is killed: attached again, nothing restarted"
before="$(pids_of workers) $(pids_of servers)"
for host in "$second" "$third"; do kill -KILL $(pgrep -f "qrsh -inherit -noshell -V $host "); done
for host in "$second" "$third"; do happens link_down "$host"; done
PATIENCE=40 awaits "host $second up" "host $third up"

say "the supervisor is killed: its qrshs go with it, a new one attaches"
kill_supervisor_with qrsh
PATIENCE=40 awaits "host $own up" "host $second up" "host $third up"
[ "$(pids_of workers) $(pids_of servers)" = "$before" ] || fail "something was restarted"
members 0,1,2

say "what the workers see is there, and is no task's of qrsh"
for pid in $(pids_of workers); do
  tr '\0' '\n' <"/proc/$pid/environ" >"$T/seen"
  ! grep -E '^(PE_HOSTFILE|QRSH_.*|SLURM_.*|OMPI_.*|PMIX_.*|PMI_.*)=' "$T/seen" || fail "worker $pid sees a task"
  grep -qx "JOB_ID=$NUMBER" "$T/seen" || fail "worker $pid does not see its job"
  folder=$(sed -n 's/^TMPDIR=//p' "$T/seen")
  [ -d "/proc/$pid/root${folder:-/tmp}" ] || fail "worker $pid has a TMPDIR that is gone: $folder"
done

say "an agent is killed: its worker is gone, another one joins there"
kill_agent_of "$third"
PATIENCE=40 awaits workers=3 .workers.length=3

say "3 -> 1 -> 2 workers; qdel: nothing is left"
echo "$own" >host_worker
PATIENCE=40 awaits workers=1
members 0
echo "$second" >>host_worker
PATIENCE=40 awaits workers=2 ".workers[host=$second,state=MEMBER].length>0"
in_sge qdel "$NUMBER" >>"$T/qsub.txt"
all_gone 10

say "SGE sends its notice to every process of its tasks: dtlaunch and the agents take it, nobody else"
rm -rf .dtlaunch host_worker* "$T"/home/w*.jsonl
submit notified -notify -l h_rt=12 -pe first 2 <<EOT
cd $JOB
exec $DT_BIN/dtlaunch --notice-grace 6s --notice-margin 2s   $DT_BIN/elastic_worker --log $T/home/w%i.jsonl --samples 200 --epochs 100000 --steps-per-epoch 20 --step-ms 20
EOT
STEP=0.5 wait_for 40 'grep -q "ERROR every host goes away, and the checkpoint of epoch" "$T/home/notified.txt"' || fail "$(cat "$T/home/notified.txt")"
said notified 'goes away in [0-9]+ s \(USR2 of its scheduler\): its worker'
! grep -E 'died|killed by signal|link to .* broke' "$T/home/notified.txt" || fail "a notice has killed something"
all_gone 10
sge_down
