# timeout=300 cost=40 needs=dttrain
# Training loops as people write them, as a job of two workers: they end with what one process has that trains by torch with
# the joined batches, or in the sentence that the loop names. Nightly: the others of a kind, too.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/cases.sh"
names=(k_fold build_wrap_load gan_ahead unfreezing clamping nonfinite all_reduce_each_step checkpoints step_counted tokens_l3)
! is_nightly || read -ra names <<<"$(python loops names)"
programs loops "${names[@]}"
