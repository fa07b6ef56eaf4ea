# timeout=400 cost=20
# The supervisor is killed at random moments, in the foreground and detached: see the script, which
# `test/chaos/supervisor_kills.py --kills 200` runs at length.
. "$(dirname "$0")/lib.sh"
is_nightly && kills=15 || kills=4
python3 "$DT_SOURCE/test/chaos/supervisor_kills.py" --bin "$DT_BIN" --local --kills "${DT_E2E_KILLS:-$kills}" \
  --kills-per-job 10 --seed "${DT_E2E_SEED:-$$}"
