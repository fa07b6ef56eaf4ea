# The beginning of every end-to-end test:
#
#     . "$(dirname "$0")/lib.sh"
#
# The test then runs in an empty job folder ($JOB) inside a temporary folder ($T), with the programs
# under test first in PATH and all state, sockets and caches inside $T. However the test ends, the
# processes that it started are ended, by pid, and a process left over fails the test.
set -euo pipefail
: "${DT_BIN:?the folder of the programs under test}" "${DT_SOURCE:?the source tree}"
. "$DT_SOURCE/scripts/lib.sh"

T=$(mktemp -d /tmp/dte.XXXXXX)  # short: socket paths end at 108 bytes
JOB=$T/job
mkdir -m 700 -p "$JOB" "$T/run" "$T/state"
# The system's python3, with install-deps' packages, before a version manager's, whose shims are slow.
export PATH=$DT_BIN:/usr/bin:$PATH XDG_RUNTIME_DIR=$T/run XDG_STATE_HOME=$T/state XDG_CACHE_HOME=$T/cache
export LC_ALL=C DT_CHECK_SETTLE=1
unset DISPLAY SSH_AUTH_SOCK
PYTHON=${DT_TORCH_PYTHON:-/usr/bin/python3}  # of the programs that use dtkv or PyTorch
cd "$JOB"
_pids=()
exec {_silence}<> <(:)  # nothing is ever to be read from it

# is_nightly: all of a long test is wanted (scripts/nightly); elsewhere one fault of its kind is enough.
is_nightly() { [ -n "${DT_NIGHTLY-}" ]; }
say() { printf '%s\n' "-- $*"; }
# fail TEXT...: ends the test. The trap shows the output of each `start`.
fail() { printf 'FAILED: %s\n' "$*"; exit 1; }
has_torch() { "$PYTHON" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)'; }
skip() { printf 'SKIPPED: %s\n' "$*"; exit 77; }

# wait_for SECONDS 'CONDITION': waits until the shell condition holds; false at the deadline. SECONDS are
# for an idle machine: it waits up to four times as long. It polls every STEP seconds: for conditions that
# the job itself reports use `awaits`, which does not poll.
wait_for() { wait_until $(($1 * 4 + 1)) "$2" || { printf 'waited %s s in vain for: %s\n' $(($1 * 4)) "$2"; return 1; }; }
nap() { read -rt "${STEP:-0.1}" -u "$_silence" || true; }  # without a process

# awaits CONDITION...: waits until all conditions hold (dtctl wait), up to PATIENCE seconds (default 20) as
# in wait_for. --start also waits for a job that was only just started.
awaits() {
  local why
  why=$(dtctl wait --timeout $((${PATIENCE:-20} * 4 + 1)) "$@" 2>&1) || fail "$why"
}

# start NAME COMMAND...: runs it in the background in its own session, output to $T/NAME.out; sets PID.
start() {
  local name=$1
  shift
  # setsid forks only if it leads a group, which a background job of a script does not.
  setsid "$@" </dev/null >"$T/$name.out" 2>&1 {_silence}>&- &
  PID=$!
  _pids+=("$PID")
}

# finished NAME PID SECONDS: waits for the end of a process that `start` began; sets STATUS.
finished() {
  wait_for "$3" "! alive $2" || fail "$1 has not ended after $3 s"
  STATUS=0
  wait "$2" || STATUS=$?
}

# run NAME COMMAND...: runs it in the foreground, output to $T/NAME.out; sets STATUS and never fails.
run() {
  local name=$1
  shift
  STATUS=0
  "$@" </dev/null >"$T/$name.out" 2>&1 || STATUS=$?
}

output() { cat "$T/$1.out"; }
expect_status() { [ "$STATUS" = "$1" ] || fail "exit status $STATUS, expected $1"; }
expect_output() { grep -Eq -- "$2" "$T/$1.out" || fail "nothing like /$2/ in the output of $1"; }

