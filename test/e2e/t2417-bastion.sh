# timeout=240 cost=30
# Hosts behind a bastion that alone knows their names: one process and one TCP connection reach them
# all. A lost bastion is a lost link of each, made again once.
. "$(dirname "$0")/netns.sh" && own_network "$@"
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
behind_bastion 4
sed -i 's/inner4/command4/' "$SSH_HOSTS"
head -n 3 "$SSH_HOSTS" >"$T/hosts"
! getent hosts inner1 || fail "this machine knows inner1"
train -n 3 -H "$T/hosts" "${SSH_OPTIONS[@]}" --
connections() { ss -Htn state established dst 10.76.0.2 | wc -l; }
[ "$(connections)" = 1 ] || fail "$(connections) connections to the bastion"
supervisor=$(supervisor)
! pgrep -P "$supervisor" -x ssh || fail "the supervisor has a child of that name"
status "[x[\"address\"] for x in s[\"servers\"]] == [\"10.77.%d.2\" % k for k in (1, 2, 3)]" || fail "servers are elsewhere: $(cat "$T/status.json")"
worker=$(pid_of workers 0)
tr '\0' '\n' <"/proc/$worker/environ" | grep -x "MASTER_ADDR=10.77.1.2" || fail "MASTER_ADDR is another"

say "a host by ProxyCommand joins"
echo command4 >>host_worker
changed "ADDED command4"
members 0,1,2,3
some_epochs 2

say "the bastion's connections are lost"
before=$(dtctl status --json | python3 -c 'import json, sys; print([w["pid"] for w in json.load(sys.stdin)["workers"]])')
for pid in $(pgrep -f "sshd: root" --ns "${NAMESPACE[0]}" --nslist net); do kill -KILL "$pid"; done
for host in inner1 inner2 inner3 command4; do happens link_down "$host"; done
for host in inner1 inner2 inner3 command4; do PATIENCE=60 awaits "host $host up"; done
some_epochs 2
[ "$(connections)" = 2 ] || fail "$(connections) connections to the bastion, one of them the ProxyCommand's"
after=$(dtctl status --json | python3 -c 'import json, sys; print([w["pid"] for w in json.load(sys.stdin)["workers"]])')
[ "$before" = "$after" ] || fail "something was restarted: $before, $after"
end_job
