# For tests of jobs that grow and shrink; after lib.sh:
#
#     . "$(dirname "$0")/elastic.sh"
#
# One job at a time. The workers are elastic_worker; its log lines are in $T/w<id>.jsonl.

# train OPTIONS... -- WORKER OPTIONS...: starts an elastic job of elastic_worker, or TRAIN_COMMAND; sets JOB_PID. By default an
# epoch lasts about 0.4 s, and the job does not end by itself. TRAIN_PREFIX: words before dtlaunch.
TRAIN_PREFIX=()
train() {
  local options=()
  while [ "$1" != -- ]; do
    options+=("$1")
    shift
  done
  shift
  start job "${TRAIN_PREFIX[@]}" dtlaunch "${options[@]}" --poll-interval 300ms --elastic-training-enabled \
    "${TRAIN_COMMAND[@]:-$DT_BIN/elastic_worker}" --log "$T/w%i.jsonl" --samples 200 --epochs 100000 \
    --steps-per-epoch 20 --step-ms 20 "$@"
  JOB_PID=$PID
  PATIENCE=${PATIENCE:-30} awaits --start 'epoch>=1'
  STEP=0.2 wait_for 10 'in_epoch 1' || fail "worker 0 has not begun epoch 1"
}

# changes: host_worker_log without the times.
changes() { cut -d' ' -f1-3 "$JOB/host_worker_log"; }
# changed LINE...: waits until the log is exactly these lines, given without their numbers.
changed() {
  local line want= n=0
  for line in "$@"; do
    want+="$n $line"$'\n'
    n=$((n + 1))
  done
  WANT=${want%$'\n'}
  STEP=0.2 wait_for "${PATIENCE:-20}" '[ "$(changes)" = "$WANT" ]' || fail "host_worker_log is not: $WANT"
  ! grep -Evq '^[0-9]+ (ADDED|REMOVED) [^ ]+ [0-9]{19}$' "$JOB/host_worker_log" || fail "a strange line in host_worker_log"
}

