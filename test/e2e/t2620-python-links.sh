# timeout=300 cost=60 alone nightly needs=dttrain
# On two hosts with a link of 2 Gbit/s dt.Job hides its exchange behind compute: a step lasts at most 1.25 times the limit, and
# without overlap longer than that.
. "$(dirname "$0")/lib.sh"
has_torch || skip "no PyTorch"
run bench "$DT_SOURCE/test/bench/link_bench" --rates 2000 --rounds 2 --steps 20 --only alone,wire,L1,whole --check 1.25
[ "$STATUS" != 77 ] || skip "$(output bench)"
output bench
expect_status 0
awk '$1 == "whole" { found = $5 } END { exit !(found > 1.25) }' "$T/bench.out" || fail "the link is not what holds a step up"
expect_nothing_left
