# timeout=180 cost=45
# A job in each of its states x each command that takes it up, ends it or begins another x signals x who calls. Nightly the
# whole table.
. "$(dirname "$0")/lib.sh"
export PROGRAMS=$T/programs
mkdir -p "$PROGRAMS/bin" "$PROGRAMS/lib" "$T/cells"
for program in dtlaunch dtctl dtsupervisor dtagent dtserver dtfleet elastic_worker; do
  ln "$DT_BIN/$program" "$PROGRAMS/bin/" 2>/dev/null || cp "$DT_BIN/$program" "$PROGRAMS/bin/"
done
cp -L "$DT_BUILD/lib/libdtkv.so.0" "$PROGRAMS/lib/"
chmod -R a+rX "$T"  # as root the table's users are others
all=()
! is_nightly || all=(--all)
python3 "$DT_SOURCE/test/e2e/lifecycle.py" "$T/cells" "${all[@]}"
