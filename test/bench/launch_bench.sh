#!/bin/bash
# Starts and ends one short command on N hosts over ssh, by a whole dtlaunch job (agent and guard on
# every host, supervisor, journal, logs), by this project's ssh backend alone, by a bare client that starts
# the same agent, guard and command through it, by dtctl exec, by pdsh and by clush in turn:
# wall, client CPU (the tool and all its children) and client memory (peak of the summed resident sizes,
# sampled). The hosts are 127.0.1.1, 127.0.1.2 and so on, up to 4,000 addresses of one sshd, unprivileged,
# in a temporary folder; OpenSSH's defaults otherwise, MaxStartups apart.
#
#     test/bench/launch_bench.sh [--hosts 64] [--runs 5] [--bench build/release/bin/launch_bench]
#         [--command true] [--kex curve25519-sha256]     the key exchange, for all tools
#         [--only WORD,WORD]                             the tools whose names have one of them
#
# With --launcher slurm: in an allocation of a Slurm of this machine, see launch_slurm.sh.
set -eu
hosts=64 runs=5 command=true kex='' bench='' only='' launcher=ssh
while [ $# -gt 0 ]; do
  case $1 in
    --hosts) hosts=$2 ;;
    --runs) runs=$2 ;;
    --command) command=$2 ;;
    --kex) kex=$2 ;;
    --only) only=$2 ;;
    --bench) bench=$2 ;;
    --launcher) launcher=$2 ;;
    *) echo "launch_bench.sh: unknown option $1" >&2; exit 2 ;;
  esac
  shift 2
done
top=$(cd "$(dirname "$0")/../.." && pwd)
for preset in release dev; do
  [ -n "$bench" ] || { [ ! -x "$top/build/$preset/bin/launch_bench" ] || bench=$top/build/$preset/bin/launch_bench; }
done
case $launcher in
  ssh) ;;
  slurm) exec bash "$top/test/bench/launch_slurm.sh" "${bench%/*}" "$hosts" "$runs" "$command" "$only" ;;
  *) echo "launch_bench.sh: --launcher is ssh or slurm" >&2; exit 2 ;;
esac
most=4000
case $hosts$runs in *[!0-9]*) echo "launch_bench.sh: --hosts and --runs are numbers" >&2; exit 2 ;; esac
[ "$hosts" -ge 1 ] && [ "$hosts" -le $most ] ||
  { echo "launch_bench.sh: --hosts $hosts: 1 to $most can be made here" >&2; exit 2; }
[ -n "$bench" ] || { echo "build launch_bench first: cmake --build --preset release --target launch_bench" >&2; exit 1; }
sshd=/usr/sbin/sshd
[ -x "$sshd" ] || { echo "SKIPPED: $sshd is not installed"; exit 0; }
[ "$(id -u)" != 0 ] || mkdir -p /run/sshd

dir=$(mktemp -d /tmp/dt-bench-XXXXXX)
# What logind gives a user on a real host: in memory.
memory=$dir/run
[ ! -w /dev/shm ] || memory=$(mktemp -d /dev/shm/dt-bench-XXXXXX)
pid=
# All tools hold a connection or two to every host.
ulimit -Sn "$(ulimit -Hn)"
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null; rm -rf "$dir" "$memory"' EXIT
ssh-keygen -q -t ed25519 -N '' -f "$dir/host_key"
ssh-keygen -q -t ed25519 -N '' -f "$dir/user_key"
cp "$dir/user_key.pub" "$dir/authorized_keys"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
cat > "$dir/sshd_config" <<END
Port $port
ListenAddress 0.0.0.0
HostKey $dir/host_key
AuthorizedKeysFile $dir/authorized_keys
PidFile none
StrictModes no
UsePAM no
UseDNS no
PrintMotd no
MaxStartups 8000
LogLevel ERROR
SetEnv HOME=$dir XDG_RUNTIME_DIR=$memory
END
"$sshd" -D -f "$dir/sshd_config" -E "$dir/sshd.log" &
pid=$!
awk -v p="$port" '{ print "[127.0.*]:" p " " $1 " " $2 }' "$dir/host_key.pub" > "$dir/known_hosts"
cat > "$dir/config" <<END
Host *
  Port $port
  IdentityFile $dir/user_key
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile $dir/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  BatchMode yes
${kex:+  KexAlgorithms $kex}
END
for _ in $(seq 100); do
  ssh -F "$dir/config" 127.0.1.1 true 2>/dev/null && break
  sleep 0.1
done

python3 - "$dir" "$port" "$hosts" "$runs" "$command" "$bench" "$only" "$top/test/bench/launch_table.py" <<'END'
import json, os, shutil, subprocess, sys
folder, port, hosts, runs, command, bench, only, table = sys.argv[1:9]
hosts, runs = int(hosts), int(runs)
last = 254  # last number of an address: .0 and .255 look like a network's own
names = ["127.0.%d.%d" % (1 + i // last, 1 + i % last) for i in range(hosts)]
config = folder + "/config"
tools = {"ssh backend alone": ([bench, "plain", config, port, command] + names, {}),
         "... and agents": ([bench, "agents", config, port, command] + names, {})}
dtctl = os.path.join(os.path.dirname(bench), "dtctl")
if os.access(dtctl, os.X_OK):
    tools["dtctl exec"] = ([dtctl, "--job-dir", folder, "exec", "--parallel", str(hosts), "--ssh-config", config,
                            "-w", ",".join(names), "--", command], {})
dtlaunch = os.path.join(os.path.dirname(bench), "dtlaunch")
if os.access(dtlaunch, os.X_OK):
    os.makedirs(folder + "/job")
    os.makedirs(folder + "/run", mode=0o700)
    with open(folder + "/hosts", "w") as f:
        f.writelines(name + "\n" for name in names)
    # A machine that plays a thousand hosts leaves agents silent for seconds, and pays for the heartbeats of all.
    patience = ["--suspect-after", "10s", "--dead-after", "60s"]
    job = [dtlaunch, "-q"] + patience + ["-n", str(hosts), "-s", "0", "-H", folder + "/hosts", "--ssh-config", config,
                                         "--job-dir", folder + "/job", command]
    environment = {"XDG_RUNTIME_DIR": folder + "/run", "XDG_STATE_HOME": folder + "/state"}
    tools["dtlaunch, whole job"] = (job, environment)
    check = [word for word in job if word != "-q"]
    tools["dtlaunch --check quick"] = (check[:1] + ["--check", "quick"] + check[1:], environment)
    # The first job brings the programs to the hosts.
    first = subprocess.run(job, env=dict(os.environ, **environment), stdin=subprocess.DEVNULL,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if first.returncode != 0:
        tail = "\n".join(first.stdout.splitlines()[-20:])
        sys.exit("the first job failed with exit code %d:\n%s" % (first.returncode, tail))
if shutil.which("pdsh"):
    tools["pdsh -f N"] = (["pdsh", "-R", "ssh", "-f", str(hosts), "-S", "-w", ",".join(names), command],
                          {"PDSH_SSH_ARGS_APPEND": "-F " + config})
if shutil.which("clush"):
    tools["clush -f N"] = (["clush", "-S", "-f", str(hosts), "-o", "-F " + config, "-w", ",".join(names), command], {})

title = "%d hosts" % hosts
subprocess.run([sys.executable, table, title, str(runs), only], input=json.dumps(tools), text=True, check=True)
END
