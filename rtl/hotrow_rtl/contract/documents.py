"""The contract as text for readers and for C; see `contract_map.describe` for what is rendered."""

from itertools import groupby

_RECORDS = (
    ("operands", "command", "COMMAND_BYTES"),
    ("completion", "completion", "COMPLETION_BYTES"),
    ("row_entry", "row_entry", "ROW_ENTRY_BYTES"),
    ("harvest_entry", "harvest_entry", "HARVEST_ENTRY_BYTES"),
)


def _hex(value):
    return f"0x{value:X}" if value < 1 << 16 else f"0x{value:08X}"


def c_header(what: dict) -> str:
    """A header for C and C++: every number a macro, every record a struct without padding."""
    lines = [
        "/* The device contract of hotrow: registers, commands, completions, lists, status codes.",
        " * Rendered by hotrow_rtl.contract.render; all fields are little-endian. */",
        "#ifndef HOTROW_CONTRACT_H",
        "#define HOTROW_CONTRACT_H",
        "",
        "#include <stdint.h>",
    ]

    def define(title, numbers):
        lines.extend(("", f"/* {title} */"))
        for name, value, *doc in numbers:
            note = f" /* {doc[0]} */" if doc else ""
            lines.append(f"#define HOTROW_{name} {value}{note}")

    define("identity and constants", [
        ("IDENTITY", f"{_hex(what['identity'])}u"), ("VERSION", f"{what['version']}u"),
        *((name, f"{value}u") for name, value in what["constants"].items())])
    define("registers, byte offsets", [
        (f"REG_{register['name']}", f"{_hex(register['offset'])}u", register["doc"])
        for register in what["registers"]])
    define("status codes", [(f"STATUS_{name}", value, what["status_doc"][name])
                            for name, value in what["status"].items()])
    define("opcodes", [(f"OP_{name}", f"0x{value:02X}") for name, value in what["opcodes"].items()])
    define("policies of a PLAN", [(f"POLICY_{name}", value, what["policies_doc"][name])
                                  for name, value in what["policies"].items()])
    define("element types", [(f"ELEMENT_{name}", value)
                             for name, value in what["elements"].items()])
    for kind, flags in what["flags"].items():
        define(kind, [(f"{kind.removesuffix('Flag').upper()}_{name}", f"{value}u",
                       what["flags_doc"][kind][name]) for name, value in flags.items()])
    for key, name, size in _RECORDS:
        lines.extend(("", *_struct(name, what[key], what["constants"][size])))
    lines.extend(("", "#endif", ""))
    return "\n".join(lines)


def _struct(name, fields, size):
    yield f"struct hotrow_{name} {{"
    at = 0
    for offset, sharing in groupby(fields, lambda field: field["offset"]):
        sharing = list(sharing)
        if offset > at:
            yield f"  uint8_t reserved_{at}[{offset - at}];"
        at = offset + sharing[0]["bytes"]
        members = [f"uint{8 * field['bytes']}_t {field['name']}; /* {field['doc']} */"
                   for field in sharing]
        if len(members) == 1:
            yield f"  {members[0]}"
        else:
            yield from ("  union {", *(f"    {member}" for member in members), "  };")
    if size > at:
        yield f"  uint8_t reserved_{at}[{size - at}];"
    yield "};"


