"""python -m cecl: prints where a part of this package is, for builds of other programs."""
import argparse

from . import _places
from ._version import __version__

places = {
    "--cmake-prefix": (_places.cmake_prefix, "for CMAKE_PREFIX_PATH: find_package(cecl) finds cecl there"),
    "--pkg-config": (_places.pkg_config, "for PKG_CONFIG_PATH"),
    "--library": (_places.root / "lib", "the folder of libcecl.so, for LD_LIBRARY_PATH"),
    "--include": (_places.root / "include", "the folder of cecl/cecl.h"),
}

parser = argparse.ArgumentParser(prog="python -m cecl", description=__doc__)
parser.add_argument("--version", action="version", version=__version__)
one = parser.add_mutually_exclusive_group(required=True)
for option, (place, words) in places.items():
    one.add_argument(option, dest="place", action="store_const", const=place, help=words)
print(parser.parse_args().place)
