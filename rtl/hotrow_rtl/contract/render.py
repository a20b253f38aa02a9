"""The contract as data, and the files derived from it: JSON for the driver, C header, Markdown.

`python -m hotrow_rtl.contract.render --write` renders the committed files anew; `--check` tells
whether they still say what `contract`, its companions and `config` say.
"""

import argparse
import json
from pathlib import Path

from .. import config
from . import (
    commands as contract_commands,
)
from . import (
    encoding as contract,
)
from . import (
    link_frames as contract_link,
)
from . import (
    registers as contract_registers,
)
from .documents import c_header, link_markdown, markdown

_CONSTANTS = {
    name: getattr(module, name)
    for module, names in (
        (contract, ("COMMAND_BYTES", "COMPLETION_BYTES", "ROW_ENTRY_BYTES", "HARVEST_ENTRY_BYTES",
                    "OFFSET_WIDTH")),
        (contract_registers, ("REGISTER_SPACE",)),
        (contract, ("NO_SLOT", "NO_BATCH", "MISS_FLAG")),
        (config, ("LIST_ALIGNMENT", "ROW_ALIGNMENT", "STATE_ALIGNMENT", "LARGEST_ROW",
                  "LARGEST_STRIDE")),
    )
    for name in names
}
_FLAGS = (contract.BatchFlag, contract.PlanFlag, contract.MarkFlag, contract.InstallFlag,
          contract.AllFlag, contract.GatherFlag, contract.PoolFlag, contract.UpdateFlag)


def _fields(record):
    return [{"name": field.name, "offset": field.offset, "bytes": field.bytes,
             "is_address": field.is_address, "doc": field.doc} for field in record.values()]


def describe() -> dict:
    """The whole contract as numbers, strings, lists and dicts."""
    return {
        "version": contract.VERSION,
        "identity": contract.IDENTITY,
        "constants": _CONSTANTS,
        "status": {status.name: status.value for status in contract.Status},
        "status_doc": {status.name: status.doc for status in contract.Status},
        "opcodes": {opcode.name: opcode.value for opcode in contract.Opcode},
        "policies": {policy.name: policy.value for policy in contract.PlanPolicy},
        "policies_doc": {policy.name: policy.doc for policy in contract.PlanPolicy},
        "elements": {element.name: element.value for element in contract.Element},
        "flags": {kind.__name__: {flag.name: flag.value for flag in kind} for kind in _FLAGS},
        "flags_doc": {kind.__name__: {flag.name: flag.doc for flag in kind} for kind in _FLAGS},
        "commands": [
            {"name": command.opcode.name, "opcode": command.opcode.value, "queue": command.queue,
             "operands": list(command.operands),
             "flags": command.flags.__name__ if command.flags else None, "doc": command.doc}
            for command in contract_commands.COMMANDS.values()
        ],
        "operands": _fields(contract.OPERANDS),
        "completion": _fields(contract.COMPLETION),
        "row_entry": _fields(contract.ROW_ENTRY),
        "harvest_entry": _fields(contract.HARVEST_ENTRY),
        "queues": [{"name": queue, "offset": contract_registers.QUEUE_OFFSETS[queue]}
                   for queue in contract.QUEUES],
        "registers": [
            {"name": register.name, "offset": register.offset, "access": register.access.name,
             "doc": register.doc}
            for register in sorted(contract_registers.REGISTERS.values(),
                                   key=lambda each: each.offset)
        ],
        "geometry": [{"register": register, "parameter": parameter}
                     for register, _, parameter in contract_registers.GEOMETRY],
        "presets": {name: {**preset.describe(), "lanes": preset.lanes, "slots": preset.slots,
                           "counter_entries": preset.counter_entries}
                    for name, preset in config.PRESETS.items()},
    }


def describe_link() -> dict:
    """The frames of a link, likewise."""
    link = contract_link
    return {
        "version": link.LINK_VERSION,
        "constants": {name: getattr(link, name) for name in (
            "HEADER_BYTES", "CRC_BYTES", "LARGEST_PAYLOAD", "CARD_BYTES", "COUNTERS_BYTES",
            "REPLY_FLAG", "TAKE_LEAST", "SLIP_END", "SLIP_ESCAPE", "SLIP_ESCAPED_END",
            "SLIP_ESCAPED_ESCAPE", "SYNC_BYTE", "IDLE_BYTE", "UDP_PORT")},
        "operations": {each.name: each.value for each in link.Operation},
        "operations_doc": {each.name: each.doc for each in link.Operation},
        "with_payload": [each.name for each in link.WITH_PAYLOAD],
        "status": {each.name: each.value for each in link.LinkStatus},
        "status_doc": {each.name: each.doc for each in link.LinkStatus},
        "header": _fields(link.HEADER),
        "card": _fields(link.CARD),
        "counters": [{"name": name, "offset": offset, "doc": doc}
                     for name, (offset, doc) in link.COUNTERS.items()],
    }


def render() -> dict[str, str]:
    """The text of every rendering, by its file name."""
    what, link = describe(), describe_link()
    return {
        "contract.json": json.dumps(what, indent=1) + "\n",
        "hotrow_contract.h": c_header(what),
        "contract.md": markdown(what),
        "link.json": json.dumps(link, indent=1) + "\n",
        "link.md": link_markdown(link),
    }


def committed(root: Path) -> dict[Path, str]:
    """The renderings that are kept in the repository at `root`, and what each must hold."""
    text = render()
    return {
        root / "sw_driver" / "hotrow" / "contract.json": text["contract.json"],
        root / "sw_driver" / "hotrow" / "link.json": text["link.json"],
        root / "docs" / "contract.md": text["contract.md"],
        root / "docs" / "link.md": text["link.md"],
    }


def stale(root: Path) -> list[Path]:
    """Committed renderings that are missing or differ from what the source says."""
    return [path for path, text in committed(root).items()
            if not path.is_file() or path.read_text(encoding="utf-8") != text]


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(prog="python -m hotrow_rtl.contract.render",
                                     description=describe.__doc__)
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="repository, default: here")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", action="store_true", help="fail when a file is stale")
    action.add_argument("--write", action="store_true", help="write the stale files")
    options = parser.parse_args(arguments)
    paths = stale(options.root)
    for path in paths:
        if options.write:
            path.write_text(committed(options.root)[path], encoding="utf-8")
        name = path.relative_to(options.root)
        print(f"{name}: written" if options.write else f"{name}: stale; run with --write")
    return 1 if paths and options.check else 0


if __name__ == "__main__":
    raise SystemExit(main())
