# timeout=60
# dtctl reports clearly that there is no job, or that its supervisor does not answer, and shows files of the last one.
. "$(dirname "$0")/lib.sh"
# A supervisor that hangs: it takes the connection, and never answers. The commands end with this test.
mkdir -p "$T/hung/.dtlaunch"
printf '{"job":"j2","master":"m","pid":7,"socket":"%s/hung.sock","state_dir":"/s"}' "$T" >"$T/hung/.dtlaunch/current.json"
start listens python3 -c 'import signal, socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen(9)
print("ready", flush=True)
signal.pause()' "$T/hung.sock"
wait_for 5 'grep -q ready "$T/listens.out"'
HUNG=()
for command in status "status --json" metrics "why h" stop "leave h"; do
  start "hung${#HUNG[@]}" dtctl --job-dir "$T/hung" $command
  HUNG+=("$PID")
done
run none dtctl status
expect_status 3
expect_output none "no job was ever started in .*/job; give its folder with --job-dir"
run wrong dtctl frobnicate
expect_status 2
[ "$(output wrong)" = 'dtctl: unknown command frobnicate; see dtctl --help' ] || fail "not one line: $(output wrong)"
run wrong dtctl log
expect_status 2
expect_output wrong 'unknown command log; did you mean logs\?'
run wrong dtctl status host7
expect_status 2
expect_output wrong 'status takes no "host7"; of one host: dtctl why HOST'
# Each command shows its own options, those of its synopsis, and refuses others.
for command in $(dtctl --help | sed -nE 's/^  ([a-z]+) .*/\1/p'); do
  run help dtctl $command --help
  expect_status 0
  expect_output help "^Usage: dtctl \[--job-dir DIR\] $command( |$)"
  names=$(sed -n 1p "$T/help.out" | grep -oE -- '\[--?[a-z][a-z-]*' | tr -d '[' | sed 's/^-f$/--follow/' | sort -u | xargs)
  rows=$(sed -nE 's/^  (-. \[ )?(--[a-z][a-z-]+).*/\2/p' "$T/help.out" | grep -vx -- --help | sort | xargs)
  [[ $names = "$rows" || $command = exec || $command = clean ]] || fail "dtctl $command: $names, and $rows"
  run wrong dtctl $command --no-such
  expect_status 2
  expect_output wrong "$command( takes no|: unknown option) --no-such; see dtctl $command --help"
done
run wrong dtctl add --json h
expect_status 2
[ "$(output wrong)" = 'dtctl: add takes no --json; see dtctl add --help' ] || fail "not one line: $(output wrong)"
run wrong dtctl wait ended --timout 3
expect_status 2
expect_output wrong 'wait takes no --timout; did you mean --timeout\? See dtctl wait --help'
run wrong dtctl --json status
expect_status 2
expect_output wrong 'unknown option --json; see dtctl --help'
run wrong dtctl --job-dir . status --job-dir .
expect_status 2
expect_output wrong '--job-dir is given twice'
run wrong dtctl leave
expect_status 2
expect_output wrong 'usage: dtctl leave HOST \[--in TIME\] \[--why TEXT\] \[--cancel\]'
for at_once in 0 0s; do
  run leave dtctl leave h --in $at_once
  expect_status 3
  expect_output leave 'no job was ever started in'
done
run wrong dtctl
expect_status 2
expect_output wrong 'a command is missing'
[ "$(dtctl help)" = "$(dtctl --help)" ] || fail "dtctl help: $(dtctl help)"
[[ $(dtctl version) = "$(dtctl --version)" && $(dtctl version) = "dtctl "* ]] || fail "dtctl version: $(dtctl version)"
run wrong dtctl add
expect_status 2
run wrong dtctl add 'a b'
expect_status 2
expect_output wrong 'add:1:3: "b" was not expected'

