# timeout=200 cost=30 schedulers nightly
# Containers as hosts, by --rsh with podman exec: a worker joins, a podman exec is killed, and a container is killed and
# started again. At the end nothing runs in them but what they were started with.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
command -v podman >/dev/null || skip podman
[ "$(id -u)" = 0 ] || skip root

# Files of containers are in the test's folder, where another podman does not look.
for runtime in crun runc ''; do
  command -v "${runtime:-podman}" >/dev/null || continue
  cat >"$T/podman" <<END
#!/bin/sh
exec podman --root $T/containers --runroot $T/containers/run --storage-driver vfs --cgroup-manager cgroupfs \
  --events-backend none ${runtime:+--runtime $runtime} "\$@"
END
  chmod +x "$T/podman"
  # container NAME COMMAND...: on this machine's network, with its programs and the test's folder.
  container() {
    local name=$1
    mkdir -p "$T/roots/$name/root"
    ln -sfn usr/bin "$T/roots/$name/bin" && ln -sfn usr/lib "$T/roots/$name/lib" && ln -sfn usr/lib64 "$T/roots/$name/lib64"
    "$T/podman" run -d --name "$name" --network host --ulimit nofile=4096:4096 --ulimit nproc=4096:4096 -v /usr:/usr:ro \
      -v "$DT_BUILD:$DT_BUILD:ro" -v "$JOB:$JOB" -v "$T:$T" --rootfs "$T/roots/$name" "${@:2}" >"$T/run-$name.out" 2>&1
  }
  "$T/podman" rm -f -t 0 first >/dev/null 2>&1 || true
  ! container first /bin/sleep infinity || break
  [ -n "$runtime" ] || skip "podman run: $(output run-first)"
done
remove_containers() { "$T/podman" rm -f -t 0 -a >/dev/null 2>&1 || true; }
trap 'status=$?; set +e; remove_containers; (exit $status); _cleanup' EXIT
for name in w1 w2 w3; do container $name /bin/sleep infinity || fail "$(output run-$name)"; done

printf '%s\n' w1 w2 >"$T/hosts"
train -n 2 -H "$T/hosts" --rsh "$T/podman exec -i {host} {command}" --interface lo --
echo w3 >>host_worker
changed 'ADDED w3'
members 0,1,2

say 'a podman exec is killed'
before=$(pids_of workers)
kill -KILL $(pgrep -f '^podman .* exec -i w2 ')
happens link_down w2
awaits 'host w2 up'
[ "$(pids_of workers)" = "$before" ] || fail 'a worker was restarted'

say 'a container is killed; it is started again'
"$T/podman" kill -s KILL w3 >/dev/null
awaits workers=2
some_epochs 2
"$T/podman" start w3 >/dev/null
PATIENCE=60 awaits workers=3
worker_log once "$T/w0.jsonl"

say 'the job ends'
dtctl stop >"$T/stop.out" 2>&1 || fail "dtctl stop: $(output stop)"
finished dtlaunch "$JOB_PID" 20
# A container without an init keeps what has ended: [name].
for name in w1 w2 w3; do
  wait_for 10 "[ \"\$('$T/podman' top $name args | sed -n 's/ *\$//; 2,\${/^\[/!p}')\" = '/bin/sleep infinity' ]" || fail "left in $name: $("$T/podman" top $name)"
done
