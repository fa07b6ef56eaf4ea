# timeout=300 cost=85 needs=dttrain
# The README's promise: a third host joins and leaves while LeNet trains, and no process is left running. Another
# program on the hosts' addresses, such as a second quickstart, is not mistaken for this one's.
. "$(dirname "$0")/lib.sh"
[ "$DT_BUILD" = "$DT_SOURCE/build/$(basename "$DT_BUILD")" ] || skip "quickstart knows builds under build/ only"
unset XDG_RUNTIME_DIR XDG_STATE_HOME XDG_CACHE_HOME
start quickstart "$DT_SOURCE/scripts/quickstart" --no-install --no-build --preset "$(basename "$DT_BUILD")" --generated --samples 3500 --epochs 8
quickstart=$PID
wait_for 60 "grep -q '^== They train' '$T/quickstart.out'" || fail "quickstart: $(output quickstart)"
start stranger python3 -c 'import signal, socket
held = socket.create_server(("127.0.0.2", 0))
signal.pause()'
finished quickstart "$quickstart" 60
work=$(sed -n 's/^console *\(.*\)\/console.log$/\1/p' "$T/quickstart.out")
# Kept by quickstart for people; here only when it failed.
[ "$STATUS" != 0 ] || [ -z "$work" ] || rm -rf "$work"
[ "$STATUS" = 0 ] || fail "exit status $STATUS: $(output quickstart)"
expect_output quickstart '^0 ADDED 127\.0\.0\.4 [0-9]{19}$'
expect_output quickstart '^1 REMOVED 127\.0\.0\.4 [0-9]{19}$'
expect_output quickstart '^processes: none$'
expect_output quickstart '^picture  .*(/throughput\.svg|gnuplot-nox\))$'
expect_output quickstart '^in Python  .*quickstart --python: '
expect_output quickstart '^listening ports: none of ([5-9]|[0-9]{2}) '
