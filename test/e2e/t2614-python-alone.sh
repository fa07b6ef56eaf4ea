# timeout=300 cost=20 needs=dttrain
# A program alone and as a job of one worker has the same bits at every place where it reads its state, or ends with the same
# error: the models of zoo.py at each level, and the loops of loops.py. Nightly: all loops.
. "$(dirname "$0")/lib.sh"
export PYTHONHASHSEED=0
. "$(dirname "$0")/cases.sh"
models=(zoo/all/L1/1/7 zoo/all/L2/1/7 zoo/all/L3/1/7)
names=(k_fold gan clamping step_counted)
! is_nightly || read -ra names <<<"$(python loops names)"

python zoo alone "$T/alone" "${models[@]}"
python loops alone "$T/alone" "${names[@]}"
# beside FOLDER COMMAND...: the same program as a job.
beside() {
  mkdir "$T/alone/$1.job"
  job "$T/alone/$1.job" -n 1 -s 1 -- "${WORKER[@]}" "$DT_SOURCE/test/e2e/python/$2.py" "${@:3}" "$T/alone/$1.job"
}
for model in "${models[@]}"; do beside "${model//\//.}" zoo train "$model"; done
for name in "${names[@]}"; do beside "$name" loops run "$name"; done
folders=("${models[@]//\//.}" "${names[@]}")
verdicts python loops same "${folders[@]/#/$T/alone/}"
