# timeout=600 cost=60 needs=dttrain
# Models with every kind of parameter and buffer at each level, with other seeds on each worker and sample counts around
# multiples of the world: state_dict() is the same bits on all workers after the inner loop, at each epoch and after
# epochs(), and what one process has that trains with the joined batches. Nightly: each kind alone, too.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
IMPORTS=3  # each worker has another order of sets
. "$(dirname "$0")/cases.sh"

# Part, level, world and samples. A worker's batch has 2 samples.
cases=(
  all/L1/2-lost/7 all/L1/3/13 all/L1/1-3-2/12 all/async/2/9
  all/L2/3/2 all/L2/1-3-2/11 all/L3/2/8 all/L3/3/13
)
if is_nightly; then
  cases+=(all/L1/2/7 all/{async,L2,L3}/2-lost/7 all/async/1-3-2/13 all/L3/1-3-2/13 all/L1/2/1 all/L2/2/9)
  for part in $(python zoo parts); do
    cases+=("$part"/{L1,L2}/1-3-2/13 "$part/async/3/13")
    [ "$part" = Unfrozen ] || cases+=("$part/L3/3/13")  # there an error: loops.py has it
  done
fi

# grows_and_shrinks FOLDER: the worker that it takes away is the one that the program kills.
grows_and_shrinks() {
  awaits --start 'epoch>=1'
  printf 'localhost\nlocalhost\n' >>host_worker
  awaits '.workers[state=WARM].length=2'
  touch "$1/grows"
  awaits 'epoch>=3'
  printf 'localhost\nlocalhost\n' >host_worker
  awaits '.workers[id=2,leaves_next=true].pid>0'
  touch "$1/shrinks"
}

folders=()
for case in ${CASES:-${cases[@]}}; do
  folder=$T/${case//\//.}
  folders+=("$folder")
  mkdir "$folder"
  echo "zoo/$case" >"$folder/case"
  IFS=/ read -r _ _ world _ <<<"$case"
  size=(-n "$world" -s 1) MEANWHILE=:
  case $world in
    1-3-2) size=(-n 1 -s 2 --elastic-training-enabled --poll-interval 300ms) MEANWHILE=grows_and_shrinks ;;
    2-lost) size=(-n 2 -s 2 --elastic-training-enabled --checkpoint-every 1) MEANWHILE=loses_a_server ;;
  esac
  # The mask of -inf is no gradient.
  job "$folder" "${size[@]}" --refuse-nonfinite -- "${WORKER[@]}" "$DT_SOURCE/test/e2e/python/zoo.py" train "zoo/$case" "$folder"
done
verdicts python zoo check "${folders[@]}"
