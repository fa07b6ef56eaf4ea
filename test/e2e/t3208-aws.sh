# timeout=300 cost=45
# --fleet aws:c beside a stand-in for AWS: instances are sshds. Each way in which one comes and goes; no instance ends for which
# nobody asked, whatever dies meanwhile; at the end `dtfleet aws down` leaves nothing that costs.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
python3 -c 'import boto3' 2>/dev/null || skip "python3-boto3 is not installed"
ssh_hosts 5
mapfile -t hosts < <(sed -E 's/^([^@]*@)?([^: ]+).*/\2/' "$SSH_HOSTS")
head -n 2 "$SSH_HOSTS" >base
printf '%s\n' "${hosts[@]}" >names
mkdir -p cluster/ready
# What dtlaunch-cloud-setup does last.
cat >up.sh <<END
#!/bin/sh
echo '{"ip": "10.0.0.9", "gpus": 1}' >"$PWD/cluster/ready/\$1"
END
chmod +x up.sh
start fake "$DT_SOURCE/test/fleet/fake_aws.py" "$PWD" --names names --hook-timeout 60 --up ./up.sh
FAKE=$PID
wait_for 20 '[ -s port ]'
aws() { "$DT_SOURCE/test/fleet/fake_aws.py" "$PWD" do "$@"; }
AWS_ENDPOINT_URL=http://127.0.0.1:$(<port)
export AWS_ENDPOINT_URL AWS_ACCESS_KEY_ID=AKTEST AWS_SECRET_ACCESS_KEY=s AWS_REGION=eu-west-1 AWS_EC2_METADATA_DISABLED=true
# id HOST; marked HOST MARK; instances N
id() { aws show | python3 -c 'import json, sys; print([i["id"] for i in json.load(sys.stdin) if i["name"] == sys.argv[1] and i["state"] == "running"][0])' "$1"; }
marked() { HOST=$1 MARK=$2 wait_for 30 'aws show | python3 -c "import json, sys; sys.exit(not any(i[\"name\"] == \"$HOST\" and i[\"tags\"].get(\"elastic_worker_status\") == \"$MARK\" for i in json.load(sys.stdin)))"' || fail "$1 is not $2: $(aws show)"; }
instances() { N=$1 wait_for 30 '[ "$(aws show | grep -c "\"state\": \"running\"")" = "$N" ]' || fail "not $1 instances: $(aws show)"; }
asked() { grep -c '"do": "Terminate' calls || true; }
fleet() { pgrep -f "^([^ ]*/)?dtfleet --job-dir $JOB " || true; }
aws group DesiredCapacity=2 >/dev/null
instances 2

run refused dtlaunch -n 2 -H base --elastic-training-enabled --fleet aws: true
expect_status 2
expect_output refused "the stack's name is missing: aws:NAME"
train -n 2 -s 1 -H base "${SSH_OPTIONS[@]}" --fleet "aws:c --ready '$PWD/cluster/ready' --leave-within 60" --
say "hosts of the launch are marked and protected"
awaits '.fleet.text ~ ^2 asked for, 2 here, [0-9.]+ machine-hours since they came$'
marked "${hosts[0]}" BASE
marked "${hosts[1]}" BASE
[ "$(aws show | grep -c '"protected": true')" = 2 ] || fail "$(aws show)"

say "dtctl grow: two more, each once it is set up"
run grow dtctl grow 2
expect_output grow 'c-workers: 2 -> 4 instances'
members 0,1,2,3
marked "${hosts[2]}" ADDED
marked "${hosts[3]}" ADDED
run grow dtctl grow 9
expect_status 1
expect_output grow 'above max value 8.*WorkerMax'

say "the wanted tag is taken away: its worker leaves, then the instance ends; not one of the launch"
[ "$(asked)" = 0 ] || fail "$(grep Terminate calls)"
aws untag "$(id "${hosts[1]}")" c-aws-dl-cfn-elastic-worker >/dev/null
aws untag "$(id "${hosts[2]}")" c-aws-dl-cfn-elastic-worker >/dev/null
PATIENCE=40 members 0,1,3
instances 3
PATIENCE=40 awaits ".fleet.text ~ ${hosts[1]} .* is a host of the launch: it stays"
[ "$(asked)" = 1 ] || fail "$(grep Terminate calls)"

say "the group takes one back: it leaves before its time, and is not held longer than that"
aws group DesiredCapacity=2 >/dev/null
PATIENCE=40 members 0,1
instances 2
grep -q '"do": "CompleteLifecycleAction"' calls || fail "the hook holds it"
[ "$(asked)" = 1 ] || fail "$(grep Terminate calls)"

say "one that was launched by hand joins; everything dies, the API is away: none ends, and none is lost"
aws launch >/dev/null
instances 3
PATIENCE=60 awaits workers=3
marked "${hosts[2]}" ADDED
aws lie away >/dev/null
kill -KILL $(fleet)
PATIENCE=60 awaits '.fleet.trouble ~ .'
pkill -KILL -f "providers/aws.py c --ready $PWD" || true
newest=$(pid_of workers -1)
kill -KILL "$(supervisor)"
awaits --start '.state=running'
kill -KILL "$newest"
some_epochs 5
awaits workers=3
aws lie >/dev/null
PATIENCE=90 awaits '.fleet.text ~ 2 asked for, 3 here'
[ "$(asked)" = 1 ] || fail "$(grep Terminate calls)"

say "EC2 marks a Spot instance: its worker leaves before it is taken, nobody replaces it by a let-go"
aws interrupt "$(id "${hosts[2]}")" 25 >/dev/null
PATIENCE=40 awaits workers=2
[ "$(event worker_removed 'notice: AWS .c. takes it away')" -ge 2 ] || fail "$(story)"
aws launch >/dev/null
PATIENCE=60 awaits workers=3

say "dtctl shrink ends the newest"
dtctl shrink >/dev/null
PATIENCE=60 awaits workers=2
instances 2
dtctl stop >/dev/null
finished job "$JOB_PID" 30

say "another job: what the first one left is new to it, and goes at its end"
aws group DesiredCapacity=3 >/dev/null
instances 3
train -n 2 -s 1 -H base "${SSH_OPTIONS[@]}" --fleet "aws:c --ready '$PWD/cluster/ready' --scale-in-at-end" --
PATIENCE=60 awaits workers=3
dtctl stop >/dev/null
finished job "$JOB_PID" 40
instances 2

say "the end: what costs is shown, then ended"
run status dtfleet aws status c
expect_status 0
expect_output status 'c-workers: 2 asked for, 0 to 8'
run down dtfleet aws down c
expect_status 1
expect_output down 'nothing has been done: --yes does it'
instances 2
run down dtfleet aws down c --delete-filesystem --yes
expect_status 0
run down dtfleet aws down c --yes
expect_status 1
expect_output down 'nothing has the tag dtlaunch:cluster=c'
kill -TERM "$FAKE"
expect_nothing_left
