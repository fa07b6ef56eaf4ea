# timeout=300 cost=65
# From launch template to a clean end on instances as EC2 gives them: each has its own network, name, files, user and sshd, and
# dtlaunch-cloud-setup makes it the master or a worker. The command is the guide's, at login; a lost master is replaced by a new one.
. "$(dirname "$0")/netns.sh" && own_network "$@"
. "$(dirname "$0")/lib.sh"
for tool in useradd runuser curl ssh-keygen; do command -v $tool >/dev/null || skip "no $tool here"; done
/usr/bin/python3 -c 'import boto3' 2>/dev/null || skip "python3-boto3 is not installed"
LOGIN=trainer
runuser -u nobody -- test -r "$DT_BIN/dtlaunch" || LOGIN=root  # where another user cannot read what was built
SITE=$T/site
mkdir -p "$SITE/efs"
cd "$SITE"
chmod 755 "$T" "$SITE"
ip link set lo up
ip link add vpc address 02:00:0a:4e:00:01 type bridge  # not that of a port, which may go
ip address add 10.78.0.1/24 dev vpc
ip link set vpc up
host() { echo "ip-10-78-0-$1.eu-west-1.compute.internal"; }
for n in 2 3 11 12 13 14 15; do echo "10.78.0.$n $(host $n) ip-10-78-0-$n"; done >names  # short names by the search domain
for n in 11 12 13 14 15; do host $n; done >workers
cat >cluster.conf <<END
STACK=c
STACK_ID=arn:aws:cloudformation:eu-west-1:123456789012:stack/c/51af3dc0
REGION=eu-west-1
MOUNT=srv/efs
LOGIN=$LOGIN
WORKERS=2
WORKER_TEMPLATE=lt-0a
AUTO_RESUME=/srv/efs/job
END
cat >up.sh <<END
#!/bin/sh
exec "$DT_SOURCE/test/fleet/instance.py" "$SITE" worker "\$1" "\$2" >"$SITE/\$1.out" 2>&1
END
printf '#!/bin/sh\nkill -KILL "$(cat "%s/$1/init")"\n' "$SITE" >down.sh
chmod +x up.sh down.sh
start fake "$DT_SOURCE/test/fleet/fake_aws.py" "$SITE" --address 0.0.0.0 --names workers --hook-timeout 60 --up ./up.sh --down ./down.sh
FAKE=$PID
wait_for 20 '[ -s port ]'
cat >profile <<END
export PATH=$DT_BIN:\$PATH LC_ALL=C
export AWS_ENDPOINT_URL=http://10.78.0.1:$(<port) AWS_ACCESS_KEY_ID=AKTEST AWS_SECRET_ACCESS_KEY=s AWS_EC2_METADATA_DISABLED=true
END
aws() { "$DT_SOURCE/test/fleet/fake_aws.py" "$SITE" do "$@"; }
# id N; newest; marked N MARK
id() { aws show | python3 -c 'import json, sys; print([i["id"] for i in json.load(sys.stdin) if i["name"] == sys.argv[1] and i["state"] == "running"][0])' "$(host "$1")"; }
newest() { aws show | python3 -c 'import json, sys; print([i["id"] for i in json.load(sys.stdin) if i["state"] == "running"][-1])'; }
marked() { HOST=$(host "$1") MARK=$2 wait_for 30 'aws show | python3 -c "import json, sys; sys.exit(not any(i[\"name\"] == \"$HOST\" and i[\"tags\"].get(\"elastic_worker_status\") == \"$MARK\" for i in json.load(sys.stdin)))"' || fail "$1 is not $2: $(aws show)"; }
asked() { grep -c '"do": "Terminate' calls || true; }
instances() { N=$1 wait_for 30 '[ "$(aws show | grep -c "\"state\": \"running\"")" = "$N" ]' || fail "not $1 instances: $(aws show)"; }
# master ID N: a new one. set_up: it is.
master() {
  MASTER=$SITE/$1
  start "master-$1" "$DT_SOURCE/test/fleet/instance.py" "$SITE" master "$1" "$(host "$2")"
}
set_up() {
  wait_for 60 "[ -s '$MASTER/done' ] || ! alive $PID" && [ -s "$MASTER/done" ] || fail "the master is not set up: $(cat "$MASTER/log" "$SITE"/i-*/log)"
  [ "$(<"$MASTER/done")" = 0 ] || fail "the set-up of the master: $(cat "$MASTER/log")"
}
# there COMMAND...: as the user, at login, on the master, in the job's folder.
there() {
  nsenter -t "$(<"$MASTER/init")" -m -u -i -n -p env -i HOME="/home/$LOGIN" USER=$LOGIN LOGNAME=$LOGIN \
    /usr/sbin/runuser -u $LOGIN -- bash -lc 'cd /srv/efs/job && exec "$@"' login "$@"
}
dtctl() { there dtctl "$@"; }

