"""The page of Python coverage."""

from hotrow_sim.testing.coverage import page, summaries


def _file(lines, every, branches=0, all_branches=0):
    return {"summary": {"covered_lines": lines, "num_statements": every,
                        "covered_branches": branches, "num_branches": all_branches}}


def test_packages_and_the_files_with_few_lines():
    text = page(summaries({"files": {
        "sw_driver/hotrow/a.py": _file(90, 100, 1, 2), "sw_driver/hotrow/b.py": _file(89, 100),
        "sw_driver/hotrow/torch/c.py": _file(10, 10), "sw_driver/hotrow/torch/d.py": _file(0, 0)}}))
    assert "| hotrow | 89.5% | 50.0% |" in text and "| hotrow/torch | 100.0% | - |" in text
    assert "| all | 90.0% | 50.0% |" in text
    assert text.endswith("| hotrow/b.py | 89.0% | - |\n")
