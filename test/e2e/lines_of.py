"""Prints the lines of worker RANK in what a terminal got: its own, and those of folded workers that it is among."""
import re
import sys

rank = int(sys.argv[1])
for line in sys.stdin:
    match = re.match(r"\[workers? ([0-9,-]+)[^]]*\] (.*)", line)
    if match:
        ranges = [[int(end) for end in part.split("-")] for part in match[1].split(",")]
        if any(ends[0] <= rank <= ends[-1] for ends in ranges):
            print(match[2])