say "the instances of the template come and are set up; the master waits for them"
master i-0aa 2
wait_for 30 'grep -qs "0 of 2 workers are set up" "$MASTER/log"' || fail "it does not wait: $(output master-i-0aa)"
aws group DesiredCapacity=2 >/dev/null
set_up
grep -q '2 of 2 workers are set up' "$MASTER/log" || fail "$(<"$MASTER/log")"

say "the first run that aws.md asks for, line by line"
mkdir efs/job
[ $LOGIN = root ] || chown 7321 efs/job
there sh -c "sed 's/ .*//' /opt/deeplearning/workers >hosts"
worker="$DT_BIN/elastic_worker --log w%i.jsonl --samples 200 --epochs 100000 --steps-per-epoch 20 --step-ms 20"
there python3 -c 'import boto3; print(boto3.__version__)' >/dev/null
run status there dtfleet aws status c
expect_status 0
[ "$(grep -c 'InService.*wanted' "$T/status.out")" = 2 ] || fail "$(output status)"
run ssh there ssh "$(head -n 1 efs/job/hosts)" true
expect_status 0
[ -z "$(output ssh)" ] || fail "ssh asks or warns: $(output ssh)"
run check there dtlaunch --check quick -H hosts
expect_status 0
there dtlaunch -n 2 -H hosts --elastic-training-enabled --fleet aws:c --detach $worker >/dev/null
PATIENCE=60 awaits --start 'epoch>=1'
awaits members=0,1 '.fleet.text ~ ^2 asked for, 2 here, '
marked 11 BASE
marked 12 BASE
run status there dtfleet aws status c
[ "$(grep -c BASE "$T/status.out")" = 2 ] || fail "$(output status)"
dtctl status >"$T/status.out"
expect_output status 'machines of AWS .c.: 2 asked for, 2 here'
run grow dtctl grow 1
expect_output grow 'c-workers: 2 -> 3 instances'
dtctl wait workers=3 --timeout 600
marked 13 ADDED
dtctl shrink >/dev/null
PATIENCE=60 awaits workers=2
instances 2
dtctl stop >/dev/null
run down there dtfleet aws down c
expect_output down 'nothing has been done: --yes does it'

say "the guide's command, at login"
there sh -c "dtlaunch -n \$DEEPLEARNING_WORKERS_COUNT -H \$DEEPLEARNING_WORKERS_PATH --elastic-training-enabled --fleet aws:c --detach $worker" >/dev/null
PATIENCE=60 awaits --start 'epoch>=1'
awaits members=0,1

say "one more from the template: it joins once it is set up, and its key was known"
aws launch >/dev/null
PATIENCE=60 awaits members=0,1,2
marked 13 ADDED

say "its tag is taken away: it leaves, then it ends; one of the launch stays"
before=$(asked)
aws untag "$(id 12)" c-aws-dl-cfn-elastic-worker >/dev/null
aws untag "$(id 13)" c-aws-dl-cfn-elastic-worker >/dev/null
PATIENCE=60 awaits members=0,1
instances 2
PATIENCE=60 awaits ".fleet.text ~ $(host 12) .* is a host of the launch: it stays"
[ "$(asked)" = $((before + 1)) ] || fail "$(grep Terminate calls)"

say "the group: 2, 4, 2, 3"
aws group DesiredCapacity=4 >/dev/null
PATIENCE=60 awaits workers=4
aws group DesiredCapacity=2 >/dev/null
PATIENCE=60 awaits workers=2
instances 2
aws group DesiredCapacity=3 >/dev/null
PATIENCE=60 awaits workers=3

say "the master is lost, and a worker's machine: the next one goes on with the job, and does not wait for that one"
kill -KILL "$(<"$MASTER/init")"
aws interrupt "$(newest)" 0 >/dev/null
master i-0bb 3
set_up
there cat /opt/deeplearning/workers >"$T/workers.out"
[ "$(grep -cE "^ip-10-78-0-1[1-5]\.eu-west-1\.compute\.internal slots=1$" "$T/workers.out")" = 2 ] || fail "$(output workers)"
grep -q 'i-0aa was the master: this one goes on with the job' "$MASTER/log" || fail "$(<"$MASTER/log")"
PATIENCE=60 awaits --start .state=running members=0,1
PATIENCE=60 awaits workers=3

say "the end"
dtctl stop >"$T/stop.out" 2>&1 || fail "dtctl stop: $(output stop)"
run down there dtfleet aws down c --yes
expect_status 0
instances 0
kill -KILL "$(<"$MASTER/init")"
kill -TERM "$FAKE"
expect_nothing_left
