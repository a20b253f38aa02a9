"""Output for people of every command: 80 columns, results on standard output, no progress bar."""

import pytest
from hotrow.command import cli

LOG = ["--trace", "sample", "--ids", "item,user", "--batch-size", "20"]
TRAIN = ["train", *LOG, "--label", "clicked", "--transport", "model", "--mlp-scale", "0.05",
         "--batches", "6"]
COMMANDS = {  # by name: arguments, and words of the output
    "boards": (["boards"], ("ecpix5", "not used:")),
    "doctor": (["doctor"], ("NumPy", "transports")),
    "hotline": (TRAIN, ("check held", "samples wholly hot")),
    "scratchpipe": ([*TRAIN, "--mode", "scratchpipe"], ("check held", "slots, policy lru")),
    "freqcache": ([*TRAIN, "--mode", "freqcache"], ("check held", "slots, policy lfu")),
    "resident": ([*TRAIN, "--mode", "resident"], ("check held",)),
    "explore": (["explore", *LOG, "--card", "none"], ("projected", "per table:", "report.html")),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_output_for_people(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    arguments, words = COMMANDS[name]
    if name == "explore":
        from hotrow_explore import sweeps
        monkeypatch.setattr(sweeps, "SWEEPS", {"batch": sweeps.SWEEPS["batch"]})
    assert cli.main(arguments) == 0
    shown, err = capsys.readouterr()
    assert max(map(len, shown.splitlines())) <= 80
    for word in words:
        assert word in " ".join(shown.split()), word
    assert "━" not in err and "nan" not in shown.lower()


def test_every_command_has_such_a_test():
    """`demo`, `bench`, `generate`, `card` and the tools of boards have their own."""
    covered = {arguments[0] for arguments, _ in COMMANDS.values()}
    assert set(cli.commands()) == covered | {
        "compare", "demo", "bench", "example", "generate", "card", "build", "flash"}
