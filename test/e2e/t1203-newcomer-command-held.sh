# timeout=240 cost=25 nightly
# A newcomer whose command exits at once, never reaches its first boundary, or is killed while it
# warms up.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
ssh_hosts 3
mapfile -t host <"$SSH_HOSTS"
cat >"$T/worker" <<END
#!/bin/bash
[ "\$DT_NEWCOMER" = 0 ] || case \$(cat "$T/mode") in
  exits) echo 'no licence' >&2; exit 4 ;;
  never) set -- "\$@" --never-boundary ;;
  warms) (sleep 1; kill -KILL \$\$) & set -- "\$@" --warm-delay-s 600 ;;  # how long it warms before it dies, not a wait
esac
exec "$DT_BIN/elastic_worker" "\$@"
END
chmod +x "$T/worker"
TRAIN_COMMAND=$T/worker train -n 2 -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" --start-timeout 6s --
stages=('exits ended before it joined: exit code 4')
! is_nightly || stages+=('never did not become ready within 6 s' 'warms ended before it joined: .*signal 9')
for stage in "${stages[@]}"; do
  say "$stage"
  echo "${stage%% *}" >"$T/mode"
  held "${host[2]}" "${stage#* }"
  echo good >"$T/mode"
  joins_and_leaves "${host[2]}"
done
[ "$(wc -l <host_worker_log)" = $((2 * ${#stages[@]})) ] || fail "not two lines for each stage in host_worker_log"
end_job
