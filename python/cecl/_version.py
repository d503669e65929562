"""The package's version, which stands in cecl.h alone."""
from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("cecl")
except PackageNotFoundError:  # used out of the sources, as tests do
    __version__ = "unknown"
