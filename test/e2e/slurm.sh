# A Slurm of this machine for tests; after lib.sh:
#
#     . "$(dirname "$0")/slurm.sh"
#     slurm_up [N [PROCTRACK]]     # slurmctld and N slurmds, nodes n1 to nN (3); linuxproc or cgroup
#     SLURM_GRES=gpu:4             # before slurm_up: what each node has
#     SLURM_CRED_EXPIRE=10         # ... the seconds that a requeued job waits (120)
#     SLURM_GRACE=10               # ... partitions low, preempted by high with that GraceTime, in place of main
#     KILL_WAIT=30                 # ... the seconds between TERM and KILL (5)
#     allocate NODES               # an allocation that a shell in the background holds; sets SLURM_JOB
#
# All daemons run in one namespace of network, mounts and host name, which $SLURM_NS enters; their files
# are in $T/slurm. Needs root.
SLURM_NS=()

slurm_missing() {
  local program
  for program in slurmctld slurmd srun munged unshare ip; do
    PATH=$PATH:/usr/sbin:/sbin command -v "$program" >/dev/null || { echo "$program"; return; }
  done
  [ "$(id -u)" = 0 ] || echo root
}

slurm_config() {  # nodes proctrack
  local i
  cat <<EOT
ClusterName=dt
SlurmctldHost=dtmaster(10.99.0.1)
AuthType=auth/munge
AuthInfo=socket=$S/munge.socket${SLURM_CRED_EXPIRE:+,cred_expire=$SLURM_CRED_EXPIRE}
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/$2
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmUser=root
SlurmdUser=root
SlurmctldPort=6817
SlurmctldPidFile=$S/slurmctld.pid
SlurmdPidFile=$S/slurmd-%n.pid
SlurmdSpoolDir=$S/spool-%n
StateSaveLocation=$S/state
SlurmctldLogFile=$S/slurmctld.log
SlurmdLogFile=$S/slurmd-%n.log
SwitchType=switch/none
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=30
KillWait=${KILL_WAIT:-5}
MessageTimeout=20
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1
SlurmdParameters=config_overrides
${SLURM_GRES:+GresTypes=${SLURM_GRES%%:*}}
EOT
  for ((i = 1; i <= $1; i++)); do
    echo "NodeName=n$i NodeHostname=dtmaster NodeAddr=10.99.0.$((10 + i)) Port=$((7000 + i)) CPUs=8 RealMemory=8000 State=UNKNOWN${SLURM_GRES:+ Gres=$SLURM_GRES}"
  done
  if [ -n "${SLURM_GRACE-}" ]; then
    printf '%s\n' PreemptType=preempt/partition_prio PreemptMode=CANCEL \
      "PartitionName=low Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=$SLURM_GRACE" \
      "PartitionName=high Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=2"
    return
  fi
  echo "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8"
  echo "PartitionName=whole Nodes=ALL MaxTime=INFINITE State=UP OverSubscribe=NO"  # a node has one job
}

# in_slurm COMMAND...: where the daemons are, with their configuration.
in_slurm() { "${SLURM_NS[@]}" "$@"; }

slurm_up() {
  local nodes=${1:-3} proctrack=${2:-linuxproc} i lack
  lack=$(slurm_missing)
  [ -z "$lack" ] || skip "$lack"
  S=$T/slurm
  mkdir -p "$S/state"
  PATH=$PATH:/usr/sbin:/sbin
  export SLURM_CONF=$S/slurm.conf
  slurm_config "$nodes" "$proctrack" >"$SLURM_CONF"
  # Any character devices do: nobody opens them.
  [ -z "${SLURM_GRES-}" ] || echo "NodeName=n[1-$nodes] Name=${SLURM_GRES%%:*} File=/dev/tty[0-$((${SLURM_GRES##*:} - 1))]" >"$S/gres.conf"
  printf 'CgroupPlugin=cgroup/v1\nCgroupAutomount=yes\n' >"$S/cgroup.conf"
  head -c 256 /dev/urandom >"$S/munge.key"
  chmod 400 "$S/munge.key"
  # Its first process holds the namespace; nothing resolves in one that has only a loopback.
  start slurm-namespace unshare --net --mount --uts --propagation private bash -c "
    hostname dtmaster
    ip link set lo up
    ip link add dt0 type veth peer name dt1 && ip link set dt0 up && ip link set dt1 up
    for i in 1 $(seq -s ' ' 11 $((10 + nodes))); do ip addr add 10.99.0.\$i/24 dev dt0; done
    { echo 127.0.0.1 localhost; echo 10.99.0.1 dtmaster; for i in $(seq -s ' ' "$nodes"); do echo 10.99.0.\$((10 + i)) n\$i; done; } >$S/hosts
    mount --bind $S/hosts /etc/hosts
    $(slurm_cgroups "$proctrack")
    echo ready >$S/ready
    exec sleep infinity"
  wait_for 10 "[ -s '$S/ready' ]" || fail "no namespace: $(output slurm-namespace)"
  # Who enters a namespace of mounts is in its root folder.
  SLURM_NS=(nsenter -t "$PID" --net --mount --uts sh -c 'cd "$0" && exec "$@"' "$JOB")
  start munged "${SLURM_NS[@]}" munged --force --foreground --key-file="$S/munge.key" --socket="$S/munge.socket" \
    --pid-file="$S/munge.pid" --log-file="$S/munge.log" --seed-file="$S/munge.seed"
  wait_for 10 "[ -S '$S/munge.socket' ]" || fail "no munged: $(output munged)"
  start slurmctld "${SLURM_NS[@]}" slurmctld -D -c -f "$SLURM_CONF"
  for ((i = 1; i <= nodes; i++)); do
    mkdir -p "$S/spool-n$i"
    start "slurmd-n$i" "${SLURM_NS[@]}" slurmd -D -N "n$i" -f "$SLURM_CONF"
  done
  wait_for 20 '[ "$(in_slurm sinfo -h -t idle -o %D 2>/dev/null)" = '"$nodes ]" || fail "Slurm's nodes: $(in_slurm sinfo 2>&1) $(output slurmctld | tail -n 3)"
}

slurm_cgroups() {
  [ "$1" = cgroup ] || return 0
  cat <<'EOT'
    mount -t sysfs none /sys && mount -t tmpfs none /sys/fs/cgroup
    for c in freezer memory cpuset devices; do mkdir -p /sys/fs/cgroup/$c; mount -t cgroup -o $c none /sys/fs/cgroup/$c; done
EOT
}

# allocate NODES OPTIONS...: sets SLURM_JOB.
allocate() {
  local nodes=$1
  shift
  in_slurm salloc -N "$nodes" "$@" --no-shell >"$T/salloc.txt" 2>&1 || fail "salloc: $(cat "$T/salloc.txt")"
  SLURM_JOB=$(sed -nE 's/.*Granted job allocation ([0-9]+).*/\1/p' "$T/salloc.txt")
  [ -n "$SLURM_JOB" ] || fail "salloc said: $(cat "$T/salloc.txt")"
}
