# timeout=420 cost=45 plain
# Random faults on four hosts with a job that grows and shrinks meanwhile (test/chaos/chaos.py): it ends
# well, with one set of weights, a log that adds up and nothing left. DT_E2E_SEED gives others.
# Every frame of the data plane is authenticated, also where worker and server are on one host.
. "$(dirname "$0")/lib.sh"
is_nightly && seconds=60 || seconds=15
: "${DT_E2E_SECONDS:=$seconds}"
start chaos python3 "$DT_SOURCE/test/chaos/chaos.py" --seed "${DT_E2E_SEED:-10}" --seconds "$DT_E2E_SECONDS" \
  --data-auth frames --build "$DT_BIN" --verbose
finished chaos "$PID" $((DT_E2E_SECONDS + 300))
expect_status 0
expect_output chaos 'clean: [0-9]+ faults'
