# timeout=120 needs=dttrain
# Two workers train with and without overlap: the same weights, to the last bit.
. "$(dirname "$0")/lib.sh"
for network in lenet resnet; do
  for how in "" --no-overlap; do
    run "train$how" dtlaunch -n 2 --deterministic dttrain --network $network --num-layers 8 --dataset generated \
      --samples 330 --batch-size 16 --num-epochs 2 --no-eval $how --model-prefix "$T/$network$how"
    expect_status 0
  done
  # An odd number of samples: the last step of an epoch is a short one.
  cmp "$T/$network-0002.safetensors" "$T/$network--no-overlap-0002.safetensors" || fail "$network: the weights differ"
  ! cmp -s "$T/$network-0001.safetensors" "$T/$network-0002.safetensors" || fail "$network did not learn"
done
