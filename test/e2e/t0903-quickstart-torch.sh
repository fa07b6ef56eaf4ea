# timeout=300 cost=55 needs=dttrain
# The same promise with mnist.py: a worker in Python joins and leaves, with what dtlaunch brings to the hosts alone.
. "$(dirname "$0")/lib.sh"
[ "$DT_BUILD" = "$DT_SOURCE/build/$(basename "$DT_BUILD")" ] || skip "quickstart knows builds under build/ only"
unset XDG_RUNTIME_DIR XDG_STATE_HOME XDG_CACHE_HOME PYTHONPATH DTKV_LIBRARY
run quickstart "$DT_SOURCE/scripts/quickstart" --python --no-install --no-build --preset "$(basename "$DT_BUILD")" --generated --samples 3500 --epochs 8
work=$(sed -n 's/^console *\(.*\)\/console.log$/\1/p' "$T/quickstart.out")
[ "$STATUS" != 0 ] || [ -s "$work/job/mnist.pt" ] || fail "no weights"
[ "$STATUS" != 0 ] || [ -z "$work" ] || rm -rf "$work"
expect_status 0
expect_output quickstart '^0 ADDED 127\.0\.0\.4 [0-9]{19}$'
expect_output quickstart '^1 REMOVED 127\.0\.0\.4 [0-9]{19}$'
expect_output quickstart '^epoch [0-9]: accuracy (1\.0|0\.9)[0-9]*, 3 workers, '
expect_output quickstart '^processes: none$'
expect_output quickstart '^picture  .*(/throughput\.svg|gnuplot-nox\))$'
