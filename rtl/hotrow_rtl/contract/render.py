"""The contract as data, and the files derived from it: Python, JSON, C header, Markdown.

`python -m hotrow_rtl.contract.render --write` writes the committed files; `--check` fails if one
of them differs from the source.
"""

import argparse
import json
from pathlib import Path

from .. import config
from . import commands, encoding, link_frames, registers
from .command_rules import CONTRARY
from .documents import c_header, link_markdown, markdown
from .driver_module import driver_module
from .registers import shift

_CONSTANTS = {
    name: getattr(module, name)
    for module, names in (
        (encoding, ("COMMAND_BYTES", "COMPLETION_BYTES", "ROW_ENTRY_BYTES", "HARVEST_ENTRY_BYTES",
                    "OFFSET_WIDTH")),
        (registers, ("REGISTER_SPACE",)),
        (encoding, ("NO_SLOT", "NO_BATCH", "MISS_FLAG")),
        (config, ("LIST_ALIGNMENT", "ROW_ALIGNMENT", "STATE_ALIGNMENT", "LARGEST_ROW",
                  "LARGEST_STRIDE")),
    )
    for name in names
}
_FLAGS = (encoding.BatchFlag, encoding.PlanFlag, encoding.MarkFlag, encoding.InstallFlag,
          encoding.AllFlag, encoding.GatherFlag, encoding.PoolFlag, encoding.UpdateFlag)


def _fields(record):
    return [{"name": field.name, "offset": field.offset, "bytes": field.bytes,
             "is_address": field.is_address, "doc": field.doc} for field in record.values()]


def describe() -> dict:
    """The whole contract as numbers, strings, lists and dicts."""
    return {
        "version": encoding.VERSION,
        "identity": encoding.IDENTITY,
        "constants": _CONSTANTS,
        "status": {status.name: status.value for status in encoding.Status},
        "status_doc": {status.name: status.doc for status in encoding.Status},
        "opcodes": {opcode.name: opcode.value for opcode in encoding.Opcode},
        "policies": {policy.name: policy.value for policy in encoding.PlanPolicy},
        "policies_doc": {policy.name: policy.doc for policy in encoding.PlanPolicy},
        "elements": {element.name: element.value for element in encoding.Element},
        "flags": {kind.__name__: {flag.name: flag.value for flag in kind} for kind in _FLAGS},
        "flags_doc": {kind.__name__: {flag.name: flag.doc for flag in kind} for kind in _FLAGS},
        "commands": [
            {"name": command.opcode.name, "opcode": command.opcode.value, "queue": command.queue,
             "operands": list(command.operands),
             "flags": command.flags.__name__ if command.flags else None,
             "contrary": int(CONTRARY.get(command.opcode, 0)), "doc": command.doc}
            for command in commands.COMMANDS.values()
        ],
        "operands": _fields(encoding.OPERANDS),
        "completion": _fields(encoding.COMPLETION),
        "row_entry": _fields(encoding.ROW_ENTRY),
        "harvest_entry": _fields(encoding.HARVEST_ENTRY),
        "queues": [{"name": queue, "offset": registers.QUEUE_OFFSETS[queue]}
                   for queue in encoding.QUEUES],
        "registers": [
            {"name": register.name, "offset": register.offset, "access": register.access.name,
             "doc": register.doc, "fields": [
                 {"name": field.name, "mask": field.value, "low": shift(field),
                  "bits": field.bit_length() - shift(field), "doc": field.doc}
                 for field in register.fields or ()]}
            for register in sorted(registers.REGISTERS.values(),
                                   key=lambda each: each.offset)
        ],
        "geometry": [{"register": register, "parameter": parameter}
                     for register, _, parameter in registers.GEOMETRY],
        "presets": {name: {**preset.describe(), "lanes": preset.lanes, "slots": preset.slots,
                           "counter_entries": preset.counter_entries}
                    for name, preset in config.PRESETS.items()},
    }


def describe_link() -> dict:
    """The frames of a link as numbers, strings, lists and dicts."""
    link = link_frames
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
    """The text of the files for a user, by name."""
    what, link = describe(), describe_link()
    return {
        "contract.json": json.dumps(what, indent=1) + "\n",
        "hotrow_contract.h": c_header(what),
        "contract.md": markdown(what),
        "link.json": json.dumps(link, indent=1) + "\n",
        "link.md": link_markdown(link),
    }


def committed(root: Path) -> dict[Path, str]:
    """The generated files of the repository at `root`, and the text of each."""
    text = render()
    return {
        root / "sw_driver" / "hotrow" / "contract" / "generated.py": driver_module(_CONSTANTS),
        root / "sw_driver" / "hotrow" / "kernels" / "engine" / "hotrow_contract.h":
            text["hotrow_contract.h"],
        root / "docs" / "contract.md": text["contract.md"],
        root / "docs" / "link.md": text["link.md"],
    }


def stale(root: Path) -> list[Path]:
    """Generated files of the repository that are missing or differ from the source."""
    return [path for path, text in committed(root).items()
            if not path.is_file() or path.read_text(encoding="utf-8") != text]


def main(arguments=None) -> int:
    parser = argparse.ArgumentParser(prog="python -m hotrow_rtl.contract.render",
                                     description=describe.__doc__)
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="repository, default: here")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", action="store_true", help="fail if a file is stale")
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
