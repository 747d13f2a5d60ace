"""Compile the step of a stack to machine code, and keep it between runs.

TorchInductor compiles the traced graph ahead of time. It writes C++ code, which a compiler of the system
translates to a shared library. The library is stored in the user's cache directory, or in
TORCHINDUCTOR_CACHE_DIR if it is set. A later process that needs the same graph loads the library and does not
import the compiler.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor
from torch.fx import GraphModule

from fedopt.cache import cache_directory
from fedopt.errors import CompileError, FedoptError, MissingProgram
from fedopt.files import temporary_directory, write_atomically

_CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
# One thread, as everywhere. Autotuning would choose code by time, so that results would vary.
_OPTIONS = {"cpp.threads": 1, "compile_threads": 1, "max_autotune": False}


def check_compiler() -> None:
    """Raise an error if there is no C++ compiler."""
    program = _compiler()
    if shutil.which(program) is None:
        raise MissingProgram(
            f"executor compiled needs a C++ compiler, and {program} was not found; install it (package g++ "
            "on Debian and Ubuntu, gcc-c++ on Fedora), set CXX, or use --executor vectorised",
            program=program,
        )


def _compiler() -> str:
    """Return the compiler that TorchInductor calls."""
    return os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")


def compile_graph(
    graph: GraphModule, examples: Sequence[Tensor]
) -> Callable[[list[Tensor]], Sequence[Tensor]]:
    """Return `graph` as compiled code. It takes a list of tensors with the shapes and strides of `examples`.

    An error of the compiler program or the disk is a `CompileError`: another machine may not have it. Other
    errors depend on the graph only.
    """
    file = _cache_directory() / f"step-{_key(graph, examples)}.so"
    if not file.exists():
        try:
            with temporary_directory(file) as scratch:  # processes that start together compile once
                if not file.exists():
                    _compile(graph, examples, file, scratch)
        except Exception as error:
            if _depends_on_machine(error):
                raise CompileError(
                    f"executor compiled could not compile a step ({_first_line(error)}); compiled code is "
                    f"stored in {file.parent}, and XDG_CACHE_HOME selects another directory; --executor "
                    "vectorised needs no compiler"
                ) from error
            raise
    try:
        return torch._C._aoti.AOTIModelContainerRunnerCpu(str(file), 1).run
    except RuntimeError as error:
        raise CompileError(
            f"compiled code cannot be loaded ({_first_line(error)}); delete {file} and run the command again"
        ) from error


def _depends_on_machine(error: BaseException) -> bool:
    from torch._inductor.exc import CppCompileError, InvalidCxxCompiler

    cause = getattr(error, "inner_exception", error.__cause__)  # TorchInductor wraps its errors
    kinds = (OSError, FedoptError, CppCompileError, InvalidCxxCompiler)
    return isinstance(error, kinds) or (cause is not None and _depends_on_machine(cause))


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def _compile(graph: GraphModule, examples: Sequence[Tensor], file: Path, scratch: Path) -> None:
    import torch._inductor

    for node in graph.graph.nodes:
        node.meta.clear()  # values of the trace, which the compiler computes again
    with _write_to(scratch), _without_messages(), torch.no_grad():
        library = Path(str(torch._inductor.aot_compile(graph, tuple(examples), options=_OPTIONS)))
    calls = library.with_suffix(".json")  # of operations that compiled code calls through torch
    if calls.exists():
        write_atomically(file.with_suffix(".json"), calls.read_bytes())
    write_atomically(file, library.read_bytes())  # last, because its existence means that all is stored


def _key(graph: GraphModule, examples: Sequence[Tensor]) -> str:
    """Return a checksum of everything that the compiled code depends on."""
    processor = [item for item in torch.cpu.get_capabilities().items() if item[1]]
    layouts = [(a.shape, a.stride(), a.dtype) for a in examples]
    level = os.environ.get("ATEN_CPU_CAPABILITY")  # restricts the instructions
    parts = [torch.__version__, _compiler(), sorted(_OPTIONS.items()), sorted(processor), level, layouts]
    digest = hashlib.sha256(repr(parts).encode())
    for module in graph.modules():
        digest.update(str(getattr(module, "code", "")).encode())
    for name, constant in graph.state_dict().items():
        digest.update(f"{name} {constant.shape} {constant.dtype}".encode())
        digest.update(constant.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:32]


def _cache_directory() -> Path:
    """Return the directory of compiled code: that of this package, unless the user has chosen another."""
    chosen = os.environ.get(_CACHE_VARIABLE)
    if chosen is not None:
        from torch._inductor.runtime.cache_dir_utils import default_cache_dir

        if chosen != default_cache_dir():  # torch sets the variable to its default, a temporary directory
            return Path(chosen)
    return cache_directory() / "compiled"


@contextmanager
def _write_to(directory: Path) -> Iterator[None]:
    """Set the directory of the compiler's files."""
    before = os.environ.get(_CACHE_VARIABLE)
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
