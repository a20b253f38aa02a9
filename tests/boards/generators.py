"""Whether the generators of LiteX's cores are installed."""

import importlib.util

import pytest
from hotrow_boards.dram.controller import MODULES
from hotrow_rtl.emit import litex_generator as litex_core

_MISSING = [name for name in (*MODULES, *litex_core.MODULES)
            if importlib.util.find_spec(name) is None]
needs_litedram = pytest.mark.skipif(
    bool(_MISSING), reason=f"{', '.join(_MISSING)} missing: pip install 'hotrow[litedram]'")
