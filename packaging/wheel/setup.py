"""The wheel: the package dtkv, the programs and their documents. scripts/wheel puts them beside this file; it builds nothing."""

import glob
import os
import shutil

from setuptools import Distribution, setup
from wheel.bdist_wheel import bdist_wheel


class WithPrograms(Distribution):
    def has_ext_modules(self):
        return True


class AnyPython(bdist_wheel):
    """No part of it is compiled for one Python."""

    def get_tag(self):
        return "py3", "none", "manylinux_2_34_x86_64"

    def egg2dist(self, egginfo_path, distinfo_path):
        super().egg2dist(egginfo_path, distinfo_path)
        shutil.copytree("licenses", os.path.join(distinfo_path, "licenses"))


def files(*patterns):
    return sorted(name for pattern in patterns for name in glob.glob(pattern))


setup(
    name="dtlaunch",
    version=os.environ["DT_VERSION"],
    description="Elastic distributed training over ssh: launcher, kvstore, and its Python package dtkv",
    long_description=open("README.md", encoding="utf-8").read(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: Science/Research",
        "License :: OSI Approved :: Apache Software License",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: C++",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: System :: Distributed Computing",
        "Typing :: Typed",
    ],
    python_requires=">=3.8",
    extras_require={"torch": ["torch"], "numpy": ["numpy"]},
    packages=["dtkv", "dtkv.torch"],
    package_data={"dtkv": ["py.typed", "libdtkv.so.0"]},
    data_files=[
        ("bin", files("bin/*")),
        ("lib/dtlaunch", files("lib/*")),
        ("lib/dtlaunch/providers", files("providers/*")),
        ("share/man/man1", files("man/*.1.gz")),
        ("share/man/man8", files("man/*.8.gz")),
        ("share/doc/dtlaunch", files("doc/*.md")),
        ("share/doc/dtlaunch/examples", files("examples/*.py")),
    ],
    distclass=WithPrograms,
    cmdclass={"bdist_wheel": AnyPython},
)
