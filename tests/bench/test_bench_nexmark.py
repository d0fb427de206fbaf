from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.kit.nexmark.data import _handed_on, file_of, generate, is_made, link_input
from bench.kit.nexmark.task import FULL, PARTS, QUERIES, QUICK, Input, jobs_of

ZERO = datetime(2020, 1, 1, tzinfo=timezone.utc)


def _bids(path: Path, rows: list[tuple[int, int, float]]) -> Path:
    auctions, bidders, seconds = zip(*rows, strict=True)
    times = [ZERO + timedelta(seconds=s) for s in seconds]
    table = pa.table(
        {
            "auction": pa.array(auctions, pa.int64()),
            "bidder": pa.array(bidders, pa.int64()),
            "dateTime": pa.array(times, pa.timestamp("us", tz="UTC")),
        }
    )
    pq.write_table(table, path)
    return path


def test_every_query_runs_on_both_engines_and_the_chain_on_one() -> None:
    for sizes in (QUICK, FULL):
        jobs = {job.name: job for job in jobs_of(sizes)}
        assert set(jobs) == {*(f"q{n}" for n in QUERIES), "join", "chain", *PARTS}
        assert all(len(jobs[f"q{n}"].engines) == 2 for n in QUERIES)
        assert all(jobs[name].engines == ("holdfast",) for name in ("chain", *PARTS))


def test_operators_of_the_chain_get_what_those_before_hand_on(tmp_path: Path) -> None:
    files = [
        _bids(tmp_path / "0", [(1, 7, 1.0), (1, 7, 2.0), (1, 8, 3.0), (2, 7, 12.0)]),
        _bids(tmp_path / "1", [(2, 7, 13.0), (2, 7, 25.0)]),
        _bids(tmp_path / "2", [(3, 7, 26.0)]),
    ]
    last = [ZERO + timedelta(seconds=s, milliseconds=-1) for s in (10, 20)]

    counts = [table.to_pylist() for table in _handed_on(files, PARTS[1])]
    assert counts[0] == []
    assert sorted((r["auction"], r["bidder"], r["n"], r["time"]) for r in counts[1]) == [
        (1, 7, 2, last[0]),
        (1, 8, 1, last[0]),
    ]
    # The window's rows came in two epochs.
    assert counts[2] == [{"auction": 2, "bidder": 7, "n": 2, "time": last[1]}]

    most = [table.to_pylist() for table in _handed_on(files, PARTS[2])]
    assert most[1] == [{"auction": 1, "most": 2, "time": last[0]}]


def test_the_sides_of_the_join_are_made_once_and_linked_per_stream(tmp_path: Path) -> None:
    data = Input("join", ("left", "right"), rows=50, epochs=3)
    told: list[int] = []
    assert not is_made(data, tmp_path / "cache")
    generate(data, tmp_path / "cache", told.append)
    generate(data, tmp_path / "cache", told.append)
    assert told == [0, 1, 2, 0, 1, 2]
    assert is_made(data, tmp_path / "cache")
    assert link_input(data, tmp_path / "cache", tmp_path / "input") == 3
    left = pq.read_table(tmp_path / "input" / "left" / file_of(2))
    assert left.column_names == ["key", "left_time", "left_value"]
    before = pq.read_table(tmp_path / "input" / "left" / file_of(1))
    assert max(before["left_time"].to_pylist()) <= min(left["left_time"].to_pylist())
