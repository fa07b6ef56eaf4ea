# timeout=120 cost=20
# With servers each worker has a GPU of its own, by its slot, and LOCAL_RANK 0: also one that replaces a killed worker. With
# more workers than GPUs they begin again, and one line says so. A driver that hangs costs 5 s once, and deals none. gpus= of
# the hosts file is what a host deals; one that lacks them is refused, and the others go on.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
unset CUDA_VISIBLE_DEVICES
driver=$T/libnvidia-ml.so.1
cp "$DT_BUILD/test/fake_nvml/fake_nvml.so" "$driver"
echo 'gpus 4' >"$driver.script"
# see WORKER LOCAL_RANK [GPU...]: what a worker's environment has, by its place in dtctl status; no GPU: no list.
see() {
  local has
  has=$(tr '\0' '\n' <"/proc/$(pid_of workers "$1")/environ" | grep -E '^(CUDA_VISIBLE_DEVICES|LOCAL_RANK)=' | sort | tr '\n' ' ')
  [ "$has" = "${3+CUDA_VISIBLE_DEVICES=$3 }LOCAL_RANK=$2 " ] || fail "worker $1 sees: $has"
}
gpu() { echo "${UUIDS[$1]}"; }
train -n 4 -s 1 --env NVML_LIBRARY="$driver" --
shows '[w["gpus"] for w in s["workers"]] == [[0], [1], [2], [3]]'
mapfile -t UUIDS < <(for k in 0 1 2 3; do tr '\0' '\n' <"/proc/$(pid_of workers $k)/environ" | sed -n 's/^CUDA_VISIBLE_DEVICES=//p'; done)
[[ "${UUIDS[*]}" =~ ^GPU-.*GPU-.*GPU-.*GPU- ]] || fail "no unique ids: ${UUIDS[*]}"
for k in 0 1 2 3; do see $k 0 "$(gpu $k)"; done
kill -KILL "$(pid_of workers 1)"
members 0,2,3,4
see 3 0 "$(gpu 1)"
! grep -q 'share GPU' "$T/job.out" || fail "a warning without a reason"
say "more workers than GPUs"
printf 'localhost\nlocalhost\n' >>host_worker
members 0,2,3,4,5,6
see 4 0 "$(gpu 0)"
see 5 0 "$(gpu 1)"
wait_for 10 'grep -q "WARNING localhost: workers [0-9] and [0-9] share GPU [0-9]" "$T/job.out"' || fail "no warning"
end_job
[ "$(grep -c 'share GPU' "$T/job.out")" = 1 ] || fail "not one warning"

say "a scheduler's list; two a worker; all"
CUDA_VISIBLE_DEVICES=3,1 train -n 2 -s 1 --env NVML_LIBRARY="$driver" --
see 0 0 "$(gpu 3)"
see 1 0 "$(gpu 1)"
end_job
train -n 1 -s 1 --gpus-per-worker 2 --env NVML_LIBRARY="$driver" --
see 0 0 "$(gpu 0),$(gpu 1)"
end_job
train -n 2 -s 1 --gpus-per-worker all --env NVML_LIBRARY="$driver" --
see 1 1
end_job

say "a list that names none"
CUDA_VISIBLE_DEVICES=GPU-nobody train -n 1 -s 1 --env NVML_LIBRARY="$driver" --
wait_for 10 'grep -q "WARNING localhost: worker 0 has no GPU: CUDA_VISIBLE_DEVICES .* none of its 4" "$T/job.out"' || fail "no warning"
end_job

say "a list in the hosts file; a host that lacks what its list has"
echo 'localhost slots=2 gpus=3,1' >"$T/hosts"
train -n 2 -s 2 -H "$T/hosts" --launcher local --server-device auto --env NVML_LIBRARY="$driver" --
see 0 0 "$(gpu 3)"
see 1 0 "$(gpu 1)"
for k in 0 1; do  # the servers take turns in what is the job's
  has=$(tr '\0' '\n' <"/proc/$(pid_of servers $k)/environ" | grep -E '^(CUDA_VISIBLE_DEVICES|DT_SERVER_DEVICE)=' | sort | tr '\n' ' ')
  [ "$has" = "CUDA_VISIBLE_DEVICES=$(gpu 3),$(gpu 1) DT_SERVER_DEVICE=auto:$k " ] || fail "server $k sees: $has"
done
echo '127.0.0.2 gpus=9' >>host_worker
happens host_failed '127.0.0.2: worker 2 ended before it joined: gpus=9: this host has GPUs 0-3'
some_epochs 1
sed -i s/gpus=9/gpus=2/ host_worker
awaits workers=3
see 2 0 "$(gpu 2)"
shows '{h["host"]: h["gpus"] for h in s["hosts"]} == {"localhost": "3,1", "127.0.0.2": "2"}'
end_job
echo 'localhost gpus=0-1,9' >"$T/hosts"
run lacking dtlaunch -n 1 -s 0 -H "$T/hosts" --launcher local --env NVML_LIBRARY="$driver" true
expect_status 127
expect_output lacking 'worker 0 on localhost ended: gpus=0-1,9: this host has GPUs 0-3'

say "a driver that hangs"
echo 'hang nvmlInit_v2' >"$driver.script"
train -n 2 -s 1 --env NVML_LIBRARY="$driver" --
see 1 1
end_job
run none dtlaunch -n 1 --gpus-per-worker 0 true
expect_status 2
expect_output none 'gpus-per-worker 0: a number 1 to 1024, auto or all was expected'
