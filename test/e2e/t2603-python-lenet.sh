# timeout=120 cost=12 needs=dttrain
# dttrain's LeNet in Python has dttrain's weights after 50 steps, the same bits on both workers, and trains with dttrain in
# one job.
. "$(dirname "$0")/lib.sh"
export PYTHONPATH=$DT_SOURCE/kvstore/python DTKV_LIBRARY=$DT_BUILD/lib/libdtkv.so.0
is_nightly || share_imports
most=1e-5
[ -z "${DT_TORCH_PYTHON-}" ] || most=1e-3  # another PyTorch than dttrain's rounds otherwise
files=("${WORKER[@]}" "$DT_SOURCE/test/e2e/python/lenet_files.py")
mkdir data && "${files[@]}" --make data
training=(--data data --dataset mnist --global-batch-size 64 --num-epochs 1 --no-eval --disp-batches 0)
python=("${WORKER[@]}" "$DT_SOURCE/test/e2e/python/lenet.py" --data data --load init-0001.safetensors)
# close A B MOST: the files' largest difference is at most that.
close() {
  local difference
  difference=$("${files[@]}" --compare "$1" "$2")
  say "$1 and $2 differ by at most $difference"
  python3 -c "import sys; sys.exit(not $difference <= $3)" || fail "$1 and $2 differ by $difference"
}

run init dttrain "${training[@]}" --samples 64 --lr 1e-30 --model-prefix init
expect_status 0
run cpp dtlaunch -n 2 -s 1 dttrain "${training[@]}" --model-prefix cpp
expect_status 0
run python dtlaunch -n 2 -s 1 "${python[@]}" --save python%r.safetensors
expect_status 0
close cpp-0001.safetensors python0.safetensors $most
close python0.safetensors python1.safetensors 0
! (close init-0001.safetensors python0.safetensors 1e-2) >/dev/null || fail "the weights are those of the begin"

cat >either <<END
#!/bin/sh
if [ "\$DT_RANK" = 0 ]; then exec dttrain ${training[*]} --model-prefix mixed; fi
exec ${python[*]} --with-dttrain --save mixed-python.safetensors
END
chmod +x either
run mixed dtlaunch -n 2 -s 1 ./either
expect_status 0
close mixed-0001.safetensors mixed-python.safetensors 0
close cpp-0001.safetensors mixed-python.safetensors $most
expect_nothing_left
