# timeout=180 cost=15
# Each process of a running job has a row in packaging/doc/processes.md, with its threads: of a job over ssh with a server,
# GPUs and a gate, and of one on this machine with a holder. Those of Slurm are in t3106.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
TABLE=("$PYTHON" "$DT_SOURCE/test/e2e/processes.py" "$DT_SOURCE/packaging/doc/processes.md" "$T")
fit() {  # the table that `start table` looks into
  finished table "$PID" 70
  output table
  expect_status 0
}
new_hosts 3  # those of ssh_hosts have our programs already, which a thread packs
head -n 2 "$SSH_HOSTS" >"$T/hosts"
cp "$DT_BUILD/test/fake_nvml/fake_nvml.so" "$T/libnvidia-ml.so.1"

# A host is checked within a few milliseconds, but it asks an interpreter for its version.
cat >"$T/python3" <<END
#!/bin/sh
[ "\$1" != --version ] || exec sleep 1  # how long a check lasts, not a wait
exec $DT_BIN/elastic_worker "\$@"
END
chmod +x "$T/python3"

say "over ssh, and one more host passes the gate"
TRAIN_COMMAND="$T/python3" train -n 2 -s 1 -H "$T/hosts" "${SSH_OPTIONS[@]}" --preflight quick --checkpoint-every 1 --env NVML_LIBRARY="$T/libnvidia-ml.so.1" --
awaits 'checkpoint>=1'
start table "${TABLE[@]}" dtlaunch dtsupervisor dtsuper-volume dtsuper-gate dtserver 'dtagent --attach' 'dtagent --daemon' \
  dtagent-guard dtagent-gpus 'dtagent --check' 'a worker'
sed -n 3p "$SSH_HOSTS" >>host_worker
fit
end_job

say "on this machine, kept by a holder"
train -n 1 --
start hold dtagent --hold --job "$(basename "$(readlink -f "$(story)" | xargs dirname)")" --host localhost
hold=$PID
start table "${TABLE[@]}" 'dtagent --hold' 'dtagent --attach'
fit
end_job
finished hold "$hold" 10
expect_status 0
