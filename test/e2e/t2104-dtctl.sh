# timeout=120 sanitized
# dtctl against a real job that was detached: status, add, remove, events, logs, console, stop.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
run detached dtlaunch -n 1 --detach --elastic-training-enabled --poll-interval 300ms "$DT_BIN/elastic_worker" \
  --log "$T/w%i.jsonl" --samples 200 --epochs 100000 --steps-per-epoch 20 --step-ms 20
expect_status 0
PATIENCE=30 awaits 'epoch>=1'
start wait dtctl wait workers=2 newcomers=0 'event worker_added' --timeout 120
waiting=$PID
run add dtctl add localhost
expect_status 0
finished wait "$waiting" 60
expect_status 0
run late dtctl wait 'epoch<0' --timeout 3s
expect_status 4
expect_output late 'waited in vain for epoch<0 \(now [0-9]+\)'
run typo dtctl wait '.servers[id=0].sate=listening'
expect_status 2
expect_output typo 'the status has no servers\[\].sate; did you mean state\?'
changed 'ADDED localhost'
members 0,1
# An option of another command is refused before anything is done.
for words in 'stop --in 2m' 'remove localhost --cancel' 'leave localhost --timeout 30' 'status --force'; do
  run strict dtctl $words
  expect_status 2
  expect_output strict "^dtctl: ${words%% *} takes no --[a-z]+"
done
run status dtctl status
expect_output status '^1 +1 +localhost +MEMBER'
run remove dtctl remove localhost
expect_status 0
changed 'ADDED localhost' 'REMOVED localhost'
run again dtctl remove localhost
[ "$STATUS" != 0 ] || fail "a worker of the initial launch could be removed"
expect_output again 'initial launch'
run events dtctl events --json
python3 -c 'import json, sys
names = [json.loads(line)["event"] for line in open(sys.argv[1])]
assert names.count("committed") == 2 and "worker_added" in names and "worker_removed" in names, names' "$T/events.out"
run logs dtctl logs 0
expect_output logs 'Epoch\[0\]'
# A log that --log-limit rotated comes first, also if no newer one follows.
folder=$(echo .dtlaunch/*/logs)
echo "of then" >"$folder/worker-7.log.1"
run older dtctl logs 7
expect_status 0
expect_output older '^of then$'
echo "of now" >"$folder/worker-7.log"
run older dtctl logs 7
[ "$(output older)" = "of then
of now" ] || fail "not in their order: $(output older)"
# Completion names processes, and a name that a shell would take for a command stays a name.
: >"$folder/\$(touch completed).log"
. "$DT_SOURCE/packaging/completions/dtctl"
_dtctl dtctl '' logs
[ ! -e completed ] || fail "completion executed a file's name"
[[ " ${COMPREPLY[*]} " == *" worker-7 "* ]] || fail "completion of logs: ${COMPREPLY[*]}"
_dtctl dtctl '' why
[ ${#COMPREPLY[@]} -gt 0 ] || fail "no host to complete"
rm "$folder"/worker-7.log* "$folder"/*touch*
start console dtctl console
wait_for 10 'grep -q "worker 0 localhost" "$T/console.out"' || fail "the console shows nothing"
start wait dtctl wait ended
waiting=$PID
run stop dtctl stop
expect_status 0
finished wait "$waiting" 10
expect_status 0
run early dtctl wait workers=1 --timeout 60
expect_status 3
expect_nothing_left 10
run gone dtctl status
[ "$STATUS" != 0 ] || fail "status of an ended job should not be 0"
expect_output gone 'no job is running'
