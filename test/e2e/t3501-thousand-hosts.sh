# timeout=1800 cost=600 alone nightly
# A thousand hosts, all on one sshd: each gets its worker, the supervisor stays small, and nothing is left. With 20 that
# refuse connections a command runs on the 980 others, and with 12 of 300 a job's workers on the 288 others; nothing of the job
# stays there, and both times the dead ones are named.
. "$(dirname "$0")/lib.sh"
[ "$(awk '/^MemTotal/ { printf "%d", $2 / 1e6 }' /proc/meminfo)" -ge 16 ] || skip "less than 16 GB of memory"
unset DT_CHECK_SETTLE  # deciding on a thousand hosts again after each event fills a core
ulimit -Sn "$(ulimit -Hn)"
mkdir -p -m 0755 /run/sshd
mkdir -m 700 "$T/home"
ssh-keygen -q -t ed25519 -N '' -f "$T/host_key"
ssh-keygen -q -t ed25519 -N '' -f "$T/user_key"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
printf '%s\n' "Port $port" "HostKey $T/host_key" "AuthorizedKeysFile $T/user_key.pub" 'PidFile none' 'StrictModes no' \
  'UsePAM no' 'UseDNS no' 'MaxStartups 8000' "SetEnv HOME=$T/home XDG_RUNTIME_DIR=$T/home" >"$T/sshd.conf"
start sshd "$(PATH=$PATH:/usr/sbin command -v sshd)" -D -e -f "$T/sshd.conf"
wait_for 10 "grep -q 'Server listening' '$T/sshd.out'" || fail 'no sshd'
printf '%s\n' 'Host *' "  IdentityFile $T/user_key" '  IdentitiesOnly yes' "  UserKnownHostsFile $T/known_hosts" \
  '  StrictHostKeyChecking accept-new' >"$T/config"
for ((k = 0; k < 1000; k++)); do echo "127.0.$((1 + k / 250)).$((1 + k % 250)):$port"; done >"$T/hosts"
mkfifo "$T/gate"
# A worker: says who it is, and ends when somebody has opened the gate. A machine that plays a thousand leaves agents silent
# for seconds.
launch() { start "$1" dtlaunch -q --dead-after 60s -n "${HOSTS:-1000}" -s 0 -H "$T/$1" --ssh-config "$T/config" "${@:2}" sh -c "echo here; read -r x <'$T/gate'; :"; }
here() { grep -slx here "$JOB"/.dtlaunch/*/logs/worker-*.log | wc -l; }

launch hosts
STEP=1 wait_for 150 '[ "$(here)" = 1000 ]' || fail "$(here) workers of 1000"
memory=$(awk '/^VmHWM/ { printf "%d", $2 / 1e3 }' "/proc/$(supervisor)/status")
say "1,000 workers run; the supervisor had $memory MB at most"
[ "$memory" -le 300 ] || fail "that is more than 300 MB"
: >"$T/gate"
finished dtlaunch "$PID" 100
expect_status 0
expect_nothing_left 60
rm -rf "$JOB/.dtlaunch"

say "20 hosts are dead; not the one of rank 0, for whose ports all others wait"
sed "25~50s/:.*/:1/" "$T/hosts" >"$T/dead"
each_is_named() { grep ':1$' "$T/dead" | while read -r host; do grep -Fq "$host" "$T/$1.out" || fail "$1: $host is not named"; done; }
run exec dtctl exec -H "$T/dead" --ssh-config "$T/config" -- echo here
expect_status 65
[ "$(grep -c '\] here$' "$T/exec.out")" = 980 ] || fail "it ran on $(grep -c '\] here$' "$T/exec.out") hosts of 980"
each_is_named exec
# Fewer for the job: the dead are tried for as long as all starts take, which share this machine.
sed -n '1,300p' "$T/hosts" | sed '25~25s/:.*/:1/' >"$T/dead"
HOSTS=300 launch dead --start-timeout 60s
finished dtlaunch "$PID" 200
expect_status 65
[ "$(here)" = 288 ] || fail "$(here) workers of 288 ran"
each_is_named dead
expect_nothing_left 60
