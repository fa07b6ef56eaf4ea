#!/bin/bash
# Starts and ends one short command on N hosts behind a jump host, beside the same hosts reached
# directly: wall and client CPU, medians of interleaved runs, and how many processes and connections to
# the jump host there were. Jump host and inner hosts are network namespaces; the inner names resolve on
# the jump host alone. With --proxy-command also by an `ssh -W` process for each host. Needs root.
#
#     test/bench/jump_bench.sh [--hosts 64] [--runs 5] [--proxy-command] [--bench build/release/bin/launch_bench]
set -eu
hosts=64 runs=5 by_command='' bench=''
while [ $# -gt 0 ]; do
  case $1 in
    --hosts) hosts=$2; shift ;;
    --runs) runs=$2; shift ;;
    --bench) bench=$(readlink -f "$2"); shift ;;
    --proxy-command) by_command=yes ;;
    *) echo "jump_bench.sh: unknown option $1" >&2; exit 2 ;;
  esac
  shift
done
[ "$hosts" -le 4000 ] || { echo "jump_bench.sh: 4,000 hosts at most" >&2; exit 2; }
top=$(cd "$(dirname "$0")/../.." && pwd)
[ -n "$bench" ] || bench=$top/build/release/bin/launch_bench
[ -x "$bench" ] || { echo "build launch_bench first: cmake --build --preset release --target launch_bench" >&2; exit 1; }
if [ -z "${DT_OWN_NETWORK-}" ]; then
  [ "$(id -u)" = 0 ] || { echo "SKIPPED: network namespaces need root"; exit 0; }
  arguments=(--hosts "$hosts" --runs "$runs" --bench "$bench" ${by_command:+--proxy-command})
  exec env DT_OWN_NETWORK=1 unshare -n bash "$0" "${arguments[@]}"
fi
sshd=/usr/sbin/sshd
dir=$(mktemp -d /tmp/dt-jump-XXXXXX)
pids=()
trap 'for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done; rm -rf "$dir"' EXIT
mkdir -p /run/sshd
ulimit -Sn "$(ulimit -Hn)"
ssh-keygen -q -t ed25519 -N '' -f "$dir/host_key"
ssh-keygen -q -t ed25519 -N '' -f "$dir/user_key"
ip link set lo up

exec {silence}<> <(:)
nap() { read -rt "${1:-0.05}" -u "$silence" || true; }
namespace() {  # NAME
  local pid
  setsid unshare -n -m --propagation private sleep 100000 &
  pid=$!
  pids+=("$pid")
  until [ "$(readlink "/proc/$pid/ns/net")" != "$(readlink /proc/self/ns/net)" ]; do nap; done
  eval "$1=$pid"
}
sshd_in() {  # NAMESPACE NAME MAX_STARTUPS
  printf '%s\n' "Port 2222" "HostKey $dir/host_key" "AuthorizedKeysFile $dir/user_key.pub" "PidFile none" \
    "StrictModes no" "UsePAM no" "UseDNS no" "PrintMotd no" "MaxStartups $3" "SetEnv HOME=$dir" >"$dir/$2.conf"
  setsid nsenter -n -m -t "$1" "$sshd" -D -f "$dir/$2.conf" -E "$dir/$2.log" &
  pids+=($!)
  until grep -q 'Server listening' "$dir/$2.log" 2>/dev/null; do nap; done
}
namespace jump
namespace inner
ip link add out type veth peer name eth0 netns "$jump"
ip addr add 10.76.0.1/24 dev out
ip link set out up
at() { nsenter -n -t "$@"; }
at "$jump" ip link add in type veth peer name eth0 netns "$inner"
at "$jump" ip link set lo up
at "$jump" ip addr add 10.76.0.2/24 dev eth0
at "$jump" ip link set eth0 up
at "$jump" ip addr add 10.77.0.1/16 dev in
at "$jump" ip link set in up
at "$jump" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
at "$inner" ip link set lo up
at "$inner" ip link set eth0 up
names=() addresses=()
for ((k = 0; k < hosts; k++)); do
  addresses+=("10.77.$((1 + k / 250)).$((1 + k % 250))")
  names+=("inner$k")
  echo "${addresses[k]} inner$k" >>"$dir/names"
done
printf 'addr add %s/16 dev eth0\n' "${addresses[@]}" | at "$inner" ip -batch -
at "$inner" ip route add default via 10.77.0.1
ip route add 10.77.0.0/16 via 10.76.0.2  # for the direct runs alone
nsenter -m -t "$jump" mount --bind "$dir/names" /etc/hosts
# OpenSSH's default at the jump host; the inner hosts are one sshd, which has to take them all.
sshd_in "$jump" jump 10:30:100
sshd_in "$inner" inner 8000
# config NAME LINE...: an ssh config.
config() {
  printf '%s\n' "${@:2}" "Host *" "  Port 2222" "  IdentityFile $dir/user_key" "  StrictHostKeyChecking no" \
    "  UserKnownHostsFile /dev/null" "  LogLevel ERROR" >"$dir/$1.config"
}
config direct
config jump "Host inner*" "  ProxyJump 10.76.0.2"
config command "Host inner*" "  ProxyCommand ssh -F $dir/command.config -W %h:%p 10.76.0.2"
! getent hosts inner1 >/dev/null || { echo "this machine knows inner1" >&2; exit 1; }

# measure WAY HOST...: "wall cpu" of one run.
measure() {
  local way=$1
  shift
  python3 - "$bench" "$dir/$way.config" "$@" <<'END'
import resource, subprocess, sys, time
bench, config, *hosts = sys.argv[1:]
begin = time.monotonic()
code = subprocess.run([bench, "plain", config, "2222", "true", *hosts]).returncode
wall = time.monotonic() - begin
used = resource.getrusage(resource.RUSAGE_CHILDREN)
if code != 0: sys.exit("failed")
print(f"{wall:.3f} {used.ru_utime + used.ru_stime:.3f}")
END
}
ways=(direct jump ${by_command:+command})
for ((run = 0; run <= runs; run++)); do  # the first one warms up
  for way in "${ways[@]}"; do
    hosts_of=("${names[@]}")
    [ "$way" != direct ] || hosts_of=("${addresses[@]}")
    line=$(measure "$way" "${hosts_of[@]}")
    [ $run = 0 ] || echo "$line" >>"$dir/$way.times"
  done
done
before=$(grep -c 'Accepted publickey' "$dir/jump.log")
"$bench" plain "$dir/jump.config" 2222 'sleep 3' "${names[@]}" &
last=$!
until [ "$(ss -Htn state established dst 10.76.0.2 | wc -l)" -ge 1 ]; do nap; done
nap 2
echo "while all run: $(ss -Htn state established dst 10.76.0.2 | wc -l) TCP connections to the jump host, $(pgrep -cP $last || true) child processes"
wait $last
echo "logins on the jump host for $hosts hosts: $(($(grep -c 'Accepted publickey' "$dir/jump.log") - before))"
median() { sort -n | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }
base=$(cut -d' ' -f1 "$dir/direct.times" | median)
printf '%-8s %8s %8s %8s\n' way wall_s cpu_s ratio
for way in "${ways[@]}"; do
  wall=$(cut -d' ' -f1 "$dir/$way.times" | median)
  cpu=$(cut -d' ' -f2 "$dir/$way.times" | median)
  printf '%-8s %8.3f %8.3f %8.2f\n' "$way" "$wall" "$cpu" "$(awk "BEGIN { print $wall / $base }")"
done
