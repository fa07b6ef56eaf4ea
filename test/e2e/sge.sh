# A gridengine of this machine for tests; after lib.sh:
#
#     . "$(dirname "$0")/sge.sh"
#     sge_up [N]             # qmaster and N execds, hosts g1 to gN (2) with two slots each
#     in_sge COMMAND...      # as the user of jobs on the submit host
#     sge_down               # at the end of a test: its daemons take seconds to end when asked
#
# Its parallel environments give one slot on each host: mpi; first, which counts the job's script as a
# task; loose, which lets a job start nothing on its other hosts.
#
# Each host is a namespace of network, mounts and host name on one bridge, with a folder of its own for
# TMPDIR: gridengine removes that after each task. All files are in $T/sge. The
# user of jobs is `games`, with a shell and $T/home there: gridengine runs no job of root's. Needs root.
SGE_HUB=() SGE_ADMIN=() SGE_DAEMONS=()

sge_missing() {
  local program
  for program in qsub qconf sge_qmaster sge_execd unshare setpriv ip; do
    PATH=$PATH:/usr/sbin:/sbin command -v "$program" >/dev/null || { echo "$program"; return; }
  done
  [ "$(id -u)" = 0 ] || echo root
}

sge_bootstrap() {
  cat <<EOT
admin_user              sgeadmin
default_domain          none
ignore_fqdn             false
spooling_method         berkeleydb
spooling_lib            libspoolb
spooling_params         $SGE_ROOT/spool/db
binary_path             /usr/sbin
qmaster_spool_dir       $SGE_ROOT/spool/qmaster
security_mode           none
listener_threads        2
worker_threads          2
scheduler_threads       1
EOT
}

sge_parallel_environment() {  # name, control_slaves, job_is_first_task
  cat <<EOT
pe_name            $1
slots              99
user_lists         NONE
xuser_lists        NONE
start_proc_args    NONE
stop_proc_args     NONE
allocation_rule    1
control_slaves     $2
job_is_first_task  $3
urgency_slots      min
accounting_summary FALSE
qsort_args         NONE
EOT
}

# sge_namespace NAME WORDS...: a namespace with that host name that WORDS start; its process in PID.
sge_namespace() {
  local name=$1
  shift
  start "sge-$name" "$@" unshare --net --mount --uts --propagation private bash -c "
    hostname $name
    ip link set lo up
    mount --bind $SGE_ROOT/hosts /etc/hosts && mount --bind $SGE_ROOT/passwd /etc/passwd
    mount -t tmpfs -o mode=1777 none $SGE_ROOT/tmp
    echo ready >$SGE_ROOT/ready-$name
    exec sleep infinity"
  wait_for 10 "[ -s '$SGE_ROOT/ready-$name' ]" || fail "no namespace: $(output "sge-$name")"
}

in_sge() { "${SGE_HUB[@]}" setpriv --reuid games --regid games --clear-groups env HOME="$T/home" "$@"; }
sge_admin() { "${SGE_ADMIN[@]}" "$@" >>"$T/sge-admin.out" 2>&1; }

