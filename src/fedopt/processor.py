"""The model of the CPU. It selects the kernels of the math libraries, and so the rounding of sums."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_NUMBERS = {  # the last two are those of ARM
    "family": "cpu family",
    "model": "model",
    "implementer": "CPU implementer",
    "part": "CPU part",
}


@cache
def processor_model() -> str:
    """Return vendor, family and model, for example "GenuineIntel family 6 model 207".

    CPUs with the same instructions may round differently: math libraries have kernels for some models.
    """
    try:
        first = _CPUINFO.read_text(errors="replace").split("\n\n")[0]
    except OSError:  # not Linux
        return platform.processor() or platform.machine()
    fields = {key.strip(): value.strip() for key, _, value in (x.partition(":") for x in first.splitlines())}
    vendor = fields.get("vendor_id", platform.machine())
    numbers = {name: fields[key] for name, key in _NUMBERS.items() if key in fields}
    return " ".join([vendor, *(f"{name} {number}" for name, number in numbers.items())])
