"""zip.py ZIP FILE...: files of the present folder as a zip; the same files make the same bytes."""
import sys
import zipfile

with zipfile.ZipFile(sys.argv[1], "w") as out:
    for name in sorted(sys.argv[2:]):
        with open(name, "rb") as file:
            out.writestr(zipfile.ZipInfo(name), file.read(), zipfile.ZIP_DEFLATED)
