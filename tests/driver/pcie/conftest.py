"""A PCI function, and the device files of VFIO, in a folder."""

import numpy as np
import pytest
from hotrow.contract.generated import IDENTITY, REGISTERS

from tests.driver.pcie.cards import ADDRESS, BAR_BYTES


@pytest.fixture
def function(tmp_path):
    """A function as the system shows it, and VFIO's device files."""
    folder = tmp_path / "devices" / ADDRESS
    folder.mkdir(parents=True)
    registers = np.zeros(BAR_BYTES // 4, "<u4")
    registers[REGISTERS["IDENTITY"] // 4] = IDENTITY
    (folder / "resource0").write_bytes(registers.tobytes())
    (folder / "resource2").touch()
    (folder / "config").write_bytes(bytes(range(64)))
    group = tmp_path / "groups" / "17"
    group.mkdir(parents=True)
    (folder / "iommu_group").symlink_to(group)
    (tmp_path / "vfio").mkdir()
    for name in ("vfio", "17"):
        (tmp_path / "vfio" / name).touch()
    return folder
