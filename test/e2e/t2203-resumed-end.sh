# timeout=90
# A supervisor dies between journalling the job's end and sending it to the agents: the next one
# sends it.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
# A host with a name: its address must be looked up, and the job's end waits for that.
"$DT_SOURCE/scripts/sshd-hosts" start "$T/ssh" -n 1 --first 1 >"$T/ssh.env"
sed -i 's/^Host .*/Host localhost/' "$T/ssh/ssh_config"
sed -i 's/127\.0\.0\.1/localhost/' "$T/ssh/known_hosts"
echo "localhost:$(cat "$T/ssh/port")" >"$T/hosts"
run detached dtlaunch -n 1 -s 0 --detach -H "$T/hosts" --ssh-config "$T/ssh/ssh_config" \
  --ssh-known-hosts strict sh -c "echo \$\$ >$T/worker; exec sleep 1000"
expect_status 0
wait_for 30 '[ -s "$T/worker" ]' || fail "the job has not begun"
read -r pid spec job <<<"$(python3 -c 'import json
c = json.load(open(".dtlaunch/current.json"))
print(c["pid"], c["state_dir"] + "/spec.json", c["job"])')"
worker=$(cat "$T/worker")
# Messages to the agent from now on do not arrive.
bridge=$(pgrep -f "dtagent --attach --job $job")
kill -STOP "$bridge"
start stop dtctl stop
awaits state=stopping
kill -KILL "$pid" "$bridge"
alive "$worker" || fail "the worker was told already"
run again timeout 60 dtsupervisor --spec "$spec" --resume
expect_status 130
! alive "$worker" || fail "the worker still runs"
expect_nothing_left 5
