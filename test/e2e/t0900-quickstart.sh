# timeout=300 cost=85 needs=dttrain
# What the README promises: a third host joins and leaves while LeNet trains, and nothing is left running.
. "$(dirname "$0")/lib.sh"
[ "$DT_BUILD" = "$DT_SOURCE/build/$(basename "$DT_BUILD")" ] || skip "quickstart knows builds under build/ only"
unset XDG_RUNTIME_DIR XDG_STATE_HOME XDG_CACHE_HOME
run quickstart "$DT_SOURCE/scripts/quickstart" --no-install --no-build --preset "$(basename "$DT_BUILD")" --generated --epochs 6
work=$(sed -n 's/^console *\(.*\)\/console.log$/\1/p' "$T/quickstart.out")
# Kept by quickstart for people; here only when it failed.
[ "$STATUS" != 0 ] || [ -z "$work" ] || rm -rf "$work"
expect_status 0
expect_output quickstart '^0 ADDED 127\.0\.0\.4 [0-9]{19}$'
expect_output quickstart '^1 REMOVED 127\.0\.0\.4 [0-9]{19}$'
expect_output quickstart '^processes: none$'
