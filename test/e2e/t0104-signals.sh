# timeout=90 sanitized
# Ctrl-C requests a stop, a second one forces it, a third leaves; a closed terminal stops the job.
. "$(dirname "$0")/lib.sh"
mkdir "$T/fake"
cp "$DT_BIN/dtlaunch" "$T/fake/"
cp "$DT_SOURCE/test/e2e/fake_supervisor.py" "$T/fake/dtsupervisor"
fake=$T/fake/dtlaunch
says() { wait_for 10 "grep -q -- '$2' '$T/$1.out'" || fail "$1 never said: $2"; }

for signal in INT TERM HUP; do
  start "stop$signal" "$fake" -n 1 wait gently
  says "stop$signal" 'ready for signals'
  kill "-$signal" "$PID"
  finished dtlaunch "$PID" 10
  expect_status 130
  expect_output "stop$signal" 'Stopping the job: .* Ctrl-C again kills them at once'
  expect_output "stop$signal" '"force": false'
  case $signal in
    INT) why=Ctrl-C ;;
    TERM) why='dtlaunch got TERM' ;;
    HUP) why='terminal closed \(HUP\)' ;;
  esac
  expect_output "stop$signal" "\"why\": \"$why\""
done

# A person needs longer for the next order than a wrapper for passing on the same one.
another_order() { STEP=0.3 nap; }  # how long a person takes, not a wait

for second in TERM INT; do
  start "same$second" "$fake" -n 1 wait gently
  says "same$second" 'ready for signals'
  # On a busy machine it may have ended between the two.
  python3 -c 'import contextlib, os, signal, sys
os.kill(int(sys.argv[1]), signal.SIGTERM)
with contextlib.suppress(ProcessLookupError):
    os.kill(int(sys.argv[1]), signal.Signals["SIG" + sys.argv[2]])' "$PID" $second
  finished dtlaunch "$PID" 10
  expect_status 130
  expect_output "same$second" '"force": false'
  ! grep -q 'Killing' "$T/same$second.out" || fail "TERM and $second at once are two orders: $(output "same$second")"
done

start stopped "$fake" -n 1 wait gently
says stopped 'ready for signals'
kill -TSTP "$PID"
says stopped 'The job goes on; fg shows it again'
wait_for 10 '[ "$(ps -o state= -p "$PID")" = T ]' || fail "Ctrl-Z does not stop it"
kill -CONT "$PID"
kill -INT "$PID"
finished dtlaunch "$PID" 10
expect_status 130

start force "$fake" -n 1 wait
says force 'ready for signals'
kill -INT "$PID"
says force '"force": false'
another_order
kill -INT "$PID"
finished dtlaunch "$PID" 10
expect_status 130
expect_output force 'Killing every process of the job'
expect_output force '"force": true'

start leave "$fake" -n 1 stubborn
says leave 'ready for signals'
for expected in '"force": false' '"force": true'; do
  kill -INT "$PID"
  says leave "$expected"
  another_order
done
kill -INT "$PID"
finished dtlaunch "$PID" 10
expect_status 130
expect_output leave 'may still be there; clean up with: dtctl stop --force --job-dir '
expect_nothing_left

# The supervisor has its own session: only dtlaunch gets the terminal's signals.
start session "$fake" -n 1 wait gently
says session 'ready for signals'
supervisor=$(pgrep -P "$PID" -f "$T/fake/dtsupervisor")
[ "$(ps -o sid= -p "$supervisor" | tr -d ' ')" = "$supervisor" ] || fail "the supervisor leads no session"
kill -INT -- "-$PID"
finished dtlaunch "$PID" 10
expect_output session '"force": false'

# A terminal whose other end is closed sends HUP; under nohup writing to it fails.
python3 - "$fake" <<'EOT'
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], [sys.argv[1], "-n", "1", "wait", "gently"])
seen = b""
while b"ready for signals" not in seen:
    seen += os.read(terminal, 1000)
os.close(terminal)
_, status = os.waitpid(pid, 0)
sys.exit(0 if os.waitstatus_to_exitcode(status) == 130 else f"exit {status:#x} when the terminal was closed")
EOT
expect_nothing_left

# --detach returns when the supervisor is ready and prints how to follow the job.
start detached "$fake" -n 1 --detach stubborn
finished dtlaunch "$PID" 10
expect_status 0
expect_output detached 'dtctl status --job-dir '
supervisor=$(pgrep -f "$T/fake/dtsupervisor") || fail "the supervisor is not there any more"
kill "$supervisor"
expect_nothing_left