run wait dtctl wait
expect_status 2
run wait dtctl wait epcoh=3
expect_status 2
expect_output wait '"epcoh=3": not a condition. Write epoch, workers'
run wait dtctl wait epoch=3 --timeout soon
expect_status 2
expect_output wait 'such as 30, 500ms, 10m or 2h'
run wait dtctl wait epoch=3 --timeout 30
expect_status 3
expect_output wait 'no job was ever started in'
run wait dtctl wait --start epoch=3 --timeout 200ms
expect_status 4
expect_output wait 'waited in vain: no job was started in .*/job'
run nowhere dtctl --job-dir "$T/nowhere" status
expect_status 2
expect_output nowhere '^dtctl: --job-dir .*/nowhere: there is no such folder'

mkdir -p .dtlaunch/j1/logs
printf 'one\ntwo\n' >.dtlaunch/j1/logs/worker-3.log
printf '{"n":0,"time_ns":1763664000123456789,"text":"h joins","epoch":4}\n' >.dtlaunch/j1/events.jsonl
printf '{"n":1,"time_ns":1763664000123456789,"text":"\\u001b[2J gone","epoch":4}\n' >>.dtlaunch/j1/events.jsonl
pointer() { printf '{"job":"j1","master":"10.0.0.1","pid":7,"socket":"%s/gone","state_dir":"/s","ended":%s}' "$T" "$1" >.dtlaunch/current.json; }
pointer null
run dead dtctl stop
expect_status 3
expect_output dead 'job j1 in .* has not ended, but its supervisor \(pid 7 on 10.0.0.1\) does not answer'
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
  chmod 755 "$T" "$JOB"
  run other setpriv --reuid 65534 --clear-groups "$(command -v dtctl)" status --job-dir "$JOB"
  if [ "$STATUS" != 127 ] && [ "$STATUS" != 126 ]; then
    expect_status 3
    expect_output other 'job j1 in .* belongs to root'
    ! grep -q 'dtctl resume' "$T/other.out" || fail "another user is told to take the job up"
    run other setpriv --reuid 65534 --clear-groups "$(command -v dtctl)" wait 'epoch>=0' --timeout 5 --job-dir "$JOB"
    expect_status 3
    expect_output other 'job j1 in .* belongs to root'
  fi
fi
pointer '{"exit_code":5,"message":"worker 3 failed"}'
run ended dtctl status --json
expect_status 3
expect_output ended 'the last one, j1, ended with exit code 5 \(worker 3 failed\)'
run wait dtctl wait ended=5 "event joins"
expect_status 3
expect_output wait 'ended with exit code 5 \(worker 3 failed\); not seen: event joins \(0 so far\)'
run wait dtctl wait ended=5
expect_status 0
run wait dtctl wait ended=0
expect_status 3
(dtctl status --json 2>/dev/null || true) | python3 -c 'import json, sys
s = json.load(sys.stdin)
assert (s["state"], s["job"], s["exit_code"], s["ok"]) == ("ended", "j1", 5, False), s' || fail "no JSON of an ended job"
run logs dtctl logs 3
expect_status 0
[ "$(output logs)" = $'one\ntwo' ] || fail "not the worker's output"
printf '\033]0;owned\007 red\n' >.dtlaunch/j1/logs/worker-4.log
run logs dtctl logs 4
expect_output logs '^\\x1b\]0;owned\\x07 red$'
run logs dtctl logs
expect_output logs '==> .*/worker-3.log <=='
export TZ=UTC
run events dtctl events -f
expect_output events '^2025-11-20 [0-9:]+ epoch 4: h joins$'
expect_output events 'epoch 4: \\x1b\[2J gone$'
run events dtctl events --json --job-dir "$JOB"
expect_output events '^\{"n":0'
run logs dtctl logs ../../../etc/passwd
expect_status 2
for ((i = 0; i < ${#HUNG[@]}; i++)); do
  finished "hung$i" "${HUNG[i]}" 20
  expect_status 3
  expect_output "hung$i" '^dtctl: the supervisor of job j2 \(pid 7\) does not answer within 15 s: '
done
