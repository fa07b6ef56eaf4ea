# timeout=900 cost=40 needs=dttrain
# dt.Job's weights after two epochs have the same bits whether its exchange overlaps with backward and the next forward or not,
# and the bits that bits.txt has from before it could: a diagonal of loops, layers, optimizers and worlds. Nightly: the whole
# table. NOTE=1: writes the weights without overlap to bits.txt.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/elastic.sh"
. "$(dirname "$0")/cases.sh"

cases=(plain/all/sgd/1 plain/all/adam/3 average/all/momentum/2 accumulate/all/momentum/2 clip_value/all/momentum/2
  without_backward/all/momentum/2 killed/all/momentum/2 server_lost/all/momentum/2 mixed/all/momentum/2)
hows=(on)
if is_nightly || [ -n "${NOTE-}" ]; then read -ra cases <<<"$(python bits cases)"; fi
if is_nightly || ! python bits is-known; then hows+=(off); fi
[ -z "${NOTE-}" ] || hows=(off)

folders=()
for case in ${CASES:-${cases[@]}}; do
  for how in "${hows[@]}"; do
    folder=$T/${case//\//-}.$how
    folders+=("$folder")
    mkdir "$folder"
    echo "$case" >"$folder/case"
    size=(-n "${case##*/}" -s 2 --deterministic) MEANWHILE=:
    case $case in
      killed/*) size+=(--elastic-training-enabled) ;;
      server_lost/*) size+=(--elastic-training-enabled --checkpoint-every 1) MEANWHILE=loses_a_server ;;
    esac
    words=()
    [ "$how" = on ] || words=(env DT_OVERLAP=0)
    job "$folder" "${size[@]}" -- "${words[@]}" "${WORKER[@]}" "$DT_SOURCE/test/e2e/python/bits.py" run "$case" "$folder"
  done
done
if [ -n "${NOTE-}" ]; then
  "$PYTHON" "$DT_SOURCE/test/e2e/python/bits.py" note "${folders[@]}"
else
  verdicts python bits check "${folders[@]}"
fi
