"""Plants each fault that scripts/wheel-check is there for in a small wheel, and says which ones it does not find.

usage: wheel_faults.py CHECK FOLDER    needs gcc
"""
import os
import subprocess
import sys

CHECK, TOP = sys.argv[1:]
INFO, DATA = "x.dist-info/", "x.data/data/"


def put(name, text=""):
    os.makedirs(os.path.dirname(os.path.join(TOP, name)), exist_ok=True)
    with open(os.path.join(TOP, name), "w", encoding="utf-8") as file:
        file.write(text)


def gcc(name, code, *flags):
    put(name)
    subprocess.run(["gcc", "-w", "-xc", "-", "-xnone", *flags, "-o", name], cwd=TOP, input=code, text=True, check=True)


def found():
    return set(subprocess.run([CHECK, TOP], stdout=subprocess.PIPE, text=True).stdout.splitlines())


library, other = DATA + "lib/dtlaunch/libx.so.1", DATA + "lib/dtlaunch/liby.so.1"
gcc(library, "int x(void) { return 0; }", "-shared", "-fPIC", "-Wl,-soname,libx.so.1")
gcc(DATA + "bin/dtx", "int main(void) { return x(); }", library)
put(INFO + "WHEEL", "Tag: py3-none-manylinux_2_34_x86_64\n")
put(INFO + "METADATA", "Name: x\nLicense: Apache-2.0\n")
put(INFO + "licenses/LIBRARIES", "libx.so.1 x 1.0\nliby.so.1 y 1.0\n")
put(INFO + "licenses/x", "see /usr/share/common-licenses/GPL-2.\n")
put(INFO + "licenses/GPL-2", "text")
put(DATA + "share/man/man1/dtx.1.gz", "page")
put(DATA + "share/doc/dtlaunch/examples/x.py", "pass")
bad = [f"in a whole wheel: {line}" for line in found()]

gcc("glibc", "int main(void) { return arc4random(); }")
gcc("libstdc++", "int main(void) { _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(); }", "-lstdc++")
gcc("relr", "int y; int* z = &y; int main(void) { return *z; }", "-pie", "-fPIE", "-fuse-ld=bfd", "-Wl,-z,pack-relative-relocs")
gcc("isa", "int main(void) { return 0; }", "-march=x86-64-v3", "-mneeded")
gcc("zlib", "int main(void) { return 0; }", "-Wl,--no-as-needed", "-lz")
gcc(other, "int y(void) { return 0; }", "-shared", "-fPIC")
put(INFO + "METADATA", "Name: x\nLicense: see LICENSE\n")
for name in ("share/man/man1/dtx.1.gz", "share/doc/dtlaunch/examples/x.py"):
    os.unlink(os.path.join(TOP, DATA + name))
os.unlink(os.path.join(TOP, INFO + "licenses/GPL-2"))
wanted = ["glibc needs GLIBC_2.36", "libstdc++ needs GLIBCXX_3.4.30", "relr needs GLIBC_ABI_DT_RELR", "relr has DT_RELR",
          "isa needs a processor of x86-64-v3", "zlib needs libz.so.1", "liby.so.1 is bundled without its licence",
          "x refers to GPL-2", "METADATA does not have License: Apache-2.0", "dtx has no manual page", "examples are missing"]
lines = found()
for fault in wanted:
    hits = {line for line in lines if line.startswith(f"wheel-check: {fault}")}
    bad += [] if hits else [f"not found: {fault}"]
    lines -= hits
bad += [f"not planted: {line}" for line in lines]
print("\n".join(bad) or f"{len(wanted)} faults are found")
sys.exit(bool(bad))
