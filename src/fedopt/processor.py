"""The model of the CPU. It selects the kernels of the math libraries, and so the rounding of sums."""

from __future__ import annotations

import platform
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")


def processor_model() -> str:
    """Return vendor, family and model, for example "GenuineIntel family 6 model 207".

    CPUs with the same instructions may round differently: MKL and oneDNN have kernels for some models.
    """
    try:
        first = _CPUINFO.read_text().split("\n\n")[0]
    except OSError:  # not Linux
        return platform.processor() or platform.machine()
    fields = {key.strip(): value.strip() for key, _, value in (x.partition(":") for x in first.splitlines())}
    numbers = {"family": fields.get("cpu family"), "model": fields.get("model")}
    vendor = fields.get("vendor_id", platform.machine())
    return " ".join([vendor, *(f"{name} {number}" for name, number in numbers.items() if number)])
