# timeout=700 cost=185 schedulers
# --fleet kubernetes:dt-workers with a real API server and the shipped manifests, for a job in Python; pods are namespaces, each with
# its own address, whose first process is the manifest's command. kubectl is the real one with the shipped service account's rights;
# only `exec` enters the namespaces. scripts/kubernetes-api build makes the API server, once.
. "$(dirname "$0")/netns.sh" && own_network "$@"
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
has_torch || skip "$PYTHON has no PyTorch"
export PYTHONPATH=$DT_SOURCE/kvstore/python DTKV_LIBRARY=$DT_BUILD/lib/libdtkv.so.0 OMP_NUM_THREADS=1
TRAIN_COMMAND=("$PYTHON" "$DT_SOURCE/test/e2e/python/job.py")
api="$DT_SOURCE/scripts/kubernetes-api"
home=${DT_KUBERNETES:-$HOME/.cache/dtlaunch/kubernetes}
[ -x "$home/bin/kube-apiserver" ] || skip "scripts/kubernetes-api build has not run"
K=$T/kubernetes
trap 'status=$?; set +e; "$api" down "$K"; (exit $status); _cleanup' EXIT
ip link set lo up
ip link add pods address 02:00:0a:4f:00:01 type bridge # not that of a port, which may go
ip address add 10.79.0.1/24 dev pods
ip link set pods up
ip route add default dev pods # whose address the API server takes for its own
start api env XDG_CACHE_HOME="$HOME/.cache" "$api" up "$K" $((20000 + $$ % 4000 * 3))
finished api "$PID" 120
export KUBECONFIG=$K/kubeconfig
say "the manifests are accepted; of 1.20, before policy/v1"
kubectl kustomize "$DT_SOURCE/packaging/kubernetes" | sed 's,policy/v1$,policy/v1beta1,' >all.yaml
run apply kubectl apply -f all.yaml
output apply
expect_status 0
for file in storage-efs storage-fsx data-s3; do
  run apply kubectl apply --dry-run=server -f "$DT_SOURCE/packaging/kubernetes/$file.yaml"
  output apply
  expect_status 0
done
wait_for 20 'kubectl get secret -o name | grep -q dt-master-token'
token=$(kubectl get "$(kubectl get secret -o name | grep dt-master-token)" -o 'jsonpath={.data.token}' | base64 -d)
sed "s/admin-token/$token/" "$K/kubeconfig" >"$K/master"
mkdir "$K/pods" "$T/bin"
start kubelet "$DT_SOURCE/test/fleet/kubelet.py" "$K/kubeconfig" "$K/pods"
KUBELET=$PID
real=$(command -v kubectl)
cat >"$T/bin/kubectl" <<END
#!/bin/bash
export KUBECONFIG=$K/master
[ "\$1" = exec ] || exec '$real' "\$@"
[[ "\$*" =~ ^exec\ -i\ ([-a-z0-9]+)\ --\ (.*) ]] || { echo "strange words: \$*" >&2; exit 1; }
pid=\$(cat "$K/pods/\${BASH_REMATCH[1]}.pid" 2>/dev/null) || { echo "Error from server (NotFound): pods \"\${BASH_REMATCH[1]}\" not found" >&2; exit 1; }
exec env XDG_RUNTIME_DIR="$K/pods/\${BASH_REMATCH[1]}" nsenter -t "\$pid" -p -m -n -- \${BASH_REMATCH[2]}
END
chmod +x "$T/bin/kubectl"
as_admin() { "$real" "$@"; }
has_pods() { WANT=$* wait_for 30 '[ "$(as_admin get pods -l app=dt-workers -o name | cut -d/ -f2 | paste -sd " ")" = "$WANT" ]' || fail "pods are not $*: $(as_admin get pods)"; }
has_pods dt-workers-0 dt-workers-1
wait_for 20 '[ -e "$K/pods/dt-workers-1.pid" ]'
printf 'dt-workers-0\ndt-workers-1\n' >hosts
export PATH=$T/bin:$PATH
say "the provider speaks the protocol"
run conforms python3 "$DT_SOURCE/test/fleet/conformance.py" --machines 2 python3 "$DT_SOURCE/supervisor/fleet/providers/kubernetes.py" dt-workers
output conforms
expect_status 0
as_admin scale statefulset dt-workers --replicas=2 >/dev/null
has_pods dt-workers-0 dt-workers-1
wait_for 20 '[ "$(ls "$K"/pods/*.pid | wc -l)" = 2 ]'

train -n 2 -s 1 -H hosts --launcher kubernetes --notice-grace 60s --notice-margin 10s --fleet kubernetes:dt-workers --
members 0,1
awaits '.fleet.text ~ ^2 asked for, 2 here, 0.[0-9] machine-hours since they came$'
say "kubectl scale to 5: they join; to 2: the highest leave before their pods end; to 3"
as_admin scale statefulset dt-workers --replicas=5 >/dev/null
members 0,1,2,3,4
as_admin scale statefulset dt-workers --replicas=2 >/dev/null
members 0,1
has_pods dt-workers-0 dt-workers-1
wait_for 20 '[ "$(changes | tail -n 3 | cut -d" " -f2- | sort | paste -sd,)" = "REMOVED dt-workers-2,REMOVED dt-workers-3,REMOVED dt-workers-4" ]' || fail "$(changes)"
as_admin scale statefulset dt-workers --replicas=3 >/dev/null
awaits workers=3

say "dtctl grow and shrink"
run grow dtctl grow 2
output grow
expect_output grow 'statefulset dt-workers: 3 -> 5 replicas'
awaits workers=5
dtctl shrink 2
awaits workers=3
has_pods dt-workers-0 dt-workers-1 dt-workers-2

