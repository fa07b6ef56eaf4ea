# timeout=300 cost=60
# --fleet command:PROGRAM: the hosts that a discovery script prints join and leave. What it does not say, or not rightly, changes
# nothing; hosts of the launch stay; who was removed by hand is not put back; dtfleet dies and goes on.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
for words in 'aws -H hosts --elastic-training-enabled' 'command: -H hosts --elastic-training-enabled' 'command:d -H hosts' \
  'command:d --elastic-training-enabled'; do
  # shellcheck disable=SC2086  # words
  run refused dtlaunch -n 1 --fleet $words true
  expect_status 2
done
expect_output refused '--fleet is for jobs on several machines: give -H FILE'

ssh_hosts 3
mapfile -t hosts < <(sed -E 's/^([^@]*@)?([^: ]+).*/\2/' "$SSH_HOSTS")
third=${hosts[2]}
printf '%s\n' "${hosts[@]}" >names
cat >discover.sh <<'END'
#!/bin/bash
echo >>asked
[ ! -e broken ] || { echo 'the cluster is away' >&2; exit 3; }
cat names
END
chmod +x discover.sh
# looks N: the script has run N more times.
looks() { FROM=$(wc -l <asked) N=$1 wait_for 40 '[ $(wc -l <asked) -ge $((FROM + N)) ]' || fail "the script is not run"; }
fleet() { pgrep -f "^([^ ]*/)?dtfleet --job-dir $JOB " || true; }

# worked: the status's worker-seconds, and the time.
worked() { dtctl status --json | python3 -c 'import json, sys, time; print(json.load(sys.stdin)["goodput"]["worker_s"], time.time())'; }
train -n 2 -s 1 -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" --fleet 'command:./discover.sh' --
say "a host that the script names joins"
changed "ADDED $third"
members 0,1,2
begin=$(worked)
happens fleet "./discover.sh has $third: it is added"
awaits '.fleet.text=3 named'
dtctl status | grep -q '^machines of ./discover.sh: 3 named$' || fail "$(dtctl status)"
run grow dtctl grow 1
expect_status 1

say "a failure, no output, garbage: nothing changes, and status says so; dtfleet dies meanwhile"
touch broken
awaits '.fleet.trouble ~ exit code 3: the cluster is away'
looks 1
kill -KILL $(fleet)
rm broken
: >names
awaits '.fleet.trouble ~ no host is named'
looks 2
printf '%s\n' "${hosts[@]}" '<html>' >names
awaits '.fleet.trouble ~ is no host'
looks 1
members 0,1,2
changed "ADDED $third"

say "a host that two outputs lack leaves; base hosts stay; it comes back"
echo "${hosts[0]}" >names
changed "ADDED $third" "REMOVED $third"
members 0,1
looks 1
printf '%s\n' "${hosts[@]}" >names
changed "ADDED $third" "REMOVED $third" "ADDED $third"
members 0,1,3

say "who was removed by hand is not put back until the script has dropped it, also by another dtfleet"
dtctl remove "$third" >/dev/null
changed "ADDED $third" "REMOVED $third" "ADDED $third" "REMOVED $third"
looks 1
kill -KILL $(fleet)
looks 2
members 0,1
echo "${hosts[0]}" >names
looks 3
printf '%s\n' "${hosts[@]}" >names
changed "ADDED $third" "REMOVED $third" "ADDED $third" "REMOVED $third" "ADDED $third"
members 0,1,4

say "a notice: it leaves in time, and its machine goes"
printf '%s\n' "${hosts[@]:0:2}" "$third leave=60" >names
happens worker_removed 'notice: ./discover.sh takes it away'
members 0,1
[ "$(event worker_died)" = 0 ] || fail "a leave counts as a death"

say "worker-hours are what the log says, by hand"
# shellcheck disable=SC2046,SC2086  # words
python3 - $begin $(worked) "$third" 3<host_worker_log <<'END' || fail "worker-hours are not those of host_worker_log"
import sys
worked, begin, worked_at_end, end = map(float, sys.argv[1:5])
beside, since = 0.0, begin  # a third worker, who is there at the begin
for line in open(3):
    _, word, host, at = line.split()
    at = max(int(at) / 1e9, begin)
    if host == sys.argv[5] and word == "ADDED":
        since = at
    elif host == sys.argv[5] and since is not None:
        beside, since = beside + at - since, None
by_log, by_status = 2 * (end - begin) + beside, worked_at_end - worked
print(f"worker-seconds: {by_log:.1f} by the log, {by_status:.1f} by the status")
sys.exit(abs(by_log - by_status) > 0.05 * by_log + 1)
END
dtctl stop >/dev/null
finished job "$JOB_PID" 30
[ -z "$(fleet)" ] || fail "dtfleet is left"
expect_nothing_left
