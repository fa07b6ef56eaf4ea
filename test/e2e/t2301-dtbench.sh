# timeout=90
# dtbench measures over hosts: dtlaunch starts it there, rank 0 reports the results of all.
. "$(dirname "$0")/lib.sh"
ssh_hosts 2
quick=(--sizes 1K,3x100K --reps 2 --seconds 0.01 --json)
for type in dist_sync dist_async; do
  run over dtbench kv -H "$SSH_HOSTS" -w 3 -s 2 --type "$type" "${quick[@]}" -- "${SSH_OPTIONS[@]}"
  expect_status 0
  expect_output over '"workers": 3'
  expect_output over '"servers": 2'
  expect_output over '"list": "3x100K"'
  [ "$(grep -c '"bad": 0' "$T/over.out")" = 3 ] || fail "not one object with two good measurements"
done
run over dtbench kv -H "$SSH_HOSTS" -w 2 --transport tcp --codec 2bit --chunk 16K --deterministic \
  "${quick[@]}" -- "${SSH_OPTIONS[@]}"
expect_status 0
expect_output over '"codec": "2bit"'
expect_output over '"chunk_bytes": 16384'
expect_output over '"deterministic": true'
expect_output over '"transport": "tcp"'
[ "$(grep -c '"bad": 0' "$T/over.out")" = 3 ] || fail "compressed: not one object with two good measurements"
run refused dtbench kv -H "$SSH_HOSTS" --peer raw
expect_status 2
expect_output refused '--peer is for processes of this machine'
run refused dtbench kv -H "$T/no-such-file" "${quick[@]}"
expect_status 2
expect_output refused 'no-such-file'
expect_nothing_left