# ssh_hosts [N]: N real sshds on loopback; sets SSH_HOSTS (a hosts file), SSH_OPTIONS (array for
# dtlaunch), SSH_ADDRESSES (array). They have the programs from earlier tests of this build; the hosts
# of new_hosts do not.
ssh_hosts() {
  local cache programs=$DT_BUILD/ssh-cache
  new_hosts "$@"
  mkdir -p "$programs/dtlaunch"
  find "$programs/dtlaunch" -mindepth 1 -maxdepth 1 -mmin +1440 -exec rm -rf {} +  # of earlier builds
  for cache in "$T"/ssh/*/cache; do
    rmdir "$cache"
    ln -s "$programs" "$cache"
  done
}
new_hosts() {
  local line
  # Parallel tests need separate addresses: 127.0.1.2 and up, by pid.
  "$DT_SOURCE/scripts/sshd-hosts" start "$T/ssh" -n "${1:-3}" --first $((250 + $$ % 200 * 100 + 2)) >"$T/ssh.env"
  while read -r line; do
    case $line in
      hosts=*) SSH_HOSTS=${line#*=} ;;
      options=*) read -ra SSH_OPTIONS <<<"${line#*=}" ;;
      addresses=*) read -ra SSH_ADDRESSES <<<"${line#*=}" ;;
    esac
  done <"$T/ssh.env"
}

# share_imports [N]: from here on "${WORKER[@]}" SCRIPT... starts a program of Python that has PyTorch already
# (python/forks.py), from one of N interpreters, each with its own hash seed. Nightly, programs that are no table of cases import
# it, as a user's does.
WORKER=("$PYTHON")
share_imports() {
  local i
  export FORKS_PARENT=dt-forks-$$ FORKS_PARENTS=${1:-1}
  for ((i = 0; i < FORKS_PARENTS; i++)); do
    # It is no process of a job, and names no folder of this test.
    start "parent$i" env -C / -u OLDPWD -u XDG_RUNTIME_DIR -u XDG_STATE_HOME -u XDG_CACHE_HOME PWD=/ OPENBLAS_NUM_THREADS=1 \
      PYTHONHASHSEED="${PYTHONHASHSEED-$i}" "$PYTHON" "$DT_SOURCE/test/e2e/python/forks.py" parent "$i"
  done
  for ((i = 0; i < FORKS_PARENTS; i++)); do
    wait_for 20 'grep -q "@$FORKS_PARENT.$i$" /proc/net/unix' || fail "no parent interpreter: $(output "parent$i")"
  done
  WORKER=("$PYTHON" "$DT_SOURCE/test/e2e/python/forks.py" run)
}

# supervisor: the pid of the job folder's supervisor.
supervisor() { python3 -c 'import json; print(json.load(open(".dtlaunch/current.json"))["pid"])'; }

# left_over: "PID command" of every process of this test: started in its folders, or with the marker of
# one of its jobs.
left_over() { python3 "$DT_SOURCE/scripts/leftovers.py" "$T" || true; }

# expect_nothing_left [SECONDS]: waits until no process of this test is left; 10 s by default.
expect_nothing_left() {
  STEP=0.5 wait_for "${1:-10}" '[ -z "$(left_over | grep -v "sshd")" ]' || fail "left over: $(left_over)"
}

_cleanup() {
  local status=$? pid
  trap - EXIT INT TERM HUP
  set +e
  # A volume whose server is stopped would block this shell forever.
  for pid in "${_pids[@]}"; do kill -CONT "$pid" 2>/dev/null; done
  if [ $status != 0 ] && [ $status != 77 ]; then
    for out in "$T"/*.out; do [ -f "$out" ] && echo "---- ${out##*/}" && tail -n 60 "$out"; done
    for log in "$JOB"/host_worker "$JOB"/host_worker_log "$JOB"/.dtlaunch/*/events.jsonl; do
      [ -f "$log" ] && echo "---- ${log#"$JOB"/}" && tail -n 30 "$log"
    done
    for log in "$JOB"/.dtlaunch/*/logs/*; do [ -f "$log" ] && echo "---- $log" && tail -n 15 "$log"; done
  fi
  for pid in "${_pids[@]}"; do alive "$pid" && kill "$pid" 2>/dev/null; done
  [ ! -d "$T/ssh" ] || "$DT_SOURCE/scripts/sshd-hosts" stop "$T/ssh"
  # A job that was asked to stop gets time; processes that remain then are left over, and are ended here.
  if ! STEP=0.5 wait_for 12 '[ -z "$(left_over)" ]' >/dev/null; then
    echo "FAILED: left over after the test:"
    left_over
    while read -r pid _; do kill -KILL "$pid" 2>/dev/null; done < <(left_over)
    [ $status != 0 ] || status=1
  fi
  cd /
  if [ -n "${DT_KEEP-}" ]; then echo "kept: $T"; else rm -rf "$T"; fi
  exit $status
}
trap _cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
