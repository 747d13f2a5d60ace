"""Compile the step of a stack to machine code, and keep it between runs.

TorchInductor compiles the traced graph. It writes C++ code, which a compiler of the system translates. The
result is stored in the user's cache directory, or in TORCHINDUCTOR_CACHE_DIR if it is set. A later process
that compiles the same graph loads the stored code.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pooch
from torch import Tensor
from torch.fx import GraphModule

from fedopt.errors import MissingProgram

_CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
# One thread, as everywhere. Autotuning would choose code by time, so that results would vary. `cpp_wrapper`
# also compiles the calls between the kernels; otherwise they are Python.
_OPTIONS = {"cpp.threads": 1, "compile_threads": 1, "max_autotune": False, "cpp_wrapper": True}


def check_compiler() -> None:
    """Raise an error if there is no C++ compiler."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except (InvalidCxxCompiler, RuntimeError):
        raise MissingProgram(
            "executor compiled needs a C++ compiler, and g++ was not found; install it (package g++ on "
            "Debian and Ubuntu, gcc-c++ on Fedora), set CXX, or use --executor vectorised",
            program=os.environ.get("CXX", "g++"),
        ) from None


def compile_graph(
    graph: GraphModule, examples: Sequence[Tensor]
) -> Callable[[list[Tensor]], Sequence[Tensor]]:
    """Return a function with the results of `graph` for a list of inputs with the shapes of `examples`."""
    import torch._inductor
    from torch._inductor import config

    with _compiler_cache(), _without_messages(), config.patch(_OPTIONS):
        artifact = torch._inductor.standalone_compile(
            graph, list(examples), dynamic_shapes="from_example_inputs"
        )
        artifact(*examples)  # loads the code
    return lambda arguments: artifact(*arguments)


@contextmanager
def _compiler_cache() -> Iterator[None]:
    """Store compiled code in the cache directory of this package, unless the user has chosen another.

    torch sets the variable to its own default, a temporary directory.
    """
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    before = os.environ.get(_CACHE_VARIABLE)
    if before not in (None, default_cache_dir()):
        yield
        return
    directory = Path(pooch.os_cache("fedopt"), "compiled")
    directory.mkdir(parents=True, exist_ok=True)
    os.environ[_CACHE_VARIABLE] = str(directory)
    try:
        yield
    finally:
        del os.environ[_CACHE_VARIABLE]
        if before is not None:
            os.environ[_CACHE_VARIABLE] = before


@contextmanager
def _without_messages() -> Iterator[None]:
    """Hide the warnings and log messages of the compiler. Errors are raised."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
