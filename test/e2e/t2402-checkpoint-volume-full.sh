# timeout=180
# The volume is full when a checkpoint is due: training continues, the reason is reported, and the
# next checkpoint is written when there is space again.
[ -n "${DT_OWN_MOUNTS-}" ] || {
  unshare -rm true 2>/dev/null || { echo "SKIPPED: no mount namespace of one's own here"; exit 77; }
  exec env DT_OWN_MOUNTS=1 unshare -rm bash "$0" "$@"
}
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
# The checkpoints lie on their own volume, so that only that one is full.
mkdir "$T/small"
mount -t tmpfs -o size=2m tmpfs "$T/small"
start job dtlaunch -n 2 -s 1 --checkpoint-every 1 "$DT_BIN/elastic_worker" --log "$T/w%i.jsonl" \
  --samples 200 --epochs 100000 --steps-per-epoch 20 --step-ms 20
JOB_PID=$PID
wait_for 30 '[ -d "$JOB/.dtlaunch" ] && [ -s "$JOB/.dtlaunch/current.json" ]' || fail "no job"
folder=$JOB/.dtlaunch/$(python3 -c 'import json; print(json.load(open(".dtlaunch/current.json"))["job"])')/checkpoints
wait_for 30 'ls -d "$folder"/epoch-?????? >/dev/null 2>&1' || fail "no checkpoint"
mount --bind "$T/small" "$folder"
head -c 2m /dev/zero >"$T/small/ballast" 2>/dev/null || true
happens checkpoint_failed 'No space left on device'
awaits '.checkpoint.trouble~No space left'
run text dtctl status
expect_output text 'No space left'
some_epochs 3
ls "$T/small" | grep -Ev '^(ballast|epoch-[0-9]+\.g[0-9]+\.partial)$' && fail "something counts that is not whole"
worker_log waits "$T/w0.jsonl" 1.0
rm "$T/small/ballast"
wait_for 30 'ls -d "$T"/small/epoch-?????? >/dev/null 2>&1' || fail "no checkpoint when there is space again"
awaits .checkpoint.trouble=
end_job
umount "$folder" "$T/small"
