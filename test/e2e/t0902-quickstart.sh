# timeout=240 cost=50 plain
# The first door: a wheel in a virtual environment, digits.py on this machine with a worker that joins and leaves, and then
# README's own lines. No test program is built for it.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/quickstart.sh"
quickstart --epochs 24
expect_output quickstart "^== From the wheel to the first trained epoch: [0-9]+ s; from this script's start: [0-9]+ s$"
expect_output quickstart '^\[worker [01] localhost\] each step waits until 60 ms are over, as if a device computed'
expect_output quickstart '^0 ADDED localhost [0-9]{19}$'
expect_output quickstart '^1 REMOVED localhost [0-9]{19}$'
expect_output quickstart '^on average: [0-9]{3,} samples/s with 2, [0-9]{3,} samples/s with 3: '
expect_output quickstart '^processes: none$'
expect_output quickstart '^listening ports: none of [1-9]'
mapfile -t accuracy < <(sed -nE 's/^epoch [0-9]+: accuracy ([0-9.]+), [23] workers, [0-9]+ samples\/s$/\1/p' "$T/quickstart.out")
[ ${#accuracy[@]} = 24 ] || fail "${#accuracy[@]} epochs of 24"
holds() { python3 -c "import sys; sys.exit(not ($1))" || fail "it is not true that $1"; }
holds "${accuracy[-1]} > 0.9 and ${accuracy[-1]} - ${accuracy[0]} >= 0.3"

say "what is built for it"
[ "$(grep -- --build "$T/built")" = "--build --preset $(basename "$DT_BUILD") --target dt_wheel" ] || fail "built: $(cat "$T/built")"
ninja -C "$DT_BUILD" -t commands dt_wheel >"$T/commands.out"
for program in dtlaunch dtctl dtsupervisor dtfleet dtagent dtserver dtgpucheck; do expect_output commands " -o bin/$program "; done
! grep -oE ' -o (test|trainer)/[^ ]*| -o bin/(dttrain|dtbench|.*_test) ' "$T/commands.out" || fail "the wheel needs none of these"

say "README's program"
has_torch || exit 0
cat >train.py <<'END'
import torch, torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(4, 2)
data = TensorDataset(torch.randn(256, 4), torch.randint(2, (256,)))
END
sed -n '/^    import dtkv.torch/,/job.step/s/^    //p' "$DT_SOURCE/README.md" >>train.py
. "$T/venv/bin/activate"
export XDG_RUNTIME_DIR=$T/run XDG_STATE_HOME=$T/state
run alone python3 train.py
expect_status 0
run readme dtlaunch -n 2 --elastic-training-enabled python3 train.py
expect_status 0
expect_nothing_left
