# timeout=60 sanitized
# dtlaunch shows its supervisor's console, ends with the job's code, and restarts a dead supervisor.
. "$(dirname "$0")/lib.sh"
mkdir "$T/fake"
cp "$DT_BIN/dtlaunch" "$T/fake/"
cp "$DT_SOURCE/test/e2e/fake_supervisor.py" "$T/fake/dtsupervisor"
fake=$T/fake/dtlaunch

STATUS=0
"$fake" -n 1 end 7 >"$T/stdout.out" 2>"$T/stderr.out" </dev/null || STATUS=$?
expect_status 7
[ "$(output stdout)" = '[worker 0 localhost] to stdout' ] || fail "stdout is not what the supervisor sent"
[ "$(output stderr)" = '[worker 0 localhost] to stderr' ] || fail "stderr is not what the supervisor sent"

run dies "$fake" -n 1 die 3
expect_status 0
expect_output dies 'The supervisor died \(killed by signal 9.*\); starting it again, 3 of 5 within 60 s'
expect_output dies 'alive at last'

run early "$fake" -n 1 die 3 early
expect_status 0
expect_output early 'The supervisor died \(killed by signal 9.*\); starting it again, 3 of 5 within 60 s'
expect_output early 'alive at last'

run lost "$fake" -n 1 die 99
expect_status 69
expect_output lost 'starting it again, 5 of 5'
expect_output lost 'The supervisor is lost: it died too often; its log is .*/supervisor.log'

run silent "$fake" -n 1 silent
expect_status 1
expect_output silent 'the supervisor ended at its start \(exit code 1\): the disk is full; see .*/supervisor.log'

run second "$fake" -n 1 refuse
expect_status 68
expect_output second 'job j0 is running in this folder'

# A slow reader gets every line; one that leaves stops the job.
"$fake" -n 1 flood 2>/dev/null | (sleep 0.3; cat) >"$T/flood.out"  # how long the reader is late, not a wait
[ "$(wc -l <"$T/flood.out")" = 10000 ] || fail "$(wc -l <"$T/flood.out") of 10000 lines"

# Its files are its owner's alone.
spec=$(find "$T/state" -name spec.json | head -1)
[ "$(stat -c %a "$spec")" = 600 ] || fail "spec.json has mode $(stat -c %a "$spec")"
[ "$(stat -c %a "$(dirname "$spec")")" = 700 ] || fail "the state folder is open to others"
expect_nothing_left
