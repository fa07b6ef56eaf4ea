# timeout=30
# Every program reports its commit, and all report the same one.
. "$(dirname "$0")/lib.sh"
seen=
for program in dtlaunch dtsupervisor dtctl dtfleet dtagent dtserver dtgpucheck dttrain; do
  [ -x "$DT_BIN/$program" ] || continue
  run "$program" "$program" --version
  expect_status 0
  expect_output "$program" "^$program [0-9]+\.[0-9]+\.[0-9]+ \(commit [0-9a-z]+\)$"
  seen+="$(sed -n '1s/^[a-z]* //p' "$T/$program.out")"$'\n'
done
[ "$(printf %s "$seen" | sort -u | wc -l)" -le 1 ] || fail "different versions: $seen"
