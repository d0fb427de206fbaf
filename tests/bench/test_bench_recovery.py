from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bench.kit.recovery.bound import bound
from bench.kit.recovery.published import PUBLISHED_MS, SIZES_MB
from bench.kit.recovery.ratios import BARS, ratios
from bench.kit.recovery.reads import SmallReads
from bench.kit.recovery.records import Built, Failure, Restore
from bench.kit.recovery.tables import beside_published, rows, steps
from bench.kit.recovery.text import LINE_BYTES, WORDS_PER_LINE, Text, lines, touched, touching


def _words(text: bytes) -> list[bytes]:
    return text.split()


def _host(megabytes: int, arrangement: str, fetch_s: float, **fields: object) -> Failure:
    values: dict[str, object] = {
        "kind": "host",
        "engine": "holdfast",
        "megabytes": megabytes,
        "arrangement": arrangement,
        "rate": "200mbit",
        "repeat": 0,
        "committed_s": 4.0,
        "detected_s": 1.0,
        "usable_s": 1.0 + fetch_s,
        "wire_in": 300_000,
        "wire_out": 200_000,
    }
    return Failure(**(values | fields))  # type: ignore[arg-type]


def test_the_same_lines_always_have_the_same_words_and_most_are_new() -> None:
    text = lines(1000, 500)
    assert text == lines(1000, 500)
    assert len(text) == 500 * LINE_BYTES
    words = _words(text)
    assert len(words) == 500 * WORDS_PER_LINE
    before = set(_words(lines(0, 1000)))
    new = set(words) - before
    assert len(new) == 500 * 9


def test_repeated_words_follow_zipf() -> None:
    counts = Counter(_words(lines(0, 5000)))
    most = [count for _, count in counts.most_common(3)]
    assert most[0] > 2 * counts.most_common(40)[-1][1]
    assert min(counts.values()) == 1


def test_a_text_has_the_size_and_the_counts_it_says(tmp_path: Path) -> None:
    text = Text(1)
    text.write(tmp_path / "cache", tmp_path / "input")
    data = b"".join(path.read_bytes() for path in sorted((tmp_path / "input").iterdir()))
    assert len(data) == pytest.approx(1_000_000, rel=0.001)
    words = _words(data)
    assert (len(words), len(set(words))) == (text.records, text.keys)
    assert not set(_words(text.more(0))) <= set(words)


def test_larger_texts_begin_with_smaller_ones(tmp_path: Path) -> None:
    for size in (10, 20):
        Text(size).write(tmp_path / "cache", tmp_path / f"{size}")
    assert (tmp_path / "10/part-0000.txt").samefile(tmp_path / "20/part-0000.txt")
    assert Text(20).keys == 2 * Text(10).keys


def test_touching_touches_exactly_the_share_of_known_words() -> None:
    known = set(_words(lines(0, 2000)))
    touched = _words(touching(18_000, 0.01))
    assert len(set(touched)) == 180
    assert set(touched) <= known
    assert len(touched) > 180


def test_the_published_sizes_and_figures() -> None:
    assert SIZES_MB == (1, 10, 50, 100, 200, 250, 300, 350, 400, 600)
    assert PUBLISHED_MS[200] == (2359, 4917)
    assert sum(local for local, _ in PUBLISHED_MS.values()) == 30229
    assert sum(remote for _, remote in PUBLISHED_MS.values()) == 42579


def test_the_table_has_the_published_figures_beside_medians_of_ours() -> None:
    built = [Built("holdfast", 200, 8, 6, 1.0, 144_000_000), Built("spark", 200, 8, 6, 9.0)]
    failures = [_host(200, "local", spent) for spent in (1.0, 9.0, 2.0)]
    assert rows(built, failures, "200mbit") == [
        ("200", "8", "6", "144", "2359", "4917", "—", "—", "3000", "—")
    ]
    assert beside_published(built, failures, "200mbit").row_count == 1
    assert steps(failures).row_count == 1


def test_ratios_take_the_worst_of_large_sizes_and_count_all_bytes() -> None:
    failures = [
        _host(100, "local", 1.0, wire_in=9_000_000),
        _host(200, "local", 1.0),
        _host(200, "remote", 8.0, wire_in=150_000_000),
        _host(400, "local", 2.0, wire_in=400_000),
        _host(400, "remote", 10.0),
        _host(200, "local", 0.0, engine="spark", committed_s=40.0),
        _host(200, "remote", 0.0, engine="spark", committed_s=30.0),
        _host(200, "local", 0.0, kind="executor", committed_s=2.0),
        _host(2000, "local", 0.0, kind="executor", committed_s=2.5),
    ]
    restored = [Restore(200, None, 1, 2.0, 10.0, 3.0), Restore(200, None, 60, 4.0, 14.0, 5.0)]
    assert ratios(failures, restored, "200mbit") == {
        "remote_over_local": 5.0,
        "remote_bytes_when_local": 600_000.0,
        "executor_growth": 1.25,
        "spark_over_holdfast": 7.5,
        "spark_over_holdfast_local": 10.0,
        "first_epoch_over_full_restore": 0.4,
    }


def test_what_was_not_measured_has_no_ratio() -> None:
    assert ratios([], [], "200mbit") == dict.fromkeys([*BARS, "spark_over_holdfast_local"])


def test_the_rate_of_reads_that_is_needed_is_the_one_that_halves_the_time() -> None:
    def at(per_second: float) -> tuple[float, float | None]:
        found = bound(Text(10), 0.01, 7_000_000, 25e6, SmallReads(per_second, key_share=0.75))
        return found.least_ratio, found.reads_needed

    slow, needed = at(3_000)
    assert needed is not None
    assert slow > 0.5
    assert at(needed) == (0.5, needed)
    assert at(2 * needed)[0] < 0.5
    # Hashes and values are read in any case.
    assert at(1e12)[0] > 0.25


@pytest.mark.parametrize("piece", [1, 16, 128, 1024])
def test_no_size_of_pieces_beats_the_bound(piece: int) -> None:
    """Keys in pieces of one size, those side by side in one read: a plain way, and never a better one."""
    text, reads = Text(10), SmallReads(3_000, key_share=0.75)
    cold = np.setdiff1d(touched(text.keys, 0.01), text.recent(0.1))
    places = np.sort(np.random.default_rng(1).choice(text.keys, len(cold), replace=False))
    pieces = np.unique(places // piece)
    together = 1 + np.count_nonzero(np.diff(pieces) > 1)
    everything_s = 7_000_000 / 25e6
    time_s = max(0.75 * everything_s * len(pieces) * piece / text.keys, together / reads.per_second)
    least = bound(text, 0.01, 7_000_000, 25e6, reads).least_ratio
    assert 0.5 < least <= round(0.25 + time_s / everything_s, 3)
