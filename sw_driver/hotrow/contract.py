"""The device contract as the driver uses it, from the generated ``contract.json``."""

import json
from enum import IntEnum, IntFlag
from importlib import resources

import numpy as np

_MAP = json.loads(resources.files(__package__).joinpath("contract.json").read_text("utf-8"))

IDENTITY = _MAP["identity"]
VERSION = _MAP["version"]

_CONSTANTS = _MAP["constants"]
OFFSET_WIDTH = _CONSTANTS["OFFSET_WIDTH"]
NO_SLOT = _CONSTANTS["NO_SLOT"]
NO_BATCH = _CONSTANTS["NO_BATCH"]
MISS_FLAG = _CONSTANTS["MISS_FLAG"]
LIST_ALIGNMENT = _CONSTANTS["LIST_ALIGNMENT"]
ROW_ALIGNMENT = _CONSTANTS["ROW_ALIGNMENT"]
STATE_ALIGNMENT = _CONSTANTS["STATE_ALIGNMENT"]
LARGEST_STRIDE = _CONSTANTS["LARGEST_STRIDE"]

Status = IntEnum("Status", _MAP["status"])
Opcode = IntEnum("Opcode", _MAP["opcodes"])
Element = IntEnum("Element", _MAP["elements"])
BatchFlag = IntFlag("BatchFlag", _MAP["flags"]["BatchFlag"])
PlanFlag = IntFlag("PlanFlag", _MAP["flags"]["PlanFlag"])
PlanPolicy = IntEnum("PlanPolicy", _MAP["policies"])
AllFlag = IntFlag("AllFlag", _MAP["flags"]["AllFlag"])
GatherFlag = IntFlag("GatherFlag", _MAP["flags"]["GatherFlag"])
PoolFlag = IntFlag("PoolFlag", _MAP["flags"]["PoolFlag"])
UpdateFlag = IntFlag("UpdateFlag", _MAP["flags"]["UpdateFlag"])

STATUS_DOC = {Status[name]: text for name, text in _MAP["status_doc"].items()}
REGISTERS = {register["name"]: register["offset"] for register in _MAP["registers"]}
GEOMETRY = {entry["parameter"]: entry["register"] for entry in _MAP["geometry"]}
QUEUES = tuple(queue["name"] for queue in _MAP["queues"])
QUEUE_OF = {Opcode[command["name"]]: command["queue"] for command in _MAP["commands"]}
PRESETS = _MAP["presets"]


def _record(fields, size):
    """Structured dtype of a little-endian record of the contract."""
    return np.dtype({
        "names": [field["name"] for field in fields],
        "formats": [f"<u{field['bytes']}" for field in fields],
        "offsets": [field["offset"] for field in fields],
        "itemsize": size,
    })


COMMAND = _record(_MAP["operands"], _CONSTANTS["COMMAND_BYTES"])
COMPLETION = _record(_MAP["completion"], _CONSTANTS["COMPLETION_BYTES"])
ROW_ENTRY = _record(_MAP["row_entry"], _CONSTANTS["ROW_ENTRY_BYTES"])
HARVEST_ENTRY = _record(_MAP["harvest_entry"], _CONSTANTS["HARVEST_ENTRY_BYTES"])


def packed_address(handle: int, offset: int) -> int:
    """One address operand: the handle of a region and a byte offset into it."""
    return handle << OFFSET_WIDTH | offset


def unpack_address(address: int) -> tuple[int, int]:
    """The handle and the byte offset of an address operand."""
    return address >> OFFSET_WIDTH, address & (1 << OFFSET_WIDTH) - 1
