"""The map of verdicts as a picture: a cell for each workload and system."""

CELL, ROW, LEFT, TOP, GAP = 78, 34, 104, 62, 4  # px
KINDS = {"card": "card, 1.1 times faster or more", "software": "hotrow's software, likewise",
         "neither": "neither", "misfit": "fits nowhere"}
SHORT = {"parameter-servers": "servers", "managed-memory": "managed",
         "prefetching-cache": "prefetching", "frequency-cache": "frequency"}
STYLE = ("text{fill:#223}.cell{fill:#eef0f4}.neither{fill:#b9bec9}.card{fill:#d55e00}"
         ".software{fill:#0072b2}.misfit{fill:none;stroke:#b9bec9}"
         "@media(prefers-color-scheme:dark){text{fill:#e4e7ee}.cell{fill:#2a2e38}"
         ".neither{fill:#666c79}.misfit{stroke:#666c79}}")


def verdict_svg(records) -> str:
    """The picture of `sweeps.verdicts`, for light and dark pages.

    A cell names the fastest placement with all cores free, or the gain of the card that is faster;
    below it is a bar for each number of free cores, in the colour of the verdict.
    """
    workloads = list(dict.fromkeys(each["workload"] for each in records))
    systems = list(dict.fromkeys(each["system"] for each in records))
    cores = list(records[0]["by_free_cores"])
    bar = (CELL - 2 * GAP) // len(cores)
    paths: dict[str, list[str]] = {"cell": [], **{kind: [] for kind in KINDS}}
    texts = [_text(4, TOP + ROW * at + 20, name) for at, name in enumerate(workloads)]
    texts += [_text(LEFT + CELL * at + 4, TOP - 8, name, turned=True)
              for at, name in enumerate(systems)]
    for record in records:
        x = LEFT + CELL * systems.index(record["system"])
        y = TOP + ROW * workloads.index(record["workload"])
        paths["cell"].append(_box(x, y, CELL - GAP, ROW - GAP))
        texts.append(_text(x + GAP, y + 15, _label(record["by_free_cores"][cores[-1]])))
        for at, answer in enumerate(record["by_free_cores"].values()):
            kind = answer["kind"] if answer["seconds"] else "misfit"
            paths[kind].append(_box(x + 3 + bar * at, y + 21, bar - 3, 6))
    x, y = LEFT, TOP + ROW * len(workloads) + 18
    for kind, label in KINDS.items():
        paths[kind].append(_box(x, y - 8, 18, 8))
        texts.append(_text(x + 24, y, label))
        x += 44 + 6 * len(label)
    texts.append(_text(x, y, f"bars: {', '.join(cores)} cores free"))
    drawn = [f'<path class="{kind}" d="{"".join(boxes)}"/>' for kind, boxes in paths.items()]
    return "\n".join((
        '<svg xmlns="http://www.w3.org/2000/svg" font-family="system-ui, sans-serif" role="img" '
        f'viewBox="0 0 {LEFT + CELL * len(systems)} {y + 12}" font-size="11" '
        f'aria-label="map of verdicts"><style>{STYLE}</style>', *drawn, *texts, "</svg>\n"))


def _label(answer):
    if answer["card"] and answer["gain"]:
        return f"{answer['gain']:.1f}x"
    name = (answer["without_card"] or "-").removesuffix(" on one GPU")
    return SHORT.get(name, name)


def _box(x, y, width, height):
    return f"M{x} {y}h{width}v{height}h-{width}z"


def _text(x, y, text, turned=False):
    turn = f' transform="rotate(-25 {x} {y})"' if turned else ""
    return f'<text x="{x}" y="{y}"{turn}>{text}</text>'
