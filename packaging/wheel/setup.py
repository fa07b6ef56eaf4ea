"""The wheel: the package dtkv and the programs. scripts/wheel puts both beside this file; by itself it builds nothing."""

import glob
import os

from setuptools import Distribution, setup
from wheel.bdist_wheel import bdist_wheel


class WithPrograms(Distribution):
    def has_ext_modules(self):
        return True


class AnyPython(bdist_wheel):
    """No part of it is compiled for one Python."""

    def get_tag(self):
        return "py3", "none", "linux_x86_64"


setup(
    name="dtlaunch",
    version=os.environ["DT_VERSION"],
    description="Elastic distributed training over ssh: launcher, kvstore, and its Python package dtkv",
    license="see LICENSE",
    python_requires=">=3.8",
    extras_require={"torch": ["torch"], "numpy": ["numpy"]},
    packages=["dtkv", "dtkv.torch"],
    package_data={"dtkv": ["py.typed", "libdtkv.so.0"]},
    data_files=[("bin", sorted(glob.glob("bin/*"))), ("lib/dtlaunch", sorted(glob.glob("lib/*")))],
    distclass=WithPrograms,
    cmdclass={"bdist_wheel": AnyPython},
)
