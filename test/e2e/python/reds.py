#!/usr/bin/python3
"""reds.py VERDICTS: lines "CASE ok" or "CASE why it fails". Fails if a case fails that red_rows.txt does not list, or one
passes that it lists. Without that file every case must pass."""

import fnmatch
import pathlib
import sys

listed = []
rows = pathlib.Path(__file__).with_name("red_rows.txt")
for line in rows.read_text().splitlines() if rows.exists() else ():
    if line and line[0] != "#":
        row, pattern = line.split()
        listed.append((row, pattern))
bad = reds = 0
for line in pathlib.Path(sys.argv[1]).read_text().splitlines():
    case, why = line.split(" ", 1)
    row = next((row for row, pattern in listed if fnmatch.fnmatchcase(case, pattern)), None)
    passes = why == "ok"
    reds += row is not None and not passes
    if passes != (row is None):
        bad += 1
        print(f"NOT RED ANY MORE: {case} ({row}): take it out of red_rows.txt" if passes else f"FAILED: {case}: {why}")
    else:
        print(f"{case}: ok" if passes else f"red, {row}: {case}: {why}")
print(f"{reds} red" if reds else "no case is red")
sys.exit(bad > 0)
