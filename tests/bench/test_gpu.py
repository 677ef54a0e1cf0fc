"""`bench.gpu` once, with tiny sizes; nothing is timed."""

import pytest

from bench import gpu

ARGUMENTS = [
    *("--streams", "1", "2", "--prompt", "40", "--answer", "4", "--lengths", "96"),
    *("--threads", "1", "--gpu-layers", "0"),
]


def test_it_prints_all_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main(ARGUMENTS) == 0
    printed = capsys.readouterr().out
    titles = [line for line in printed.splitlines() if line.startswith("## ")]
    assert len(titles) == 4
    rows = [line.split(" | ") for line in printed.splitlines() if line.startswith("| ")]
    assert [row[0] for row in rows] == [
        *("| streams", "| ---", "| 1", "| 2"),
        *("| tokens", "| ---", "| 96"),
        *("| speculation", "| ---", "| off", "| lookup"),
        *("| tokens a batch", "| ---", "| 1", "| 32", "| 512"),
    ]
