"""Compiles the hottest loops: plain Python in `_native` folders, each with a .pxd beside it that gives it C types.

Without this they run as they are, a hundred times slower, which is what the tests compare them with.
"""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

OPTIONS = ["-O3", "-fwrapv"]
# paths from here: an absolute one is not let into a source distribution
HERE = Path(__file__).parent
TYPED = HERE.glob("lowwater_extractor/**/_native/*.pxd")
COMPILED = sorted(path.relative_to(HERE).with_suffix(".py") for path in TYPED)


def name_of(path: Path) -> str:
    return ".".join(path.with_suffix("").parts)


setup(
    ext_modules=[
        *cythonize(
            [Extension(name_of(path), [str(path)], extra_compile_args=OPTIONS) for path in COMPILED],
            build_dir="build",
            language_level=3,
        ),
        # loaded by the Kafka client, not by Python
        Extension(
            "lowwater_extractor._native.client_plugin",
            ["lowwater_extractor/_native/client_plugin.c"],
            extra_compile_args=OPTIONS,
        ),
    ]
)
