# timeout=300 cost=50
# --fleet PROGRAM: a provider that speaks the protocol of packaging/doc/provider.md, as the shipped example does. It is killed, says
# what it should not, and hangs: the job goes on as it is. A machine that is asked for goes when its workers have left.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
example=$DT_SOURCE/packaging/fleet/example.sh
printf 'n1\nn2\nn3 pending\n' >conform
python3 "$DT_SOURCE/test/fleet/conformance.py" --machines 3 "$example" conform || fail "the example is no provider"

ssh_hosts 3
mapfile -t hosts < <(sed -E 's/^([^@]*@)?([^: ]+).*/\2/' "$SSH_HOSTS")
third=${hosts[2]}
printf '%s\n' "${hosts[@]:0:2}" "$third pending" >machines
# What it does is the example's, until a file says otherwise.
cat >provider.sh <<END
#!/bin/bash
echo started >>starts
[ ! -e broken ] || { read -r; cat broken; echo 'no credentials' >&2; exit 4; }
exec '$example' machines
END
chmod +x provider.sh
provider() { pgrep -f "example.sh machines" | while read -r pid; do [ "$(readlink "/proc/$pid/cwd")" != "$JOB" ] || echo "$pid"; done; }

train -n 2 -s 1 -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" --fleet ./provider.sh --
say "a machine joins when it is ready"
awaits '.fleet.text=2 here, 1 pending'
members 0,1
printf '%s\n' "${hosts[@]}" >machines
changed "ADDED $third"
members 0,1,2
awaits '.fleet.text=3 here'

say "it is killed, and cannot be started: nothing changes, status has its last words"
: >broken
kill -KILL $(provider)
awaits '.fleet.trouble ~ exit code 4: no credentials'
for garbage in '{"n":2' '{"n":1,"ok":true,"version":2,"name":"x"}' '{"n":99,"ok":true}' 'Traceback'; do
  echo "$garbage" >broken
  wait_for 30 'dtctl status --json | grep -Eq "has version 2|answers request 99|it is no JSON"' || fail "$garbage is taken: $(dtctl status)"
  members 0,1,2
done
rm broken machines
awaits '.fleet.trouble ~ example: machines cannot be read'
printf '%s\n' "${hosts[@]}" >machines
awaits '.fleet.trouble='
members 0,1,2
changed "ADDED $third"

say "an empty list takes nobody whose agent answers"
: >machines
awaits '.fleet.text=0 here'
some_epochs 10
members 0,1,2
printf '%s\n' "${hosts[@]}" >machines
awaits '.fleet.text=3 here'

say "removed by hand: its machine stays, and is not used again, also by another dtfleet and provider"
dtctl remove "$third" >/dev/null
changed "ADDED $third" "REMOVED $third"
pkill -KILL -f "^([^ ]*/)?dtfleet --job-dir $JOB "
wait_for 20 '[ "$(wc -l <starts)" -ge 2 ] && [ -n "$(provider)" ]' || fail "the provider is not started again"
awaits '.fleet.text=3 here'
some_epochs 10
members 0,1
grep -q '"mark": "REMOVED"' .dtlaunch/*/fleet.json || fail "$(cat .dtlaunch/*/fleet.json)"
grep -q "^$third$" machines || fail "the machine was let go, and nobody had asked for that"
dtctl stop >/dev/null
finished job "$JOB_PID" 30
[ -z "$(provider)" ] || fail "the provider is left"
expect_nothing_left
