# timeout=120 cost=20
# dtctl clean: of two jobs of one user on the same hosts, the one whose dtlaunch and supervisor were killed,
# and whose agents do not run, goes wholly; the other one trains on.
. "$(dirname "$0")/lib.sh"
ssh_hosts 2
begin() {  # FOLDER: an elastic job of two workers there
  mkdir -p "$T/$1"
  cd "$T/$1"
  start "$1" dtlaunch -n 2 -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" --elastic-training-enabled --orphan-timeout 10m \
    "$DT_BIN/elastic_worker" --log "$T/$1-w%i.jsonl" --samples 200 --epochs 100000 --steps-per-epoch 20 --step-ms 20
  PATIENCE=30 awaits --start 'epoch>=1'
  cd "$JOB"
}
of() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$T/$1/.dtlaunch/current.json" "$2"; }
marked() { grep -lz "^DT_MARK=$1/" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3; }  # JOB
steps() { grep -c '"event":"step"' "$T/lives-w0.jsonl"; }
begin dead
dead=$PID
begin lives
lives=$PID
dead_job=$(of dead job) lives_job=$(of lives job)
other=
if [ "$(id -u)" = 0 ]; then
  start stranger setpriv --reuid 65534 --clear-groups env "DT_MARK=$dead_job/h/1" sleep 1000
  other=$PID
fi

say "jobs that live are refused"
run refused dtctl --job-dir "$T/dead" clean
expect_status 1
expect_output refused "job $dead_job is running: its supervisor answers here"
run all dtctl --job-dir "$T/dead" clean --all-jobs --dry-run  # other tests run here, too
expect_status 0
expect_output all "job $dead_job is running: left alone"
expect_output all "job $lives_job is running: left alone"
run elsewhere env XDG_RUNTIME_DIR="$T/ssh" XDG_STATE_HOME="$T/ssh" dtctl clean "${SSH_OPTIONS[@]}" -H "$SSH_HOSTS" --job "$dead_job"
expect_status 1
expect_output elsewhere "job $dead_job: its supervisor is connected: left alone"

say "what a crash leaves"
supervisor=$(of dead pid)
agents=$(pgrep -f "dtagent --daemon --job $dead_job " || true)
[ -n "$agents" ] || fail "no agent: $(ps -ef)"
kill -STOP "$supervisor"  # it must not end the job because dtlaunch died
kill -KILL "$dead" "$supervisor"
wait_for 5 "! alive $supervisor" || fail "the supervisor lives"
kill -STOP $agents
wait_for 10 '! pgrep -f "dtagent --attach --job $dead_job " >/dev/null' || fail "there are connections"
[ -n "$(marked "$dead_job")" ] || fail "nothing is left that could be ended"
segment=
if [ -w /dev/shm ]; then
  segment=/dev/shm/nccl-$$-test
  start segment env "DT_MARK=$dead_job/h/1" sleep 1000
  # A process that holds it, and data of the user's own that it also holds.
  start holder env "DT_MARK=$dead_job/h/1" bash -c "exec 5>$segment 6>/dev/shm/data-$$-test; exec sleep 1000"
  wait_for 5 "[ -e /dev/shm/data-$$-test ]"
fi
run dry dtctl --job-dir "$T/dead" clean --dry-run
expect_status 0
expect_output dry "job $dead_job: would end .*dtagent"
for agent in $agents; do alive "$agent" || fail "--dry-run has ended something"; done
before=$(steps)
run clean dtctl --job-dir "$T/dead" clean
expect_status 0
expect_output clean "job $dead_job: ended .*dtagent"
[ "$(steps)" -gt "$before" ] || fail "the other job has paused"
[ -z "$other" ] || alive "$other" || fail "another user's process was ended"
left=$(marked "$dead_job" | grep -vx "${other:-none}" || true)
[ -z "$left" ] || fail "it lives: $(ps -fp $left)"
! pgrep -f "dtagent --daemon --job $dead_job " >/dev/null || fail "agents live"
for folder in "/run/user/$(id -u)/dtlaunch" "/tmp/dtlaunch-$(id -u)"; do
  [ ! -e "$folder/$dead_job" ] || fail "it is left: $folder/$dead_job"
done
if [ -n "$segment" ]; then
  [ ! -e "$segment" ] || fail "$segment is left"
  [ -e /dev/shm/data-$$-test ] || fail "data of the user were removed"
  rm /dev/shm/data-$$-test
fi
run again dtctl --job-dir "$T/dead" clean
expect_status 0
expect_output again 'nothing to do on 2 hosts'

say "a job of another master, whose link to its agents is down, may be alive"
elsewhere() { env XDG_RUNTIME_DIR="$T/ssh" XDG_STATE_HOME="$T/ssh" dtctl clean "${SSH_OPTIONS[@]}" -H "$SSH_HOSTS" "$@"; }
master=$(of lives pid)
agents=$(pgrep -f "dtagent --daemon --job $lives_job ")
kill -STOP "$master"
pkill -KILL -f "dtagent --attach --job $lives_job "
wait_for 5 '! pgrep -f "dtagent --attach --job $lives_job " >/dev/null' || fail "there are connections"
run down elsewhere --job "$lives_job"
expect_status 1
run down_all elsewhere --all-jobs --dry-run  # other tests run here, too
kill -CONT "$master"
expect_status 0
for name in down down_all; do
  expect_output $name "job $lives_job: its agent lives, and its supervisor may come back: .*left alone"
  ! output $name | grep -E "job $lives_job: (would )?(end|remove)" || fail "it would end a job that is alive"
done
for agent in $agents; do alive "$agent" || fail "an agent of a job that is alive was ended"; done

say "the other job has lost nothing, until --force"
cd "$T/lives"
awaits "epoch>=$(($(dtctl status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["epoch"])') + 2))"
! grep -q worker_removed .dtlaunch/*/events.jsonl || fail "a worker was lost"
python3 "$DT_SOURCE/test/e2e/worker_log.py" once "$T/lives-w0.jsonl" || fail "a step was lost"
run force dtctl clean --job "$lives_job" --force
expect_status 0
finished dtlaunch "$lives" 20
[ -z "$(marked "$lives_job")" ] || fail "it lives"
[ -z "$other" ] || kill "$other"
run old dtctl clean
expect_status 0
# Programs that nobody has used for long; those of others who share the cache stay.
expect_nothing_left
