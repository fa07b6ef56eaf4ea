# timeout=180 cost=25 schedulers
# One job by Open MPI's mpirun, and one that spans ssh, mpirun and kubectl: workers join and leave, starters are killed.
# kubectl is a stand-in that checks its words, enters no pod and starts the shell here: it shows the words, not Kubernetes.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
command -v mpirun >/dev/null || skip "mpirun is not installed"
# cut_off HOST PID: its starter is killed; the host is attached again, and nothing is restarted.
cut_off() {
  local before
  before="$(pids_of workers) $(pids_of servers)"
  kill -KILL "$2"
  happens link_down "$1"
  awaits "host $1 up"
  [ "$(pids_of workers) $(pids_of servers)" = "$before" ] || fail "something was restarted"
}

# Other tests may run mpirun, too.
own_mpirun() { pgrep -P "$(supervisor)" -f '^mpirun -np 1 --host localhost'; }

say "by mpirun: 1 -> 2 -> 1 workers; its mpirun, its supervisor and its agent are killed"
echo localhost >"$T/here"
train -n 1 -H "$T/here" --launcher mpi --
echo localhost >>host_worker
changed "ADDED localhost"
cut_off localhost "$(own_mpirun)"
before="$(pids_of workers) $(pids_of servers)"
kill -KILL "$(supervisor)"
awaits "host localhost up"
[ "$(pids_of workers) $(pids_of servers)" = "$before" ] || fail "something was restarted"
echo localhost >host_worker
changed "ADDED localhost" "REMOVED localhost"
kill_agent_of localhost
mpirun=$(own_mpirun)
end_job
! alive "$mpirun" || fail "mpirun is left"

say "dtlaunch and its supervisor are killed: nothing is left"
rm -rf .dtlaunch host_worker* "$T"/w*.jsonl
train -n 1 -H "$T/here" --launcher mpi --orphan-timeout 3s --
kill -KILL "$JOB_PID" "$(supervisor)"
expect_nothing_left

say "one job by ssh, mpirun and kubectl"
mkdir "$T/bin"
cat >"$T/bin/kubectl" <<'EOT'
#!/bin/sh
echo "$*" >>"$KUBECTL_WORDS"
echo $$ >"$KUBECTL_WORDS.pid"
[ "$*" = "exec -i -n team trainer-0 -c main -- /bin/sh" ] || { echo "error: pods \"$5\" not found" >&2; exit 1; }
exec /bin/sh
EOT
chmod +x "$T/bin/kubectl"
export PATH=$T/bin:$PATH KUBECTL_WORDS=$T/kubectl.words
ssh_hosts 1
cp "$SSH_HOSTS" "$T/hosts"
cd "$(mktemp -d "$T/job.XXXXXX")"
JOB=$PWD
rm -f "$T"/w*.jsonl
remote=$(cut -d' ' -f1 "$T/hosts")
train -n 1 -H "$T/hosts" "${SSH_OPTIONS[@]}" --pod-namespace team --pod-container main --
echo 'localhost via=mpi' >>host_worker
changed "ADDED localhost"
echo 'trainer-0 via=kubernetes' >>host_worker
changed "ADDED localhost" "ADDED trainer-0"
members 0,1,2
cut_off trainer-0 "$(cat "$KUBECTL_WORDS.pid")"
echo 'trainer-9 via=kubernetes' >>host_worker
happens host_failed 'pods .*trainer-9.* not found'
sed -i '/via=mpi/d; /trainer-9/d' host_worker
changed "ADDED localhost" "ADDED trainer-0" "REMOVED localhost"
members 0,2
worker_log once "$T/w0.jsonl"
grep -qx 'exec -i -n team trainer-0 -c main -- /bin/sh' "$KUBECTL_WORDS" || fail "kubectl's words: $(cat "$KUBECTL_WORDS")"
end_job
