# timeout=400 cost=30 needs=dttrain
# Each snippet of Python in README.md, packaging/doc, docstrings and manuals runs as it is written while a worker joins and
# leaves: both workers and the job end with 0, and nobody complains. In CI one of each level; document_test.py runs all.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
. "$(dirname "$0")/cases.sh"

# one_joins_and_leaves FOLDER: worker 0 stays in its first epoch, and in its second one, until the file says what is to change.
one_joins_and_leaves() {
  local folder=$1 accepted
  trap 'touch "$folder/go.0" "$folder/go.1"' EXIT  # the job goes on, also where the test has failed
  wait_for 15 '[ -e "$folder/begun" ] || ! alive $PID' && [ -e "$folder/begun" ]
  echo localhost >>host_worker
  happens worker_warm 'worker 1 '
  touch "$folder/go.0"
  happens worker_added 'worker 1 '
  accepted=$(event file_accepted)
  echo localhost >host_worker
  happens file_accepted . $((accepted + 1))
}
MEANWHILE=one_joins_and_leaves

names='README.md-1 dtkv dtkv.torch.optimizer.Optimizer dtkv.torch.ddp.DDPState'
! is_nightly || names=$(python documents names)
folders=()
for name in ${CASES:-$names}; do
  folders+=("$T/$name")
  mkdir "$T/$name"
  job "$T/$name" -n 1 -s 1 --poll-interval 300ms --elastic-training-enabled -- \
    "${WORKER[@]}" "$DT_SOURCE/test/e2e/python/documents.py" run "$name" "$T/$name"
  changes >"$T/$name/changes"
  grep -h '"event":"worker_removed"' "$(story)" >"$T/$name/removed" || true
done
verdicts python documents check "${folders[@]}"
