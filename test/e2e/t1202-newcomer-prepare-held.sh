# timeout=240 cost=25 nightly
# A newcomer whose data check hangs, and one whose data check fails.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
ssh_hosts 4
mapfile -t host <"$SSH_HOSTS"
cat >"$T/prepare" <<END
#!/bin/bash
[ ! -e "$T/hang" ] || sleep 600
[ ! -e "$T/fail" ] || { echo 'the disk is full'; exit 3; }
END
chmod +x "$T/prepare"
train -n 2 -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" --prepare-data "$T/prepare" --prepare-timeout 2s --
if is_nightly; then
  say 'hanging'
  touch "$T/hang"
  held "${host[2]}" 'prepare-data failed: not done within 2 s'
  rm "$T/hang"
  joins_and_leaves "${host[2]}"
  [ -e "prepare_data_success_${SSH_ADDRESSES[2]}" ] || fail "no mark of the data check"
fi
say 'failing'
touch "$T/fail"
held "${host[3]}" 'prepare-data failed: exit code 3.*the disk is full'
# Between two tries it is on its way for a moment.
wait_for 10 'dtctl why "${SSH_ADDRESSES[3]}" >"$T/why.out"; grep -Eq "Next try: number |PREPARING" "$T/why.out"' ||
  fail "neither cooling nor preparing: $(output why)"
expect_output why "Last failure: prepare-data failed: exit code 3.*the disk is full"
expect_output why "To pass: --prepare-data has to exit with 0"
[ ! -e "prepare_data_success_${SSH_ADDRESSES[3]}" ] || fail "a mark of a data check that failed"
rm "$T/fail"
joins_and_leaves "${host[3]}"
is_nightly && lines=4 || lines=2
[ "$(wc -l <host_worker_log)" = $lines ] || fail "not $lines lines in host_worker_log"
end_job
