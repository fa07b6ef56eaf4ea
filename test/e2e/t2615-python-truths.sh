# timeout=400 cost=30 needs=dttrain
# What a program of two workers has in the end, or is told where dtkv.torch does not do what the program says: equal workers,
# or a sentence with the remedy. Nightly: the others of a kind, too.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/cases.sh"
names=(saves_l1 saves_async_loader flipped_L2 skips_a_batch one_sample uneven_with_a_schedule_L3 unlike_lengths without_step
  without_batches)
! is_nightly || read -ra names <<<"$(python truths names)"
programs truths "${names[@]}"
