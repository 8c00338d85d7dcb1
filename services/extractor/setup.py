"""Compiles the hottest loops: plain Python, each with a .pxd beside it that gives it C types.

Without this they run as they are, a hundred times slower, which is what the tests compare them with.
"""

from Cython.Build import cythonize
from setuptools import Extension, setup

HOT = (
    "lowwater_extractor.frames",
    "lowwater_extractor.row_bytes",
    "lowwater_extractor.slab",
    "lowwater_extractor.sources.mysql.split",
    "lowwater_extractor.sources.oracle.redo.event_list",
    "lowwater_extractor.sources.oracle.redo.lwns",
    "lowwater_extractor.sources.oracle.redo.usual",
    "lowwater_extractor.sources.oracle.redo.walk",
)

OPTIONS = ["-O3", "-fwrapv"]

setup(
    ext_modules=[
        *cythonize(
            [Extension(name, [name.replace(".", "/") + ".py"], extra_compile_args=OPTIONS) for name in HOT],
            build_dir="build",
            language_level=3,
        ),
        # loaded by the Kafka client, not by Python
        Extension(
            "lowwater_extractor.client_plugin", ["lowwater_extractor/client_plugin.c"], extra_compile_args=OPTIONS
        ),
    ]
)
