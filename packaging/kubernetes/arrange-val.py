"""Moves ImageNet's validation images into a folder for each class, as PyTorch's ImageFolder wants them; again does no harm.

usage: arrange-val.py VAL_FOLDER LABELS
LABELS: a line for each image, "ILSVRC2012_val_00000001.JPEG n01751748"; or, with a comma and more classes behind, the
LOC_val_solution.csv of Kaggle.
"""
import pathlib
import re
import sys


def main(folder: pathlib.Path, labels: pathlib.Path) -> int:
    classes = dict(re.findall(r"^(\w+)(?:\.JPEG)?[ ,]+(n\d+)", labels.read_text(), re.MULTILINE))
    images = sorted(folder.glob("*.JPEG"))
    unknown = [image.name for image in images if image.stem not in classes]
    if unknown:
        print(f"{labels}: no class for {len(unknown)} of {len(images)} images, {unknown[0]} first: nothing is moved", file=sys.stderr)
        return 1
    for image in images:
        (folder / classes[image.stem]).mkdir(exist_ok=True)
        image.rename(folder / classes[image.stem] / image.name)
    print(f"{len(images)} images moved")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])))
