# timeout=60
# A detached job outlives the terminal that started it and needs no reader of dtlaunch's output; no
# process of it is left in the end.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
# LeakSanitizer, which looks at a program at its end, stands still for ever if a HUP comes meanwhile.
ASAN_OPTIONS=detect_leaks=0 timeout 40 python3 - dtlaunch -n 1 --detach "$DT_BIN/elastic_worker" --log "$T/w%i.jsonl" \
  --samples 200 --epochs 100000 --steps-per-epoch 20 --step-ms 20 <<'EOT' || fail "dtlaunch --detach on a terminal"
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
seen = b""
try:
    while b"is on its way" not in seen:
        seen += os.read(terminal, 1000)
except OSError:
    sys.exit(f"ended with {seen}")
os.close(terminal)  # its session gets a HUP
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) not in (0, -1))
EOT
wait_for 30 'in_epoch 1' || fail "the job has not begun"
some_epochs 2
awaits state=running
run stop dtctl stop
wait_for 20 '[ ! -e .dtlaunch/lock ]' || fail "it has not ended"

# A terminal that blocks output (Ctrl-S) and is then closed, while dtlaunch has output.
mkdir "$T/second"
cd "$T/second"
python3 - dtlaunch -n 1 --detach "$DT_BIN/elastic_worker" --log "$T/v%i.jsonl" --samples 200 --epochs 2 \
  --steps-per-epoch 20 --step-ms 20 <<'EOT' || fail "dtlaunch --detach on a terminal that takes nothing"
import os, pathlib, pty, subprocess, sys, termios, time
terminal, end = pty.openpty()
termios.tcflow(end, termios.TCOOFF)
launch = subprocess.Popen(sys.argv[1:], stdout=end, start_new_session=True)
os.close(end)
until = time.monotonic() + 30
while not any('"worker_launched"' in f.read_text() for f in pathlib.Path(".dtlaunch").glob("*/events.jsonl")):
    if time.monotonic() > until: sys.exit("the job has not begun")
    time.sleep(0.02)  # between two looks, not a wait
os.close(terminal)
sys.exit(launch.wait(30))
EOT
wait_for 30 '[ ! -e .dtlaunch/lock ]' || fail "the second job has not ended"
expect_nothing_left
