"""The paths of the installed package's parts."""
from pathlib import Path

root = Path(__file__).resolve().parent
tools = root / "bin"
cmake_prefix = root
pkg_config = root / "lib" / "pkgconfig"


def library():
    """The path of libcecl.so by its SONAME, the name under which programs load it."""
    found = sorted((root / "lib").glob("libcecl.so.*"))
    if not found:
        raise FileNotFoundError(f"{root / 'lib'}: no libcecl.so.*; was this package installed by pip?")
    return found[0]