say "the API server is killed: nothing changes; it comes back, and what was wished meanwhile is done"
kill -KILL "$(<"$K/api.pid")"
awaits '.fleet.trouble ~ .'
some_epochs 5
awaits workers=3
start again env XDG_CACHE_HOME="$HOME/.cache" "$api" start "$K"
finished again "$PID" 120
as_admin scale statefulset dt-workers --replicas=4 >/dev/null
awaits workers=4

say "the API server is silent for a minute: nothing changes, and what was wished meanwhile is done"
kill -STOP "$(<"$K/api.pid")"
SILENT=$SECONDS
awaits '.fleet.trouble ~ no answer'
wait_for 60 '[ $((SECONDS - SILENT)) -ge 60 ]'
awaits workers=4
some_epochs 2
kill -CONT "$(<"$K/api.pid")"
as_admin scale statefulset dt-workers --replicas=3 >/dev/null
PATIENCE=90 awaits workers=3
as_admin scale statefulset dt-workers --replicas=4 >/dev/null
PATIENCE=90 awaits workers=4

say "a pod is deleted: its worker leaves before it ends, and its successor joins"
added() { changes | grep -c "ADDED $1\$" || true; }
before=$(added dt-workers-3)
as_admin delete pod dt-workers-3 --wait=false >/dev/null
wait_for 30 '[ "$(added dt-workers-3)" -gt "$before" ]' || fail "$(changes)"
changes | tail -n 2 | cut -d" " -f2- | paste -sd, | grep -qx 'REMOVED dt-workers-3,ADDED dt-workers-3' || fail "$(changes)"
event worker_crashed | grep -qx 0 || fail "a worker was killed"

say "a base pod is deleted and is back under its name: its place is filled"
as_admin delete pod dt-workers-1 --wait=false >/dev/null
wait_for 30 '[ "$(added dt-workers-1)" = 1 ]' || fail "$(changes)"
awaits workers=4

say "two pods are evicted at once: the budget lets one go, and its worker has left by then"
evict() {
  as_admin create --raw "/api/v1/namespaces/default/pods/$1/eviction" -f - \
    <<<"{\"apiVersion\": \"policy/v1beta1\", \"kind\": \"Eviction\", \"metadata\": {\"name\": \"$1\", \"namespace\": \"default\"}}"
}
before=$(added dt-workers-2)
wait_for 20 '[ "$(as_admin get pdb dt-workers -o "jsonpath={.status.disruptionsAllowed}")" = 1 ]' || fail "$(as_admin get pdb)"
evict dt-workers-2 >/dev/null
run second evict dt-workers-3
[ "$STATUS" != 0 ] || fail "both may go"
expect_output second 'disruption budget'
wait_for 30 '[ "$(added dt-workers-2)" -gt "$before" ]' || fail "$(changes)"
awaits workers=4
event worker_crashed | grep -qx 0 || fail "a worker was killed"

say "etcd forgets its history: what comes afterwards is seen"
revision=$(as_admin get --raw '/api/v1/namespaces/default/pods?limit=1' | python3 -c 'import json, sys; print(json.load(sys.stdin)["metadata"]["resourceVersion"])')
curl -sf "http://127.0.0.1:$(($(<"$K/port") + 1))/v3/kv/compaction" -d "{\"revision\": \"$revision\", \"physical\": true}" >/dev/null
as_admin scale statefulset dt-workers --replicas=5 >/dev/null
awaits workers=5

say "two growers at once: each is told what came of it"
pids=()
for i in 1 2; do
  dtctl grow 1 >"$T/grow.$i" 2>&1 &
  pids+=($!)
done
grown=0
for pid in "${pids[@]}"; do ! wait "$pid" || grown=$((grown + 1)); done
[ $grown -ge 1 ] || fail "none grows: $(cat "$T"/grow.?)"
awaits workers=$((5 + grown))
dtctl shrink $((1 + grown))
awaits workers=4
has_pods dt-workers-0 dt-workers-1 dt-workers-2 dt-workers-3

# verbs RULE VERB...: of the Role's rules, by their number.
verbs() {
  local value
  printf -v value '"%s", ' "${@:2}"
  as_admin patch role dt-master --type=json -p "[{\"op\": \"replace\", \"path\": \"/rules/$1/verbs\", \"value\": [${value%, }]}]" >/dev/null
}
say "a right is missing: it is named, and the job goes on"
verbs 0 get watch
awaits '.fleet.trouble ~ cannot list resource'
some_epochs 3
awaits workers=4
verbs 0 get list watch
PATIENCE=90 awaits '.fleet.text ~ ^4 asked for, 4 here'
verbs 3 get
run grow dtctl grow 1
expect_status 1
expect_output grow 'cannot update resource .statefulsets/scale.'
verbs 3 update
run grow dtctl grow 1
expect_status 1
expect_output grow 'cannot get resource .statefulsets/scale.'
verbs 3 get update
say "without the watch it looks each half minute"
verbs 0 get list
as_admin scale statefulset dt-workers --replicas=5 >/dev/null
PATIENCE=40 awaits workers=5
as_admin scale statefulset dt-workers --replicas=4 >/dev/null
PATIENCE=40 awaits workers=4
dtctl stop >/dev/null
finished job "$JOB_PID" 30
python3 "$DT_SOURCE/test/e2e/python/audit.py" "$T"/w*.jsonl >"$T/audit.out" || fail "audit: $(output audit)"
say "$(output audit)"
! grep -shE 'Warning|Traceback|Error' "$JOB"/.dtlaunch/*/logs/worker-*.log || fail "a worker complains"
has_pods dt-workers-0 dt-workers-1 dt-workers-2 dt-workers-3
kill -TERM "$KUBELET"
"$api" down "$K"
expect_nothing_left
