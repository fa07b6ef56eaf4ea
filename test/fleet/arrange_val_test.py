#!/usr/bin/env python3
"""packaging/kubernetes/arrange-val.py, with six files."""
import pathlib
import subprocess
import sys
import tempfile

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "packaging/kubernetes/arrange-val.py"
NAMES = [f"ILSVRC2012_val_0000000{i}" for i in range(1, 7)]


def arrange(folder, labels):
    path = folder.parent / "labels"
    path.write_text(labels)
    return subprocess.run([sys.executable, SCRIPT, folder, path], capture_output=True, text=True)


def main():
    kinds = ("n01440764", "n02102040")
    texts = ["".join(f"{name}.JPEG {kinds[i % 2]}\n" for i, name in enumerate(NAMES)),
             "ImageId,PredictionString\n" + "".join(f"{name},{kinds[i % 2]} 1 2 3 4 n09999999 1 2 3 4\n" for i, name in enumerate(NAMES))]
    for text in texts:
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary) / "val"
            folder.mkdir()
            for name in NAMES:
                (folder / f"{name}.JPEG").write_text(name)
            lacking = arrange(folder, text.replace(NAMES[3], "another"))
            assert lacking.returncode == 1 and NAMES[3] in lacking.stderr, lacking
            assert len(list(folder.iterdir())) == 6, "images were moved without all classes"
            for moved in ("6", "0"):
                done = arrange(folder, text)
                assert done.returncode == 0 and done.stdout == f"{moved} images moved\n", done
            found = sorted(f"{p.parent.name}/{p.name}" for p in folder.glob("*/*"))
            assert found == sorted(f"{kinds[i % 2]}/{name}.JPEG" for i, name in enumerate(NAMES)), found


if __name__ == "__main__":
    main()