# story: the events of the latest job.
story() { ls -td "$JOB"/.dtlaunch/*/events.jsonl 2>/dev/null | head -n 1; }
# event NAME [PATTERN]: the number of such events whose line in events.jsonl matches.
event() { grep -hsE "\"event\":\"$1\"" "$(story)" | grep -Ec -- "${2:-.}" || true; }
# happens NAME [PATTERN [N]]: waits for one or N such events, until events.jsonl has them.
happens() {
  awaits "event $1>=${3:-1} ~ ${2:-.}"
  wait_for 10 "[ \$(event '$1' '${2:-.}') -ge ${3:-1} ]" || fail "events.jsonl lacks $1 $2"
}

# status EXPRESSION: evaluates a Python expression over the status `s`, where no condition of `awaits`
# can express it; false also while there is no status.
status() {
  dtctl status --json >"$T/status.json" 2>/dev/null &&
    python3 -c 'import json, re, sys
s = json.load(open(sys.argv[1]))
sys.exit(not eval(sys.argv[2]))' "$T/status.json" "$1"
}
shows() { STEP=0.5 wait_for "${PATIENCE:-20}" "status '$1'" || fail "status is not: $1: $(cat "$T/status.json")"; }

# epoch [WORKER]: the current epoch from the worker's log; worker 0's by default.
epoch() { tail -n 1 "$T/w${1:-0}.jsonl" 2>/dev/null | sed -E 's/.*"epoch":([0-9]+).*/\1/'; }
in_epoch() { [ "$(epoch "${2:-0}" || echo 0)" -ge "$1" ] 2>/dev/null; }
# some_epochs N [WORKER]: waits for N more epochs of training.
some_epochs() {
  local next=$(($(epoch "${2:-0}") + $1))
  STEP=0.2 wait_for "${PATIENCE:-20}" "in_epoch $next ${2:-0}" || fail "training does not go on"
}
members() { awaits "members=$1"; }

# pid_of KIND N: the pid of the Nth worker or server ("workers", "servers") in dtctl status.
pid_of() {
  dtctl status --json | python3 -c 'import json, sys
print(json.load(sys.stdin)[sys.argv[1]][int(sys.argv[2])]["pid"])' "$1" "$2"
}
# pids_of KIND: those of all workers or servers.
pids_of() { dtctl status --json | python3 -c 'import json, sys
print(*[p["pid"] for p in json.load(sys.stdin)[sys.argv[1]]])' "$1"; }
# kill_supervisor_with STARTER: kills the supervisor; the processes of that name below it must end with it.
kill_supervisor_with() {
  local pid starters above
  above=$(supervisor)
  starters=$(pgrep -P "$above" "$1") || fail "the supervisor has no $1"
  kill -KILL "$above"
  for pid in $starters; do wait_for 5 "! alive $pid" || fail "$1 $pid outlives its supervisor"; done
}
# kill_agent_of HOST: its workers end at once, and others join there.
kill_agent_of() {
  local pid
  pid=$(dtctl status --json | python3 -c 'import json, sys
print(*[w["pid"] for w in json.load(sys.stdin)["workers"] if w["host"] == sys.argv[1]][:1])' "$1")
  kill -KILL "$(ps -o ppid= -p "$pid" | tr -d ' ')"
  wait_for 1 "! alive $pid" || fail "the killed agent's worker is alive after 1 s"
  happens worker_ended "$1"
  PATIENCE=${PATIENCE:-40} awaits "host $1 up" ".workers[host=$1,state=MEMBER].length>0"
}
# stands PID: waits until the process is stopped; elastic_worker --stop-at stops itself.
stands() { wait_for "${PATIENCE:-60}" "grep -q '^State:[[:space:]]*T' /proc/$1/status" || fail "process $1 does not stand still"; }

# worker_log CHECK...: runs a check of worker_log.py over the logs.
worker_log() { python3 "$DT_SOURCE/test/e2e/worker_log.py" "$@" || fail "worker_log.py $*"; }

# held HOST REASON: adds HOST, whose newcomer fails for REASON, again and again, for at least
# DT_E2E_HOLD seconds. The other workers train undisturbed; the reason is in status and events.
held() {
  local from=$(($(epoch) + 1)) until=$((SECONDS + ${DT_E2E_HOLD:-3})) id delays
  HELD="sum(h[\"host\"] == \"$1\" and h[\"attempts\"] >= 2 and re.search(\"$2\", h[\"why\"]) is not None for h in s[\"hosts\"])"
  echo "$1" >>"$JOB/host_worker"
  STEP=0.5 wait_for $((${DT_E2E_HOLD:-3} + 60)) '[ $SECONDS -ge '$until' ] && status "$HELD"' || fail "status is not: $HELD: $(cat "$T/status.json")"
  happens host_failed "${1%:*}.*$2" 2
  delays=$(grep '"event":"host_failed"' "$(story)" | grep -E -- "${1%:*}.*$2" | sed -E 's/.* in ([0-9.]+) s".*/\1/')
  awk 'NR > 1 && $1 <= last { exit 1 } { last = $1 }' <<<"$(head -n 4 <<<"$delays")" || fail "the delays do not grow: $delays"
  some_epochs 2
  for id in 0 1; do
    worker_log waits "$T/w$id.jsonl" 2 $from
    worker_log once "$T/w$id.jsonl"
  done
}

# joins_and_leaves HOST: the reason that held it is removed; it joins, then leaves.
joins_and_leaves() {
  local lines
  PATIENCE=60 awaits ".workers[host=$1,state=MEMBER].length>0"
  sed -i '$d' "$JOB/host_worker"
  PATIENCE=60 awaits .workers.length=2 workers=2
  wait_for 10 '[ "$(tail -n 1 "$JOB/host_worker_log" | cut -d" " -f2)" = REMOVED ]' || fail "not logged"
}

# end_job: by request; nothing may be left.
end_job() {
  alive "$JOB_PID" || fail "the job has ended by itself"
  dtctl stop >"$T/stop.out" 2>&1 || fail "dtctl stop: $(output stop)"
  finished dtlaunch "$JOB_PID" 20
  expect_nothing_left
}
