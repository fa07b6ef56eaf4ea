# timeout=180
# The data check of an added host: a host removed while the check hangs is released with its processes;
# after the supervisor dies during a check, the next one runs it again; --require-prepared waits for the file.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
ssh_hosts 2
mapfile -t host <"$SSH_HOSTS"
head -n 1 "$SSH_HOSTS" >"$T/one"
cat >"$T/prepare" <<END
#!/bin/bash
[ ! -e "$T/hang" ] || { echo \$\$ >>"$T/hanging"; sleep 600; }
END
chmod +x "$T/prepare"
last_hanging() { tail -n 1 "$T/hanging"; }

train -n 1 -H "$T/one" "${SSH_OPTIONS[@]}" --stop-timeout 1s --prepare-data "$T/prepare" --
say 'removed while it hangs'
touch "$T/hang"
echo "${host[1]}" >>host_worker
wait_for 20 '[ -s "$T/hanging" ]' || fail "the data check does not run"
sed -i '$d' host_worker
wait_for 10 '! alive "$(last_hanging)"' || fail "the data check still runs"
awaits ".hosts[host=${host[1]}].length=0"
[ ! -s host_worker_log ] || fail "logged"

say 'the supervisor dies meanwhile'
: >"$T/hanging"
echo "${host[1]}" >>host_worker
wait_for 20 '[ -s "$T/hanging" ]' || fail "the data check does not run"
old=$(last_hanging)
kill -KILL "$(supervisor)"
wait_for 20 '[ "$(wc -l <"$T/hanging")" = 2 ]' || fail "the data check does not run again"
wait_for 10 '! alive "$old"' || fail "the data check of the dead supervisor still runs"
rm "$T/hang"
kill -KILL -- "-$(last_hanging)" 2>/dev/null || kill -KILL "$(last_hanging)"
PATIENCE=30 changed "ADDED ${host[1]%%:*}"
worker_log once "$T/w0.jsonl"
end_job

say '--require-prepared'
rm -f "$T"/w*.jsonl prepare_data_success_*
train -n 1 -H "$T/one" "${SSH_OPTIONS[@]}" --require-prepared --
echo "${host[1]}" >>host_worker
happens prepare_waits "prepare_data_success_${SSH_ADDRESSES[1]}"
some_epochs 2
[ ! -s host_worker_log ] || fail "added without its data"
touch "prepare_data_success_${SSH_ADDRESSES[1]}"
changed "ADDED ${host[1]%%:*}"
end_job
