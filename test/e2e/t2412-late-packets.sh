# timeout=240 cost=20
# Every packet to and from a host is delayed by 50 +- 40 ms, so that packets are reordered, and 2 % are
# lost: a worker there joins, trains, leaves and comes back, no host is taken for dead, the weights are
# the same everywhere. With delays longer than --dead-after it is lost as if the link was cut, and the
# late packets change nothing.
. "$(dirname "$0")/netns.sh" && own_network "$@"
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
command -v iptables >/dev/null || skip "no iptables here"
net_hosts 3
bad_rules() {
  iptables -t mangle "$1" PREROUTING -s 10.77.3.2 -j NFQUEUE --queue-num 3 --queue-bypass &&
    iptables -t mangle "$1" POSTROUTING -d 10.77.3.2 -j NFQUEUE --queue-num 3 --queue-bypass
}
run rules bad_rules -A
[ "$STATUS" = 0 ] || skip "no NFQUEUE here: $(tail -n 1 "$T/rules.out")"
# late NAME OPTIONS...: of netqueue, for host 3 from now on, until in_time.
late() {
  local name=$1
  shift
  start "$name" "$DT_SOURCE/test/e2e/netqueue" --queue 3 --seed 1 "$@"
  LATE=$PID
  wait_for 5 "grep -qs ready '$T/$name.out'" || fail "netqueue: $(output "$name")"
}
in_time() {
  kill "$LATE"
  finished netqueue "$LATE" 5
}
head -n 2 "$SSH_HOSTS" >"$T/hosts"
third=$(sed -n 3p "$SSH_HOSTS")
pid_of() { dtctl status --json | python3 -c 'import json, sys
print(*[w["pid"] for w in json.load(sys.stdin)["workers"] if w["id"] == int(sys.argv[1])])' "$1"; }
PATIENCE=100 train -n 2 -H "$T/hosts" "${SSH_OPTIONS[@]}" --transport tcp --max-restarts 20 -- --steps-per-epoch 2

say "late, in another order, and some lost: it joins, leaves and joins"
late overtaking --delay 50 --jitter 40 --loss 2
echo "$third" >>host_worker
PATIENCE=60 changed "ADDED ${third%:*}"
members 0,1,2
some_epochs 2
cp "$T/hosts" host_worker
PATIENCE=30 changed "ADDED ${third%:*}" "REMOVED ${third%:*}"
members 0,1
echo "$third" >>host_worker
PATIENCE=60 changed "ADDED ${third%:*}" "REMOVED ${third%:*}" "ADDED ${third%:*}"
members 0,1,3
some_epochs 1
[ "$(event host_lost)" = 0 ] || fail "a host was lost by that"
in_time
output overtaking | tail -n 1
expect_output overtaking 'dropped [1-9][0-9]*, overtaken [1-9][0-9]{2}'
if ! is_nightly; then
  end_job
  exit
fi

say "later than the dead limit"
old=$(pid_of 3)
late dead --delay 6000 --jitter 1000 --loss 0
PATIENCE=30 changed "ADDED ${third%:*}" "REMOVED ${third%:*}" "ADDED ${third%:*}" "REMOVED ${third%:*}"
members 0,1
happens host_lost
alive "$old" || fail "the worker behind the link has ended: nothing is there to be fenced"
some_epochs 1
in_time
wait_for 30 "! alive $old" || fail "the old worker still runs"
PATIENCE=60 changed "ADDED ${third%:*}" "REMOVED ${third%:*}" "ADDED ${third%:*}" "REMOVED ${third%:*}" "ADDED ${third%:*}"
members 0,1,4
some_epochs 2
for id in 0 1; do worker_log once "$T/w$id.jsonl"; done
worker_log agree "$T"/w*.jsonl
[ "$(event host_lost)" = 1 ] || fail "hosts were lost"
end_job
