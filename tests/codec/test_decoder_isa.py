"""Which backend a process decodes with: the best that the CPU has, or the one that FASTKCL_FORCE_ISA names."""

import os

import codec_helpers
from fastkcl import _core


def test_isa_in_use_is_the_forced_or_the_best_one() -> None:
    assert _core.isa() == os.environ.get("FASTKCL_FORCE_ISA", _core.supported_isas()[0])


def test_supported_isas_are_known_and_end_with_portable() -> None:
    supported = _core.supported_isas()
    assert [name for name in codec_helpers.ALL_ISAS if name in supported] == supported
    assert supported[-1] == "portable"
