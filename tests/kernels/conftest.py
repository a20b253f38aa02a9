import pytest
from hotrow.kernels import compiler
from hotrow.kernels.library import library


@pytest.fixture(params=["native", "reference"])
def passes(request, monkeypatch):
    """Which implementation the passes use."""
    if request.param == "native" and compiler.find_compiler() is None:
        pytest.skip("no C++ compiler is installed")
    monkeypatch.setenv("HOTROW_KERNELS", request.param)
    library.cache_clear()
    yield request.param
    library.cache_clear()
