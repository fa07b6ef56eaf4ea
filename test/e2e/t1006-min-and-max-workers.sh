# timeout=180
# --min-workers and --max-workers: hosts beyond the maximum wait until others leave; a job below the minimum waits
# at the boundary, for its newcomer or for its end.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
ssh_hosts 4
train -n 2 -H "$SSH_HOSTS" "${SSH_OPTIONS[@]}" --max-workers 3 --
mapfile -t host <"$SSH_HOSTS"
printf '%s\n' "${host[2]}" "${host[3]}" >>host_worker
changed "ADDED ${SSH_ADDRESSES[2]}"
happens beyond_max_workers "beyond --max-workers 3, and started when others go: ${host[3]}"
awaits ".file.beyond_limit=${host[3]}"
run why dtctl why "${host[3]}"
expect_output why 'beyond --max-workers 3: '
run status dtctl status
expect_output status "beyond --max-workers 3, started when others go: ${host[3]}"
some_epochs 2
members 0,1,2
sed -i 3d host_worker
changed "ADDED ${SSH_ADDRESSES[2]}" "ADDED ${SSH_ADDRESSES[3]}" "REMOVED ${SSH_ADDRESSES[2]}"
members 0,1,3
end_job

# loses_one NAME OPTIONS...: a job of two whose second worker is killed in epoch 3.
loses_one() {
  local name=$1
  shift
  run "$name" timeout 90 dtlaunch -n 2 --min-workers 2 "$@" "$DT_BIN/elastic_worker" --log "$T/$name%i.jsonl" \
    --samples 200 --epochs 8 --steps-per-epoch 20 --step-ms 20 --crash-at 3:9 --victim 1
  expect_output "$name" 'epoch 3 goes on with worker 0$'
  expect_output "$name" 'epoch 4 waits: it has 1 of at least 2 workers \(--min-workers\)'
  ! grep -q 'begins with 1 worker' "$T/$name.out" || fail "an epoch began with one worker"
  expect_output "$name" 'lost: .*below-min-workers [0-9.]+ s'
  expect_nothing_left
}
loses_one replaced
expect_status 0
expect_output replaced 'epoch [4-7] begins with 2 workers: worker 2 \(.*\) has joined'
loses_one alone --min-workers-timeout 1 --max-restarts 0
expect_status 71
expect_output alone 'it has 1 of at least 2 workers \(--min-workers\) for 1 s'
