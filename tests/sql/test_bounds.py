"""Bounds of windows are known through steps, and what can't be told by them is refused."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta, timezone
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.sql import sql
from holdfast.sql.bounds import windows_of
from holdfast.stream import Output
from holdfast.testing import EpochSource
from holdfast.tops import TopStream

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
SCHEMA = "k int, v bigint, ts timestamp"


def tables(source: EpochSource) -> dict[str, hf.Stream]:
    """Results of windows behind steps."""
    rows = hf.stream(source.df).with_watermark("ts", "1 s")
    tens = rows.key_by("k").window(hf.tumbling("10 s")).aggregate(n=hf.count())
    fives = rows.key_by("k").window(hf.tumbling("5 s")).aggregate(n=hf.count())
    hops = rows.key_by("k").window(hf.sliding("10 s", "4 s", offset="1 s")).aggregate(n=hf.count())
    gaps = rows.key_by("k").window(hf.session("2 s")).aggregate(n=hf.count())
    wider = rows.key_by("k").window(hf.session("3 s")).aggregate(n=hf.count())
    start, end = F.col("window_start"), F.col("window_end")
    return {
        "raw": rows,
        "kept": tens.filter("n > 1"),
        "renamed": tens.select("n", start.alias("a"), start.alias("b"), end.alias("e")),
        "twice": tens.select("*", end.alias("e")).union(tens.select("*", end.alias("e"))),
        "swapped": tens.select("n", start.alias("a"), end.alias("e")).union(
            tens.select("n", end.alias("a"), end.alias("e"))
        ),
        "stepped": tens.transform(
            lambda df: df.select("n", "window_start", "window_end").union(
                df.select("n", "window_end", "window_end")
            )
        ),
        "hopped": hops.filter("n > 0"),
        "unlike": tens.union(fives),
        "gaps": gaps.filter("n > 0"),
        "wider": wider.filter("n > 0"),
        "anew": tens.with_column("window_start", F.expr("window_end - INTERVAL 10 SECONDS")),
        "moved": tens.with_column("window_end", F.expr("window_end + INTERVAL 5 SECONDS")),
        "first": tens.key_by("k", "window_start", "window_end").drop_duplicates().filter("n > 0"),
        "endless": tens.select("n", "window_start"),
        "spread": sql(
            "SELECT * FROM TUMBLE(TABLE raw, DESCRIPTOR(ts), INTERVAL '10' SECOND)", raw=rows
        ).rows,
        "spread_on": sql(
            "SELECT v AS n, window_start AS a, window_end, ts FROM HOP(TABLE raw, DESCRIPTOR(ts),"
            " INTERVAL '5' SECOND, INTERVAL '10' SECOND)",
            raw=rows,
        ).filter("n > 1"),
        "spread_late": sql(
            "SELECT * FROM TUMBLE(TABLE raw, DESCRIPTOR(ts), INTERVAL '10' SECOND)", raw=rows
        ).rows.with_column("ts", F.expr("ts + INTERVAL 5 SECONDS")),
        "spread_by_other": sql(
            "SELECT * FROM TUMBLE(TABLE raw, DESCRIPTOR(ts), INTERVAL '10' SECOND)",
            raw=rows.with_column("at", F.expr("ts + INTERVAL 5 SECONDS")),
        ).rows.with_watermark("at", "1 s"),
    }


class Case(NamedTuple):
    """A statement, and what it is in batch where that is another."""

    statement: str
    batch: str | None = None


BOTH = "SELECT window_start, window_end, sum(n) AS n FROM {} GROUP BY window_start, window_end"
START = "SELECT window_start, sum(n) AS n FROM {} GROUP BY window_start"
END = "SELECT window_end, sum(n) AS n FROM {} GROUP BY window_end"
TICK = "TUMBLE({}, INTERVAL '1' SECOND)"
TOP = (
    "SELECT {0}, k, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {0} ORDER BY n DESC, k) AS rn"
    " FROM {1}) WHERE rn = 1"
)
JOINED = (
    "SELECT x.window_start AS s, x.window_end AS e, y.window_end AS other, sum(x.n * y.n) AS n"
    " FROM kept x JOIN hopped y ON x.k = y.k AND y.window_end BETWEEN x.window_end - INTERVAL '3' SECOND"
    " AND x.window_end GROUP BY x.window_start, x.window_end, y.window_end"
)
NEXT = (
    "SELECT x.k, x.window_end AS e, x.n, coalesce(y.n, 0) AS next FROM kept x {} kept y ON x.k = y.k AND"
    " x.window_end = y.window_start"
)
BEGUN = (
    "SELECT gaps.k, gaps.window_end AS one, wider.window_end AS other, wider.n FROM gaps JOIN wider"
    " ON gaps.k = wider.k AND gaps.window_start = wider.window_start"
)
MINUTE = "SELECT {0} AS m, sum(n) AS n FROM {1} GROUP BY {0}"
MINUTE_OF_SPREAD = (
    "SELECT date_trunc('minute', window_start) AS m, sum(v) AS n FROM spread"
    " GROUP BY date_trunc('minute', window_start), window_start"
)

CASES = {
    "filtered": Case(BOTH.format("kept")),
    "filtered_start": Case(START.format("kept")),
    "filtered_end": Case(END.format("kept")),
    "aliases": Case("SELECT a, b, e, sum(n) AS n FROM renamed GROUP BY a, b, e"),
    "one_alias": Case(
        "SELECT b, sum(n) AS n FROM renamed GROUP BY b",
    ),
    "aliases_in_sql": Case(
        "SELECT y, sum(n) AS n FROM (SELECT window_start AS x, window_start AS y, window_end AS z,"
        " window_end AS u, n FROM kept) GROUP BY y, u"
    ),
    "union": Case("SELECT window_start, e, sum(n) AS n FROM twice GROUP BY window_start, e"),
    "one_end": Case("SELECT e, sum(n) AS n FROM swapped GROUP BY e"),
    "key_beside": Case("SELECT a, e, sum(n) AS n FROM swapped GROUP BY a, e"),
    "sliding": Case(BOTH.format("hopped")),
    "sliding_start": Case(START.format("hopped")),
    "made_anew": Case(BOTH.format("anew")),
    "top": Case(TOP.format("window_start", "kept")),
    "top_unlike": Case(TOP.format("window_end", "unlike")),
    "longer": Case(
        "SELECT window_start, TUMBLE_END(window_end, INTERVAL '1' MINUTE) AS till, sum(n) AS n FROM kept"
        " GROUP BY TUMBLE(window_end, INTERVAL '1' MINUTE), window_start",
        "SELECT window_start, timestamp '2026-01-01 00:01:00' AS till, sum(n) AS n FROM kept"
        " GROUP BY window_start",
    ),
    "spread": Case("SELECT window_start, sum(v) AS n FROM spread GROUP BY window_start"),
    "spread_ends": Case(
        "SELECT window_start, sum(n) AS n FROM (SELECT * FROM TUMBLE(TABLE renamed, DESCRIPTOR(e),"
        " INTERVAL '20' SECOND) WHERE window_start <= a) GROUP BY window_start",
        "SELECT w.start, sum(n) AS n FROM (SELECT *, window(a, '20 seconds') AS w FROM renamed) GROUP BY 1",
    ),
    "next_window": Case(NEXT.format("JOIN")),
    "next_window_or_none": Case(NEXT.format("LEFT JOIN")),
    "window_before": Case("SELECT x.k, x.window_end AS e, y.n FROM kept x JOIN kept y ON x.k = y.k AND"
                          " x.window_start = y.window_end"),
    # What the hints of refusals say.
    "hint_begun_together": Case(BEGUN + " AND wider.window_end BETWEEN gaps.window_end - INTERVAL '1' HOUR"
                                " AND gaps.window_end + INTERVAL '1' HOUR", BEGUN),
    "hint_unlike": Case(BOTH.format("unlike") + ", " + TICK.format("unlike.window_end"), BOTH.format("unlike")),
    "hint_sessions": Case(BOTH.format("gaps") + ", " + TICK.format("gaps.window_end"), BOTH.format("gaps")),
    "hint_distinct": Case(START.format("first") + ", " + TICK.format("first.window_end"), START.format("first")),
    "hint_stepped": Case(END.format("stepped") + ", " + TICK.format("stepped.window_end"), END.format("stepped")),
    "hint_minute": Case(MINUTE.format("date_trunc('minute', window_start)", "gaps") + ", gaps.window_end, "
                        + TICK.format("gaps.window_end"),
                        MINUTE.format("date_trunc('minute', window_start)", "gaps") + ", window_end"),
    "hint_minute_of_spread": Case(MINUTE_OF_SPREAD, MINUTE_OF_SPREAD),
    "hint_distinct_rows": Case("SELECT DISTINCT window_start, window_end FROM kept"),
    "hint_distinct_spread": Case("SELECT window_start FROM spread GROUP BY window_start",
                                 "SELECT DISTINCT window_start FROM spread"),
    "hint_joined": Case(JOINED + ", " + TICK.format("x.window_end"), JOINED),
}  # fmt: skip


def made_of(statement: str, streams: dict[str, hf.Stream]) -> hf.Stream | hf.ResultStream:
    """The statement's rows; tables that it doesn't name would be followed for nothing."""
    return sql(statement, **{name: rows for name, rows in streams.items() if name in statement})


@pytest.mark.slow
def test_groups_of_windows_behind_steps_equal_batch(spark: SparkSession, tmp_path: Path) -> None:
    source = EpochSource(spark, SCHEMA)
    streams = tables(source)
    for epoch in range(2):
        seconds = [epoch * 20 + i * 0.7 for i in range(28)]
        source.add([(i % 3, i, BEGIN + timedelta(seconds=s)) for i, s in enumerate(seconds)])
    for minutes in (60, 61):
        source.add([(9, 0, BEGIN + timedelta(minutes=minutes))])
    parts = []
    for name, case in CASES.items():
        made = made_of(case.statement, streams)
        assert made.changes.kind == "append", name
        parts.append(made.write_to(hf.sinks.memory(f"bounds-{name}")))
    query = hf.pipeline(*parts).start(
        "bounds", tmp_path / "ck", trigger="manual", local_dir=tmp_path / "local", partitions=1
    )
    for _ in range(len(source)):
        query.step(timeout=240)
    query.stop()
    views(spark, source)
    in_batch = wanted(spark)
    for name in CASES:
        found = counts(hf.sinks.memory_table(f"bounds-{name}"))
        assert in_batch[name], name
        assert (in_batch[name] - found, found - in_batch[name]) == (Counter(), Counter()), name


def counts(table: pa.Table) -> Counter[tuple[str, ...]]:
    return Counter(tuple(map(text_of, row.values())) for row in table.to_pylist())


def text_of(value: object) -> str:
    """As Spark writes it."""
    text = str(value.replace(tzinfo=None) if isinstance(value, datetime) else value)
    return text.rstrip("0") if "." in text else text


def wanted(spark: SparkSession) -> dict[str, Counter[tuple[str, ...]]]:
    """What the statements give in batch, all of them in one job."""
    frames = []
    for name, case in CASES.items():
        frame = spark.sql(case.batch or case.statement)
        values = F.array(*(F.col(f"`{column}`").cast("string") for column in frame.columns))
        frames.append(frame.select(F.lit(name).alias("name"), values.alias("row")))
    found: dict[str, Counter[tuple[str, ...]]] = {name: Counter() for name in CASES}
    for row in reduce(DataFrame.unionAll, frames).toArrow().to_pylist():
        found[row["name"]][tuple(row["row"])] += 1
    return found


def views(spark: SparkSession, source: EpochSource) -> None:
    """The same tables in batch, of the rows whose windows have closed."""
    rows = source.rows_so_far().filter("k < 9")

    def counted(window: Column) -> DataFrame:
        made = rows.groupBy("k", window.alias("w")).agg(F.count("*").alias("n"))
        bounds = made.selectExpr("k", "w.start AS window_start", "w.end AS window_end", "n")
        # Computed once. And not in one plan with what is made of it: Spark's optimizer takes groups of
        # sessions for the sessions before they were merged.
        return spark.createDataFrame(bounds.coalesce(1).toArrow())

    tens, fives = counted(F.window("ts", "10 seconds")), counted(F.window("ts", "5 seconds"))
    made = {
        "kept": tens.filter("n > 1"),
        "renamed": tens.selectExpr(
            "n", "window_start AS a", "window_start AS b", "window_end AS e"
        ),
        "twice": tens.union(tens).selectExpr("*", "window_end AS e"),
        "swapped": tens.selectExpr("n", "window_start AS a", "window_end AS e").union(
            tens.selectExpr("n", "window_end AS a", "window_end AS e")
        ),
        "stepped": tens.select("n", "window_start", "window_end").union(
            tens.select("n", "window_end", "window_end")
        ),
        "hopped": counted(F.window("ts", "10 seconds", "4 seconds", "1 seconds")),
        "unlike": tens.union(fives),
        "gaps": counted(F.session_window("ts", "2 seconds")),
        "wider": counted(F.session_window("ts", "3 seconds")),
        "anew": tens,
        "spread": rows.withColumn("w", F.window("ts", "10 seconds")).selectExpr(
            "*", "w.start AS window_start", "w.end AS window_end"
        ),
        "first": tens,
    }
    for name, frame in made.items():
        frame.createOrReplaceTempView(name)


ADDED = r"add TUMBLE\((\w+\.)?window_end, INTERVAL '1' SECOND\) to GROUP BY: groups stay the same"
BESIDE = r"add (\w+\.)?window_end and TUMBLE\((\w+\.)?window_end, INTERVAL '1' SECOND\) to GROUP BY"
MADE = [
    "date_trunc('minute', window_start)",
    "CAST(window_start AS timestamp)",
    "coalesce(window_start, window_end)",
    "if(true, window_start, window_end)",
    "struct(window_start).window_start",
    "date_trunc('minute', window_end)",
]
FOR_EVER = ".*For a running aggregate, .*select the expression under a name in a subquery"
JOIN = "kept x JOIN hopped y ON x.k = y.k AND x.window_end = y.window_end"
REFUSED = [
    (START.format("endless"), "GROUP BY window_start, .*select window_end"),
    ("SELECT a, sum(n) AS n FROM spread_on GROUP BY a", "GROUP BY a, which is a bound"),
    (BOTH.format("unlike"), ADDED),
    (END.format("unlike"), ADDED),
    (START.format("unlike"), BESIDE),
    (BOTH.format("gaps"), ADDED),
    (START.format("gaps"), BESIDE),
    (START.format("anew"), BESIDE),
    (START.format("moved"), BESIDE),
    ("SELECT window_start, sum(v) AS n FROM spread_late GROUP BY window_start", "GROUP BY window_start, which is"),
    ("SELECT window_start, sum(v) AS n FROM spread_by_other GROUP BY window_start", "GROUP BY window_start, which is"),
    (TOP.format("window_start", "moved"), "PARTITION BY bounds .*add moved.window_end to PARTITION BY"),
    (START.format("first"), ADDED),
    (START.format("stepped"), BESIDE),
    ("SELECT a, sum(n) AS n FROM swapped GROUP BY a", r"add swapped.e and TUMBLE\(swapped.e, INTERVAL '1' SECOND\)"),
    (START.format("(SELECT n, window_start, window_end FROM kept UNION ALL SELECT n, window_start,"
                  " window_end FROM hopped)"), BESIDE),
    (START.format("(SELECT n, window_start FROM kept UNION ALL SELECT v, ts FROM raw)"), "GROUP BY window_start"),
    ("SELECT a, sum(n) AS n FROM (SELECT window_start AS a, window_start AS b, n FROM kept) GROUP BY a",
     "GROUP BY a, which is a bound"),
    ("SELECT b, sum(n) AS n FROM (SELECT window_start AS a, window_start AS b, n FROM kept) GROUP BY b",
     "GROUP BY b, which is a bound"),
    (f"SELECT y.window_end, count(*) AS n FROM {JOIN} GROUP BY y.window_end",
     r"add x.window_end and TUMBLE\(x.window_end, INTERVAL '1' SECOND\)"),
    ("SELECT y.window_end, count(*) AS n FROM raw x JOIN kept y ON x.k = y.k AND y.window_end BETWEEN x.ts"
     " AND x.ts + INTERVAL '10' SECOND GROUP BY y.window_end", r"TUMBLE\(x.ts, INTERVAL '1' HOUR\)"),
    (f"SELECT x.window_end, count(*) AS n FROM {JOIN.replace('JOIN', 'FULL JOIN')} GROUP BY x.window_end",
     "of a FULL JOIN have no time"),
    (TOP.format("window_start", "unlike"), "PARTITION BY bounds .*add unlike.window_end to PARTITION BY"),
    (TOP.format("window_start", "(SELECT k, window_start, n FROM kept)"), "select window_end in the subquery"),
    (TOP.format("window_end", "(SELECT k, v AS n, window_end FROM TUMBLE(TABLE raw, DESCRIPTOR(ts),"
                " INTERVAL '1' SECOND))"), "the column with the time"),
    *((MINUTE.format(text, "kept"), f"which is made of a bound of windows.*{BESIDE}: .*{FOR_EVER}") for text in MADE),
    (MINUTE.format("date_trunc('minute', window_start)", "gaps"), BESIDE + FOR_EVER),
    (MINUTE.format("CAST(window_end AS string)", "unlike") + ", window_end", "GROUP BY CAST.* " + ADDED),
    (MINUTE.format("date_trunc('minute', window_start)", "endless"),
     "select window_end in the subquery, too, and group by it besides, and if" + FOR_EVER),
    ("SELECT date_trunc('minute', window_start) AS m, sum(v) AS n FROM spread GROUP BY 1",
     r"add spread.window_start to GROUP BY: there is a result for each window" + FOR_EVER),
    ("SELECT date_trunc('minute', a) AS m, sum(n) AS n FROM spread_on GROUP BY 1", "in the SELECT that has the windows" + FOR_EVER),
    ("SELECT date_trunc('minute', y.window_end) AS m, count(*) AS n FROM raw x JOIN kept y ON x.k = y.k AND"
     " y.window_end BETWEEN x.ts AND x.ts + INTERVAL '10' SECOND GROUP BY 1", r"TUMBLE\(x.ts, INTERVAL '1' HOUR\)" + FOR_EVER),
    *((f"SELECT date_trunc('minute', window_start) AS m, sum(v) AS n FROM TUMBLE(TABLE raw, DESCRIPTOR(ts),"
       f" INTERVAL '1' SECOND) GROUP BY {keys}", "group by window_start in its place") for keys in ("1", "1, window_start")),
    ("SELECT DISTINCT window_start FROM kept",
     "DISTINCT of `window_start`, a bound .*add kept.window_end to SELECT: rows stay the same"),
    ("SELECT DISTINCT k, window_start FROM gaps", "add gaps.window_end to SELECT: there is a row for each end"),
    ("SELECT DISTINCT date_trunc('minute', window_start) AS m FROM kept",
     "add kept.window_end to SELECT: there is a row for each end .*SELECT DISTINCT of that"),
    ("SELECT DISTINCT window_start FROM endless", "select window_end in the subquery, too, and here, and if"),
    ("SELECT DISTINCT window_start FROM spread", "say GROUP BY in place of DISTINCT"),
    ("SELECT DISTINCT k, window_end FROM HOP(TABLE raw, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '2' SECOND)",
     "say GROUP BY in place of DISTINCT"),
    ("SELECT DISTINCT window_start + INTERVAL '1' SECOND AS m FROM spread", "add spread.ts to SELECT: there is a row for each time"),
    ("SELECT DISTINCT y.window_end FROM raw x JOIN kept y ON x.k = y.k AND y.window_end BETWEEN x.ts AND x.ts"
     " + INTERVAL '10' SECOND", "add x.ts to SELECT: there is a row for each time"),
    ("SELECT DISTINCT TUMBLE_START(ts, INTERVAL '1' SECOND) AS w, count(*) AS n FROM raw GROUP BY k,"
     " TUMBLE(ts, INTERVAL '1' SECOND)", r"add the end of the windows \(.*TUMBLE_END"),
]  # fmt: skip


@pytest.fixture(scope="module")
def streams(spark: SparkSession) -> dict[str, hf.Stream]:
    return tables(EpochSource(spark, SCHEMA))


@pytest.mark.parametrize(("statement", "words"), REFUSED, ids=[text for text, _ in REFUSED])
def test_bounds_that_tell_no_windows_are_refused(
    streams: dict[str, hf.Stream], statement: str, words: str
) -> None:
    with pytest.raises(hf.InputError, match=words):
        made_of(statement, streams)


@pytest.mark.parametrize(("statement", "kind", "ends"), [
    ("SELECT m, sum(n) AS n FROM (SELECT date_trunc('minute', window_start) AS m, n FROM kept) GROUP BY m",
     "update", False),
    ("SELECT DISTINCT m FROM (SELECT date_trunc('minute', window_start) AS m FROM kept)", "append", False),
    (MINUTE.format("date_trunc('minute', ts)", "(SELECT ts, v AS n FROM raw)"), "update", False),
    ("SELECT DISTINCT date_trunc('minute', window_start) AS m, window_end FROM kept", "append", True),
    ("SELECT DISTINCT k, window_start, window_end FROM gaps", "append", True),
    ("SELECT DISTINCT window_start, ts FROM spread", "append", True),
    ("SELECT DISTINCT y.window_end, x.ts FROM raw x JOIN kept y ON x.k = y.k AND y.window_end BETWEEN x.ts"
     " AND x.ts + INTERVAL '10' SECOND", "append", True),
    ("SELECT DISTINCT n, k FROM kept", "append", False),
])  # fmt: skip
def test_what_is_kept_for_ever_is_asked_for(
    streams: dict[str, hf.Stream], statement: str, kind: str, ends: bool
) -> None:
    """And what hints of refusals say can be followed."""
    made = made_of(statement, streams)
    assert isinstance(made, hf.ResultStream)
    assert (made.changes.kind, made.plan().operator.has_expiry) == (kind, ends)


@pytest.mark.parametrize("statement", [
    "SELECT window_end FROM HOP(TABLE raw, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '2' SECOND) GROUP BY k, window_end",
    "SELECT date_trunc('minute', window_start) AS m, sum(v) AS n FROM TUMBLE(TABLE raw, DESCRIPTOR(ts),"
    " INTERVAL '1' SECOND) GROUP BY window_start",
    "SELECT date_trunc('minute', window_start) AS m, sum(n) AS n FROM kept GROUP BY 1, window_end",
    "SELECT date_trunc('minute', window_start) AS m, sum(n) AS n FROM kept GROUP BY 1, TUMBLE(window_end, INTERVAL '1' MINUTE)",
])  # fmt: skip
def test_expressions_over_bounds_go_with_windows(
    streams: dict[str, hf.Stream], statement: str
) -> None:
    origin = made_of(statement, streams).rows.branches[0].origin
    assert isinstance(origin, Output)
    assert isinstance(origin.of, hf.WindowResultStream)


def test_rows_of_windows_behind_steps_are_numbered_once(streams: dict[str, hf.Stream]) -> None:
    origin = made_of(TOP.format("window_start", "kept"), streams).rows.branches[0].origin
    assert isinstance(origin, Output)
    assert isinstance(origin.of, TopStream)
    assert (origin.of.output_mode, origin.of.until) == ("append", "window_end")


def test_other_columns_are_grouped_as_ever(streams: dict[str, hf.Stream]) -> None:
    for name in ("kept", "unlike", "gaps"):
        made = made_of(f"SELECT k, sum(n) AS n FROM {name} GROUP BY k", streams)
        assert made.changes.kind == "update"


def test_every_alias_of_a_bound_is_known(streams: dict[str, hf.Stream]) -> None:
    windows = windows_of(streams["renamed"])
    assert windows is not None
    assert (windows.spec, windows.starts, windows.ends) == (
        hf.tumbling("10 s"),
        frozenset({"a", "b"}),
        frozenset({"e"}),
    )
