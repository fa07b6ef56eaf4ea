# timeout=120
# dtgpucheck: one sentence and an exit code for each defect of GPUs; and as the data check of a job.
# The driver is a fake; the machine may have a GPU or none.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
export NVML_LIBRARY=$T/libnvidia-ml.so.1
unset CUDA_VISIBLE_DEVICES
cp "$DT_BUILD/test/fake_nvml/fake_nvml.so" "$NVML_LIBRARY"
says() { printf '%s\n' "$@" >"$T/script.new" && mv "$T/script.new" "$NVML_LIBRARY.script"; }

says 'lost 1'
run lost dtgpucheck
expect_status 3
expect_output lost '^dtgpucheck: GPU 1: GPU is lost$'
[ "$(wc -l <"$T/lost.out")" = 1 ] || fail 'not one line'
run json dtgpucheck --json --gpus 0,1 --count 1
expect_status 3
python3 -c 'import json, sys; o = json.load(open(sys.argv[1])); assert o["exit_code"] == 3 and "GPU is lost" in o["why"], o' "$T/json.out" || fail "no such JSON"
says 'hang nvmlDeviceGetTemperature'
run hang dtgpucheck --timeout 1
expect_status 4
expect_output hang "^dtgpucheck: the driver's word on the GPUs did not end within 1 s: "
says 'crash nvmlInit_v2'
run crash dtgpucheck
expect_status 3
expect_output crash "^dtgpucheck: the driver's word on the GPUs: what tried it was killed by signal 6$"
for wrong in '--gpus 0,,1' '--gpus 0,1,0' '--gpus' '--count x' '--timeout 0' '--nothing'; do
  run usage dtgpucheck $wrong
  expect_status 2
done

says ''
export CUDA_VISIBLE_DEVICES=
run none dtgpucheck
expect_status 77
expect_output none '^dtgpucheck: no CUDA device'
[ "$(wc -l <"$T/none.out")" = 1 ] || fail 'not one line'

say 'a host whose GPU is lost gets no worker, and status says why'
unset CUDA_VISIBLE_DEVICES
says 'lost 0'
ssh_hosts 2
mapfile -t host <"$SSH_HOSTS"
head -n 1 "$SSH_HOSTS" >"$T/one"
cat >"$T/prepare" <<END
#!/bin/bash
[ -e "$T/strict" ] || exit 0
NVML_LIBRARY=$NVML_LIBRARY exec dtgpucheck
END
chmod +x "$T/prepare"
train -n 1 -H "$T/one" "${SSH_OPTIONS[@]}" --prepare-data "$T/prepare" --
touch "$T/strict"
echo "${host[1]}" >>host_worker
awaits ".hosts[host=${host[1]}].why~GPU 0: GPU is lost"
end_job
