# timeout=800 cost=45 schedulers
# dtctl grow and shrink: a job on one of Slurm's nodes gets two more, each by a job of its own (a holder). Their
# hosts leave in each way there is, and each time the node is given back. dtfleet and the supervisor are
# killed at random moments: nothing is asked for twice, and at the end nothing is left in the queue.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
. "$(dirname "$0")/slurm.sh"
slurm_up 3 "${PROCTRACK:-linuxproc}"
allocate 1 -w n1
export SLURM_JOB_ID=$SLURM_JOB SLURM_JOB_NODELIST=n1
TRAIN_PREFIX=("${SLURM_NS[@]}")
pointer() { python3 -c 'import json, sys; print(json.load(open(".dtlaunch/current.json"))[sys.argv[1]])' "$1"; }
# holders: the state and node of each, without those that end.
holders() { in_slurm squeue -h -n "dt+$(pointer job)" -t PD,CF,R -o '%T %N' | sort; }
holders_are() { WANT=$1 && STEP=0.3 wait_for 15 '[ "$(holders)" = "$WANT" ]' || fail "the holders are not $1: $(holders)"; }
ctl() { in_slurm dtctl "$@"; }
refused() {  # PATTERN COMMAND...
  local pattern=$1
  shift
  run refused "$@"
  [ "$STATUS" != 0 ] || fail "not refused: $*"
  expect_output refused "$pattern"
}
# file_is HOST...: the lines of host_worker, in any order.
file_is() { WANT=$(printf '%s\n' "$@" | sort) && wait_for 10 '[ "$(sort host_worker)" = "$WANT" ]' || fail "host_worker is not $*: $(cat host_worker)"; }
BOTH=$'RUNNING n2\nRUNNING n3'
VIA=("n2 via=slurm" "n3 via=slurm")

train -n 1 --max-workers 4 --
say "what is refused asks for nothing"
refused 'grow: "0" is no number of nodes' ctl grow 0
refused 'Invalid partition name' ctl grow 1 -- -p nowhere
refused '5 more workers would be 6, and --max-workers is 4' ctl grow 5
refused 'n1 is a host of the initial launch: its workers stay' ctl shrink n1
refused 'shrink 1: dtctl grow holds 0 nodes' ctl shrink
refused 'sbatch is not in PATH.*slurm-client' env PATH="$DT_BIN" dtctl grow 1
holders_are ""

say "1 -> 3 workers as Slurm gives nodes; what waits is shown, and goes first"
ctl grow 3 -- -p whole
awaits workers=3
run table "$PYTHON" "$DT_SOURCE/test/e2e/processes.py" "$DT_SOURCE/packaging/doc/processes.md" "$T" dtfleet 'dtagent --hold' 'dtagent --attach'
output table
expect_status 0
file_is n1 "${VIA[@]}"
STEP=0.3 wait_for 10 'dtctl status | grep -q "^nodes of Slurm: 3 asked for, 1 pending ([A-Za-z]*)$"' || fail "$(dtctl status)"
refused '1 more workers would be 5, and --max-workers is 4 .1 are asked for already' ctl grow 1
ctl shrink | grep -q 'is taken out of the queue' || fail "the pending one does not go first"
holders_are "$BOTH"

say "a host is removed: its node is given back; the newest goes first"
dtctl remove n2
holders_are "RUNNING n3"
[ "$(cut -d' ' -f2,3 host_worker_log | tail -n 1)" = "REMOVED n2" ] || fail "$(cat host_worker_log)"
file_is n1 "n3 via=slurm"
ctl grow 1 --keep -- -p whole
awaits workers=3
holders_are "$BOTH"
ctl shrink | grep -q '^n2 leaves' || fail "n3 came before n2"
holders_are "RUNNING n3"

say "Slurm takes both nodes: the hosts leave at their holders' notice, and the one that is kept is replaced"
ctl grow 1 --keep -- -p whole
awaits workers=3
STEP=0.3 wait_for 15 'in_slurm squeue -h -w n2 -o %k | grep -q " joined keep=-p,whole"' || fail "$(in_slurm squeue -o '%A %N %k')"
in_slurm scancel -n "dt+$(pointer job)"
happens worker_removed 'n3'
happens fleet 'n2. is taken away: Slurm job [0-9]+ asks for another node'
STEP=0.3 wait_for 15 '[[ $(holders) = RUNNING\ n[23] ]]' || fail "not one holder: $(holders)"
awaits workers=2
[ "$(event fleet 'is taken away')" = 1 ] || fail "more than one was asked for"
ctl shrink
holders_are ""
file_is n1
worker_log once "$T/w0.jsonl"

say "a second dtfleet would ask for everything twice"
ctl grow 1 -- -p whole
run second dtfleet --job-dir "$JOB" slurm
expect_status 1
grep -q "another dtfleet serves job $(pointer job) already" "$T/second.out" || fail "$(cat "$T/second.out")"
awaits workers=2
ctl shrink
holders_are ""

rounds=5 next_supervisor=0
! is_nightly || rounds=50
say "dtfleet and the supervisor are killed, $rounds times, while the job grows and shrinks"
for ((i = 0; i < rounds; i++)); do
  [ $((i % 5)) != 0 ] || ctl grow 2 -- -p whole || true
  STEP=$(printf '0.%03d' $((RANDOM % 1000))) nap  # how long until the next kill, not a wait
  if [ $((i % 2)) = 0 ]; then
    for pid in $(pgrep -f "^dtfleet --job-dir $JOB"); do kill -KILL "$pid" 2>/dev/null || true; done
  else
    # dtlaunch starts a supervisor again five times a minute.
    while is_nightly && [ $SECONDS -lt $next_supervisor ]; do STEP=1 nap; done  # how long between two kills, not a wait
    kill -KILL "$(pointer pid)" 2>/dev/null || true
    next_supervisor=$((SECONDS + 13))
    awaits --start '.state=running'
  fi
  [ "$(holders | wc -l)" -le 2 ] || fail "too many: $(holders)"
  [ $((i % 5)) != 4 ] || [ $i = $((rounds - 1)) ] || { awaits workers=3 && ctl shrink 2 && holders_are ""; }
done
PATIENCE=60 awaits workers=3
holders_are "$BOTH"
file_is n1 "${VIA[@]}"
worker_log once "$T/w0.jsonl"

say "the job ends: nothing is left in the queue"
ctl grow 1 -- -p whole
ctl stop >"$T/stop.out"
finished dtlaunch "$JOB_PID" 30
holders_are ""
programs_end() { STEP=0.5 wait_for 15 '[ -z "$(left_over | grep -E "dtagent|elastic_worker|dtserver|srun |dtfleet")" ]' || fail "left over: $(left_over)"; }
programs_end

say "everything is killed: holders end by themselves"
train -n 1 --orphan-timeout 3s --
ctl grow 1 -- -p whole
awaits workers=2
supervisor=$(pointer pid)
kill -KILL "$JOB_PID" "$supervisor"
holders_are ""
programs_end
in_slurm scancel "$SLURM_JOB"
STEP=0.5 wait_for 20 '! left_over | grep -q slurmstepd' || fail "Slurm's steps do not end: $(left_over)"
