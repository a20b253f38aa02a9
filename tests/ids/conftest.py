from tests.kernels.conftest import passes  # noqa: F401
