# For tests that run programs of python/cases.py, or have verdicts about cases; after lib.sh:
#
#     . "$(dirname "$0")/cases.sh"
#
# CASES="A B": these cases alone, in place of those that the test has. IMPORTS=N: set before; see share_imports.
export PYTHONPATH=$DT_SOURCE/kvstore/python DTKV_LIBRARY=$DT_BUILD/lib/libdtkv.so.0 OMP_NUM_THREADS=1
share_imports "${IMPORTS:-1}"
python() { "${WORKER[@]}" "$DT_SOURCE/test/e2e/python/$1.py" "${@:2}"; }

# job FOLDER OPTIONS... -- COMMAND...: a job of at most a minute; the folder gets its exit status and its output. MEANWHILE: a
# function that is called while it runs.
MEANWHILE=:
job() {
  local folder=$1 options=()
  shift
  while [ "$1" != -- ]; do
    options+=("$1")
    shift
  done
  rm -rf .dtlaunch host_worker*
  start job timeout 60 dtlaunch "${options[@]}" --max-restarts 0 "${@:2}"
  ($MEANWHILE "$folder") || true  # the verdict tells
  finished job "$PID" 70
  echo "$STATUS" >"$folder/status"
  cp "$T/job.out" "$folder/out"
  expect_nothing_left
}

# programs FILE NAME...: each as a job of two workers.
programs() {
  local file=$1 name folders=() options
  shift
  for name in ${CASES:-$@}; do
    folders+=("$T/$name")
    mkdir "$T/$name"
    options=(-n 2 -s 1)
    [[ $name != nonfinite* ]] || options+=(--refuse-nonfinite)
    job "$T/$name" "${options[@]}" -- "${WORKER[@]}" "$DT_SOURCE/test/e2e/python/$file.py" run "$name" "$T/$name"
  done
  verdicts python "$file" check "${folders[@]}"
}

# verdicts COMMAND...: it prints a line for each case, whose last word is ok.
verdicts() {
  run check "$@"
  expect_status 0
  output check
  ! grep -v ' ok$' "$T/check.out" || fail "a case is not what it should be"
}

# loses_a_server FOLDER: once the case has stepped; then it goes on, from a checkpoint.
loses_a_server() {
  local folder=$1
  wait_for 30 '[ -e "$folder/has_stepped" ]'
  kill -KILL "$(pid_of servers 1)"
  touch "$folder/goes_on"
}
