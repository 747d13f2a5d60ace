from __future__ import annotations

import platform
from pathlib import Path

import pytest

import fedopt.processor
from fedopt.processor import processor_model

INTEL = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 207\nmodel name\t: Xeon\n"
AMD = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n"
ARM = "processor\t: 0\nBogoMIPS\t: 243.75\nCPU implementer\t: 0x41\nCPU variant\t: 0x1\nCPU part\t: 0xd40\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{INTEL}\n{INTEL}", "GenuineIntel family 6 model 207"),
        (f"{AMD}\n{AMD}", "AuthenticAMD family 25 model 17"),
        (f"{AMD}model name\t: AMD\xff\n", "AuthenticAMD family 25 model 17"),  # not UTF-8
        (ARM, f"{platform.machine()} implementer 0x41 part 0xd40"),
    ],
)
def test_vendor_family_and_model_of_the_first_core(
    text: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fedopt.processor, "_CPUINFO", tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_bytes(text.encode("latin-1"))
    assert processor_model.__wrapped__() == expected


@pytest.mark.parametrize("text", ["", "processor\t: 0\nBogoMIPS\t: 50.00\n", None])
def test_other_systems_have_a_name_too(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fedopt.processor, "_CPUINFO", tmp_path / "cpuinfo")
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    assert processor_model.__wrapped__().strip()
