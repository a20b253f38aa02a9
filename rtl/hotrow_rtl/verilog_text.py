"""What Amaranth's Verilog needs before simulators and synthesisers get it."""

import re

_MODULE = re.compile(r"^module (\\?\S+?)( ?\(.*?^endmodule\n)", re.MULTILINE | re.DOTALL)
_ZERO_WIDTH = re.compile(r"^\s*(?:input|output|inout)\s+\[-1:0\]\s+(\S+?)\s*;", re.MULTILINE)
# Yosys makes `always @*` run at time 0 by reading a constant; `always_comb` does so by itself.
_WAKE = re.compile(r"^ *(?:reg \\\$auto\$verilog_backend\S+ += 0;"
                   r"|if \(\\\$auto\$verilog_backend\S+ \) begin end)\n", re.MULTILINE)


def refuse_zero_width(text: str) -> None:
    """Refuse ports without bits, which a simulator reads as two.

    Raises
    ------
    ValueError
    """
    if found := _ZERO_WIDTH.search(text):
        raise ValueError(f"port {found[1]} has no bits: every port needs a width of at least 1; "
                         "leave the member out of the signature for this configuration")


def wake_at_time_zero(text: str) -> str:
    """`always_comb` for `always @*`, which Icarus may never run when its inputs are constant."""
    return _WAKE.sub("", text).replace("always @*", "always_comb")


def share_modules(text: str) -> str:
    """Emit a module that is repeated under several names once.

    Amaranth emits every instance as a module of its own. Sharing one may make its parents alike,
    so this goes on until nothing changes.
    """
    while True:
        first, shared = {}, {}
        for name, body in _MODULE.findall(text):
            if first.setdefault(body, name) != name:
                shared[name] = first[body]
        if not shared:
            return text
        text = _MODULE.sub(lambda found: "" if found[1] in shared else found[0], text)
        names = "|".join(map(re.escape, sorted(shared, key=len, reverse=True)))
        text = re.sub(rf"^(  )({names})(?= )", lambda found: "  " + shared[found[2]], text,
                      flags=re.MULTILINE)