def markdown(what: dict) -> str:
    """The reference for readers."""
    lines = [
        "# Registers, commands and lists",
        "",
        "Rendered by `hotrow_rtl.contract.render` from `contract*.py` and `config.py`; edit those.",
        "",
        "All fields are little-endian and unsigned. An *address* packs the handle of a registered",
        "region in bits 63..48 and a byte offset into it in bits 47..0. Rings, batches, lists and",
        f"results start on a multiple of {what['constants']['LIST_ALIGNMENT']} bytes.",
    ]

    def table(*parts):
        lines.extend(_table(*parts))

    table("Registers", ("offset", "name", "access", "meaning"), [
        (f"`0x{register['offset']:03X}`", f"`{register['name']}`",
         register["access"].replace("_", " ").lower(), register["doc"])
        for register in what["registers"]])
    table("Commands", ("opcode", "name", "queue", "operands", "flags", "meaning"), [
        (f"`0x{command['opcode']:02X}`", f"`{command['name']}`", command["queue"],
         ", ".join(f"`{name}`" for name in command["operands"]) or "none",
         f"{command['flags']}" if command["flags"] else "none", command["doc"])
        for command in what["commands"]])
    for kind, flags in what["flags"].items():
        table(kind, ("bit", "name", "meaning"), [
            (value.bit_length() - 1, f"`{name}`", what["flags_doc"][kind][name])
            for name, value in flags.items()], "###")
    table("Policies of a PLAN", ("value", "name", "meaning"), [
        (value, f"`{name}`", what["policies_doc"][name])
        for name, value in what["policies"].items()], "###")
    for key, name, size in _RECORDS:
        title = f"{name.replace('_', ' ').capitalize()}: {what['constants'][size]} bytes"
        table(title, ("byte", "bytes", "field", "meaning"), [
            (field["offset"], field["bytes"], f"`{field['name']}`",
             ("address; " if field["is_address"] else "") + field["doc"])
            for field in what[key]])
    table("Status codes", ("code", "name", "meaning"), [
        (value, f"`{name}`", what["status_doc"][name]) for name, value in what["status"].items()])
    table("Constants", ("name", "value"), [
        ("`IDENTITY`", f"`{_hex(what['identity'])}`"), ("`VERSION`", what["version"]),
        *((f"`{name}`", f"`{_hex(value)}`" if value > 1 << 20 else value)
          for name, value in what["constants"].items())])
    presets = what["presets"]
    table("Presets", ("parameter", *presets), [
        (f"`{parameter}`", *(preset[parameter] for preset in presets.values()))
        for parameter in next(iter(presets.values())) if parameter != "name"])
    return "\n".join(lines) + "\n"


def link_markdown(what: dict) -> str:
    """The reference of a link's frames."""
    constants = what["constants"]
    lines = [
        "# Frames of a link",
        "",
        "Rendered by `hotrow_rtl.contract.render` from `contract_link.py`; edit that.",
        "",
        "A host that shares no memory with its card sends requests and gets one answer each. A",
        f"frame is a header of {constants['HEADER_BYTES']} bytes, a payload of at most "
        f"{constants['LARGEST_PAYLOAD']}, and",
        f"{constants['CRC_BYTES']} bytes of CRC-32 (IEEE 802.3) over both; all fields are "
        "little-endian. Of requests, only",
        f"{' and '.join(f'`{name}`' for name in what['with_payload'])} have a payload. A datagram "
        "carries one frame; on a serial",
        "line frames are separated as in RFC 1055.",
        "",
        "A request is carried out once: the card keeps its last answers, and when a request comes",
        "again it sends the same answer again. A frame that is damaged, of the wrong length, of",
        "another session or out of order changes nothing but a counter.",
    ]

    def fields(key):
        return [(field["offset"], field["bytes"], f"`{field['name']}`", field["doc"])
                for field in what[key]]

    def numbers(key):
        return [(value, f"`{name}`", what[f"{key}_doc"][name]) for name, value in what[key].items()]

    lines += _table("Header", ("byte", "bytes", "field", "meaning"), fields("header"))
    lines += _table("Operations", ("code", "name", "meaning"), numbers("operations"))
    lines += _table("Status", ("code", "name", "meaning"), numbers("status"))
    lines += _table("Payload of the answer to a BIND", ("byte", "bytes", "field", "meaning"),
                    fields("card"))
    lines += _table("Counters", ("byte", "name", "meaning"), [
        (each["offset"], f"`{each['name']}`", each["doc"]) for each in what["counters"]])
    lines += _table("Constants", ("name", "value"), [
        (f"`{name}`", value) for name, value in constants.items()])
    return "\n".join(lines) + "\n"


def _table(title, header, rows, level="##"):
    return ["", f"{level} {title}", "", "| " + " | ".join(header) + " |",
            "|" + "---|" * len(header),
            *("| " + " | ".join(map(str, row)) + " |" for row in rows)]
