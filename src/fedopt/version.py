"""The package's version, as installed."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("fedopt")
except PackageNotFoundError:  # run from a source tree that was not installed
    __version__ = "0+source"
