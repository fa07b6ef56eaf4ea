#!/usr/bin/env python3
"""What changes.md says of a version: the notes of a release, or the changelog of a Debian package.

usage: packaging/changelog.py VERSION                     the text below `## VERSION (YYYY-MM-DD)`, without links
       packaging/changelog.py VERSION PACKAGE MAINTAINER  the same in Debian's form; one line where there is no such heading
"""
import datetime
import os
import re
import sys
import textwrap

CHANGES = os.path.join(os.path.dirname(os.path.realpath(__file__)), "doc", "changes.md")


def section(version):
    """The date and the text of a version; None without its heading."""
    with open(CHANGES, encoding="utf-8") as file:
        found = re.search(rf"^## {re.escape(version)} \((\d{{4}}-\d\d-\d\d)\)\n(.*?)(?=^## |\Z)", file.read(), re.M | re.S)
    if not found:
        return None
    text = re.sub(r"\[([^]]*)\]\([^)\s]*\)", r"\1", found[2])  # links lead to files that lie elsewhere
    return datetime.date.fromisoformat(found[1]), text.strip() + "\n"


def entries(text):
    """Lines of a Debian changelog: a section is `[ subject ]`, a paragraph or item is `* text`."""
    for part in re.split(r"\n\s*\n|\n(?=\s*- )", text):
        words = " ".join(part.split())
        if words.startswith("### "):
            yield f"\n  [ {words[4:]} ]\n"
        elif words:
            nested = part.startswith("  ")
            first, later = ("    - ", "      ") if nested else ("  * ", "    ")
            yield textwrap.fill(words.removeprefix("- "), 78, initial_indent=first, subsequent_indent=later,
                                break_on_hyphens=False) + "\n"


def main():
    version, *debian = sys.argv[1:]
    found = section(version)
    if not debian:
        if not found:
            sys.exit(f"packaging/doc/changes.md has no heading `## {version} (YYYY-MM-DD)`: "
                     "write it, and below it what changed for users")
        print(found[1], end="")
        return
    package, maintainer = debian
    date, text = found or (datetime.date(2000, 1, 1), "Not released.")
    print(f"{package} ({version}) unstable; urgency=low\n\n{''.join(entries(text)).strip(chr(10))}\n\n"
          f" -- {maintainer}  {date:%a, %d %b %Y} 00:00:00 +0000")


if __name__ == "__main__":
    main()
