# timeout=150
# A command that dies in every epoch: restarts that lead nowhere end the job with code 70.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
run futile timeout 100 dtlaunch -n 1 --max-restarts 100 --max-futile-restarts 3 "$DT_BIN/elastic_worker" \
  --log "$T/w%i.jsonl" --samples 200 --epochs 5 --steps-per-epoch 20 --crash-at 1:3
expect_status 70
expect_output futile '3 restarts and no epoch completed between them'
[ "$(event worker_died)" = 4 ] || fail "it died $(event worker_died) times"
expect_nothing_left
