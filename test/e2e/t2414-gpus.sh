# timeout=120
# dtctl status shows the GPUs that a host's driver reports next to the workers that see them; a lost GPU is named
# with its host, also in the events. The driver is a fake that reports a file's content. A server reports its compute
# device.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
driver=$T/libnvidia-ml.so.1
cp "$DT_BUILD/test/fake_nvml/fake_nvml.so" "$driver"
says() { printf '%s\n' "$@" >"$T/script.new" && mv "$T/script.new" "$driver.script"; }
says ''
train -n 2 -s 1 --server-device auto --env NVML_LIBRARY="$driver" --env CUDA_VISIBLE_DEVICES=1 --

shows '[(g["host"], g["index"], g["workers"], g["trouble"]) for g in s["gpus"]] == [("localhost", 0, [], []), ("localhost", 1, [0, 1], [])]'
shows '[w["gpus"] for w in s["workers"]] == [[1], [1]]'
awaits '.gpus[index=1].busy_percent=93' ".gpus[index=1].memory_used=$((20 << 30))" '.gpus[index=1].power_w=512.5'
shows 's["servers"][0]["device"] in ("cpu", "cuda:0") and s["servers"][0]["device_note"]'
dtctl status >"$T/text.out"
expect_output text '^SERVER +HOST +STATE +ADDRESS +DEVICE$'
expect_output text '^0 +localhost +listening .* port [0-9]+ +(cpu, .*CUDA|cuda:0, )'
expect_output text '^1 +localhost +Fake GPU +0,1 +93 % +20.0/80.0 GiB +61 C +512 W +-$'

says 'xid 1 45'
happens gpu_program_error 'GPU 1 on localhost: Xid 45: .*killed'
shows '[g["trouble"] for g in s["gpus"]] == [[], []]'
says 'lost 1'
happens gpu_trouble 'GPU 1 on localhost: GPU is lost'
awaits '.gpus[index=1].trouble=GPU is lost'
dtctl status >"$T/text.out"
expect_output text '^1 +localhost +Fake GPU .* GPU is lost$'
expect_output text '^0 +localhost +Fake GPU +- +93 % .* -$'

say "a driver that holds whoever asks it: training goes on, and the job ends as ever"
says 'hang nvmlDeviceGetTemperature'
some_epochs 2
end_job
