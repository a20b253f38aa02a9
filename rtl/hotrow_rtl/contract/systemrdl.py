"""The register map of a card in SystemRDL 2.0, for generators of documents, headers and drivers."""

from ..config import Config
from .registers import Access, registers_of, reset_value, shift

_SOFTWARE = {Access.READ_ONLY: "r", Access.READ_WRITE: "rw", Access.WRITE_ONLY: "w"}


def systemrdl(config: Config) -> str:
    """The registers of a card of that Config, with the values that it reads after a reset.

    A register without fields has one of 32 bits, VALUE.
    """
    registers = sorted(registers_of(config).values(), key=lambda each: each.offset)
    return "\n".join([
        f"// hotrow, configuration {config.name}: written by hotrow_rtl.contract.systemrdl",
        "addrmap hotrow {",
        f'  name = "hotrow, configuration {config.name}";',
        "  littleendian;",
        "  lsb0;",
        "  default regwidth = 32;",
        *(line for register in registers for line in _register(register, config)),
        "};", ""])


def _register(register, config):
    reset = reset_value(register, config)
    yield "  reg {"
    yield f'    desc = "{register.doc}";'
    if not register.fields:
        yield from _field(register, "VALUE", 0xFFFF_FFFF, reset)
    for field in register.fields or ():
        yield from _field(register, field.name, field, reset, field.doc)
    yield f"  }} {register.name} @ 0x{register.offset:03X};"


def _field(register, name, mask, reset, doc=None):
    low = shift(mask)
    constant = register.access is Access.READ_ONLY and reset not in (0, None)
    properties = [f"sw = {_SOFTWARE[register.access]}", f"hw = {_hardware(register, constant)}"]
    if register.clears:
        properties.append("onwrite = woclr")
    if register.pulses & mask:
        properties.append("singlepulse")
    yield "    field {"
    if doc:
        yield f'      desc = "{doc}";'
    yield f"      {'; '.join(properties)};"
    value = "" if reset is None else f" = 0x{(reset & mask) >> low:X}"
    yield f"    }} {name}[{mask.bit_length() - 1}:{low}]{value};"


def _hardware(register, constant):
    """How the card accesses a field."""
    if constant:
        return "na"
    return "r" if register.access is Access.WRITE_ONLY else "rw"
