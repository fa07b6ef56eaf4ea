# timeout=300 cost=55 nightly plain
# The same promise with mnist.py on three sshd hosts: a worker in Python joins and leaves, with the wheel alone.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/quickstart.sh"
has_torch || skip "no PyTorch here"
quickstart --ssh --with torch --generated --samples 3500 --epochs 20
[ -s "$WORK/job/mnist.pt" ] || fail "no weights"
expect_output quickstart '^0 ADDED 127\.0\.0\.4 [0-9]{19}$'
expect_output quickstart '^1 REMOVED 127\.0\.0\.4 [0-9]{19}$'
expect_output quickstart '^epoch [0-9]: accuracy (1\.0|0\.9)[0-9]*, 3 workers, '
expect_output quickstart '^processes: none$'
expect_output quickstart '^listening ports: none of ([5-9]|[0-9]{2}) '