sge_up() {
  local hosts=${1:-2} i name hub lack
  lack=$(sge_missing)
  [ -z "$lack" ] || skip "$lack"
  PATH=$PATH:/usr/sbin:/sbin
  ulimit -n 1024  # gridengine closes each descriptor that there can be, at each start
  export SGE_ROOT=$T/sge SGE_CELL=default SGE_QMASTER_PORT=6444 SGE_EXECD_PORT=6445 SGE_ND=1
  chmod 711 "$T"
  mkdir -p "$SGE_ROOT/default/common" "$SGE_ROOT"/spool/{qmaster/job_scripts,db,execd} "$SGE_ROOT/tmp" "$T/home"
  for name in bin lib utilbin; do
    mkdir "$SGE_ROOT/$name"
    ln -s /usr/lib/gridengine "$SGE_ROOT/$name/lx-amd64"
  done
  ln -s /usr/share/gridengine/util "$SGE_ROOT/util"
  echo g0 >"$SGE_ROOT/default/common/act_qmaster"
  sge_bootstrap >"$SGE_ROOT/default/common/bootstrap"
  { echo 127.0.0.1 localhost; for ((i = 0; i <= hosts; i++)); do echo "10.98.0.$((i + 1)) g$i"; done; } >"$SGE_ROOT/hosts"
  sed "s,^games:.*,games:x:5:60:games:$T/home:/bin/sh," /etc/passwd >"$SGE_ROOT/passwd"
  chown -R sgeadmin "$SGE_ROOT"
  mkdir -p "$T/cache"
  chown games "$T/home" "$JOB" "$T/run" "$T/state" "$T/cache"
  sge_namespace g0
  hub=$PID
  SGE_HUB=(nsenter -t "$hub" --net --mount --uts)
  SGE_ADMIN=("${SGE_HUB[@]}" setpriv --reuid sgeadmin --regid sgeadmin --clear-groups)
  "${SGE_HUB[@]}" bash -c 'ip link add br0 type bridge && ip addr add 10.98.0.1/24 dev br0 && ip link set br0 up'
  sge_admin /usr/share/gridengine/scripts/init_cluster "$SGE_ROOT" default "$SGE_ROOT/spool/db" sgeadmin ||
    fail "no cell: $(cat "$T/sge-admin.out")"
  start sge-qmaster "${SGE_ADMIN[@]}" sge_qmaster
  SGE_DAEMONS+=("$PID")
  wait_for 20 'sge_admin qconf -sh' || fail "no qmaster: $(output sge-qmaster)"
  sge_admin qconf -as g0
  "${SGE_ADMIN[@]}" qconf -sconf |
    sed "s/^min_[ug]id.*//; s/^load_report_time.*/load_report_time 00:00:02/; s,^execd_spool_dir.*,execd_spool_dir $SGE_ROOT/spool/execd,; s,^reporting_params.*,reporting_params accounting=false reporting=false flush_time=00:00:15 joblog=false sharelog=00:00:00," >"$SGE_ROOT/global"
  printf 'min_uid 0\nmin_gid 0\n' >>"$SGE_ROOT/global"
  sge_admin qconf -Mconf "$SGE_ROOT/global"
  "${SGE_ADMIN[@]}" qconf -ssconf | sed -E 's/^(schedule_interval ).*/\1 0:0:1/; s/^(flush_(submit|finish)_sec ).*/\1 1/' >"$SGE_ROOT/scheduler"
  sge_admin qconf -Msconf "$SGE_ROOT/scheduler"
  for name in "make TRUE FALSE" "smp TRUE FALSE" "mpi TRUE FALSE" "first TRUE TRUE" "loose FALSE FALSE"; do
    sge_parallel_environment $name >"$SGE_ROOT/pe"
    sge_admin qconf -Ap "$SGE_ROOT/pe"
  done
  for ((i = 1; i <= hosts; i++)); do
    sge_namespace "g$i" "${SGE_HUB[@]}"
    "${SGE_HUB[@]}" ip link add "v$i" type veth peer name eth0 netns "$PID"
    "${SGE_HUB[@]}" ip link set "v$i" master br0 up
    nsenter -t "$PID" --net bash -c "ip addr add 10.98.0.$((i + 1))/24 dev eth0 && ip link set eth0 up"
    sge_admin qconf -ah "g$i"
    start "sge-execd-g$i" nsenter -t "$PID" --net --mount --uts sge_execd
    SGE_DAEMONS+=("$PID")
  done
  EDITOR=true sge_admin qconf -aq all.q
  for name in "hostlist $(seq -s ' ' -f g%g "$hosts")" "pe_list mpi first loose" "slots 2" "shell /bin/sh" "tmpdir $SGE_ROOT/tmp" "load_thresholds NONE"; do
    sge_admin qconf -rattr queue "${name%% *}" "${name#* }" all.q
  done
  wait_for 20 "[ \"\$(\"\${SGE_ADMIN[@]}\" qstat -f | grep -c 'lx-amd64 *\$')\" = $hosts ]" ||
    fail "gridengine's hosts: $("${SGE_ADMIN[@]}" qstat -f) $(cat "$T/sge-admin.out")"
}

sge_down() {
  disown "${SGE_DAEMONS[@]}"
  kill -KILL "${SGE_DAEMONS[@]}"
}
