"""What SQL can't do here is refused by name, never left out."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.sql import sql
from holdfast.sql.dialect import parse_statement, text_of
from holdfast.sql.expressions import conjuncts, interval_ms
from holdfast.testing import EpochSource

NEAR = "b.ts BETWEEN a.ts - INTERVAL '1' SECOND AND a.ts"
TUMBLE = "TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' SECOND)"
NUMBERED = "(SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS rn FROM a)"
RUNNING = "(SELECT k, count(*) AS n FROM a GROUP BY k)"

REFUSED = [
    ("SELECT k FROM a ORDER BY k", "ORDER BY is not supported"),
    ("SELECT k FROM a LIMIT 3", "LIMIT is not supported"),
    ("SELECT k FROM a LIMIT 3 OFFSET 2", "(LIMIT|OFFSET) is not supported"),
    ("SELECT k FROM (SELECT k FROM a LIMIT 1)", "LIMIT"),
    ("SELECT k FROM (SELECT k FROM a) TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
    ("SELECT k FROM a SORT BY k", "SORT BY"),
    ("SELECT k FROM a DISTRIBUTE BY k", "DISTRIBUTE BY"),
    ("SELECT k FROM a CLUSTER BY k", "CLUSTER BY"),
    ("SELECT k FROM a TABLESAMPLE (10 PERCENT)", "TABLESAMPLE"),
    ("SELECT /*+ BROADCAST(a) */ k FROM a", "a hint"),
    ("SELECT k FROM a FOR UPDATE", "FOR UPDATE"),
    ("SELECT k INTO z FROM a", "INTO"),
    ("SELECT k FROM a LATERAL VIEW explode(array(1)) t AS e", "LATERAL VIEW"),
    ("SELECT k FROM a JOIN LATERAL (SELECT 1) t", "LATERAL"),
    ("SELECT k FROM a PIVOT (sum(v) FOR k IN (1))", "PIVOT"),
    ("SELECT k FROM a QUALIFY ROW_NUMBER() OVER (ORDER BY k) = 1", "QUALIFY"),
    ("SELECT k, sum(v) OVER (PARTITION BY k) AS s FROM a", "window function sum"),
    ("SELECT k, rank() OVER (PARTITION BY k ORDER BY v) AS r FROM a", "window function rank"),
    ("SELECT k, lag(v) OVER (PARTITION BY k ORDER BY ts) AS r FROM a", "window function lag"),
    ("SELECT sum(v) OVER (ORDER BY ts) AS s, count(*) AS n FROM a", "window function sum"),
    ("SELECT k FROM a WHERE v IN (SELECT v FROM b)", "a subquery in WHERE"),
    ("SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b)", "a subquery in WHERE"),
    ("SELECT k, (SELECT max(v) FROM b) AS m FROM a", "a subquery in SELECT"),
    ("SELECT k FROM a GROUP BY k HAVING count(*) > (SELECT 1 FROM b)", "a subquery in HAVING"),
    ("SELECT k FROM a UNION SELECT k FROM b", "UNION is not supported"),
    ("SELECT k FROM a EXCEPT SELECT k FROM b", "EXCEPT"),
    ("SELECT k FROM a INTERSECT SELECT k FROM b", "INTERSECT"),
    ("SELECT k FROM a UNION ALL SELECT k FROM b ORDER BY k", "ORDER BY"),
    ("SELECT k FROM a UNION ALL SELECT k, v FROM b", "UNION ALL of 1 and of 2 columns"),
    ("INSERT INTO a SELECT k FROM b", "INSERT"),
    ("CREATE TABLE z AS SELECT k FROM a", "CREATE"),
    ("DELETE FROM a", "DELETE"),
    ("DROP TABLE a", "DROP"),
    ("VALUES (1)", "VALUES"),
    ("SELECT 1 AS one", "SELECT without FROM"),
    ("SELECT k FROM VALUES (1) AS t(k)", "VALUES in FROM"),
    ("WITH RECURSIVE r AS (SELECT k FROM a) SELECT k FROM r", "WITH RECURSIVE"),
    ("SELECT k, count(*) AS n FROM a GROUP BY ROLLUP(k)", "ROLLUP"),
    ("SELECT k, count(*) AS n FROM a GROUP BY k WITH ROLLUP", "ROLLUP"),
    ("SELECT k, count(*) AS n FROM a GROUP BY CUBE(k, v)", "CUBE"),
    ("SELECT k, count(*) AS n FROM a GROUP BY GROUPING SETS ((k), ())", "GROUPING SETS"),
    ("SELECT k, count(*) AS n FROM a GROUP BY ALL", "GROUP BY ALL"),
    ("SELECT k, count(DISTINCT v) AS n FROM a GROUP BY k", r"count\(DISTINCT"),
    ("SELECT k, sum(DISTINCT v) AS n FROM a GROUP BY k", r"sum\(DISTINCT"),
    ("SELECT k, median(v) AS n FROM a GROUP BY k", "aggregate MEDIAN"),
    ("SELECT k, percentile(v, 0.5) AS n FROM a GROUP BY k", "aggregate PERCENTILE"),
    ("SELECT k, percentile_cont(0.5) WITHIN GROUP (ORDER BY v) AS n FROM a GROUP BY k", "PERCENTILE"),
    ("SELECT k, collect_list(v) AS n FROM a GROUP BY k", "collect_list without a limit"),
    ("SELECT k, array_agg(v ORDER BY ts) AS n FROM a GROUP BY k", "ARRAY_AGG"),
    ("SELECT k, first(v) IGNORE NULLS AS n FROM a GROUP BY k", "IGNORE NULLS"),
    ("SELECT k, approx_count_distinct(v, 0.1) AS n FROM a GROUP BY k", "APPROX_COUNT_DISTINCT"),
    ("SELECT k, v FROM a GROUP BY k", "'v' is neither in GROUP BY nor in an aggregate"),
    ("SELECT * FROM a GROUP BY k", r"\* with GROUP BY"),
    ("SELECT k FROM a WHERE count(*) > 1", "the aggregate count in WHERE"),
    ("SELECT k FROM a WHERE k > 1 HAVING k > 1", "HAVING without GROUP BY"),
    ("SELECT max(count(*)) AS m FROM a", "the aggregate count in the aggregate max"),
    ("SELECT explode(array(k)) AS e FROM a", "explode"),
    ("SELECT window(ts, '1 minute') AS w FROM a", "Spark's window"),
    ("SELECT k FROM a WHERE k = :p", "the parameter"),
    ("SELECT k + 1 FROM a", "k \\+ 1 has no name"),
    ("SELECT k, v AS k FROM a", "two columns are called 'k'"),
    ("SELECT * EXCEPT (nope) FROM a", "there is no column 'nope'"),
    ("SELECT nope FROM a", "there is no column 'nope'"),
    ("SELECT z.k FROM a", "there is no column 'z.k'"),
    ("SELECT nope(k) AS n FROM a", "Spark can't read"),
    ("SELECT k FROM nope", "there is no table 'nope'"),
    ("SELECT k FROM a AS x(y)", "names 1 columns"),
    ("SELECT k FROM a; SELECT k FROM b", "2 statements"),
    ("SELECT FROM WHERE", "can't be read"),
    (f"SELECT a.k FROM a JOIN b ON {NEAR}", "a join without equal columns"),
    ("SELECT a.k FROM a JOIN b ON a.k = b.k", "a join without a time bound.*b.ts BETWEEN a.ts"),
    ("SELECT a.k FROM a, b", "a join without a time bound"),
    ("SELECT a.k FROM a JOIN b ON a.k = b.k AND b.ts > a.ts", "a second time bound"),
    (f"SELECT a.k FROM a LEFT JOIN b ON a.k = b.k AND {NEAR} AND a.v > b.v", "the condition a.v > b.v"),
    ("SELECT a.k FROM a LEFT JOIN b ON a.k = b.k AND b.ts > a.ts AND b.ts < a.ts", "the bound b.ts > a.ts"),
    ("SELECT a.k FROM a NATURAL JOIN b", "NATURAL"),
    (f"SELECT a.k FROM a RIGHT SEMI JOIN b ON a.k = b.k AND {NEAR}", "RIGHT SEMI JOIN"),
    (f"SELECT v FROM a LEFT JOIN b ON a.k = b.k AND {NEAR}", "column 'v' is in a and b"),
    ("SELECT 1 AS o FROM a JOIN a ON a.k = a.k", "both called 'a'"),
    (f"SELECT a.k FROM a JOIN b ON a.k = b.s AND {NEAR}", "which are int and string"),
    ("SELECT a.k FROM a JOIN b FOR SYSTEM_TIME AS OF a.ts ON a.k = b.k", "a version of a table"),
    (f"SELECT a.k FROM a JOIN {RUNNING} b ON a.k = b.k", "a join of rows that change"),
    (f"SELECT max(n) AS m FROM {RUNNING}", "of rows that change"),
    (f"SELECT DISTINCT n FROM {RUNNING}", "DISTINCT of rows that change"),
    (f"SELECT n FROM {RUNNING} UNION ALL SELECT n FROM {RUNNING}", "UNION ALL of rows that change"),
    (f"SELECT count(*) AS n FROM {NUMBERED} WHERE rn = 1", "of rows that change"),
    (f"SELECT * FROM {NUMBERED}", "ROW_NUMBER.. without a bound"),
    (NUMBERED[1:-1], "ROW_NUMBER.. without a bound"),
    (f"SELECT * FROM {NUMBERED} WHERE rn >= 2", "ROW_NUMBER.. without a bound"),
    (f"SELECT * FROM {NUMBERED} WHERE rn < 1", "true for no row"),
    ("SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k) AS rn FROM a) WHERE rn = 1", "needs an order"),
    ("SELECT k, ROW_NUMBER() OVER (ORDER BY k) + 1 AS n FROM a", "row_number.. in SELECT"),
    ("SELECT * FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY v NULLS LAST) AS rn FROM a) WHERE rn = 1", "NULLS LAST"),
    ("SELECT * FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY v ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)"
     " AS rn FROM a) WHERE rn = 1", "a frame"),
    (f"SELECT k, count(*) AS n FROM {TUMBLE} GROUP BY k", "a window without GROUP BY window_start"),
    (f"SELECT k, window_end, count(*) AS n FROM {TUMBLE} WHERE window_end > ts GROUP BY k, window_end", "window_end in WHERE"),
    ("SELECT k FROM TUMBLE(TABLE a, DESCRIPTOR(k), INTERVAL '1' SECOND)", "the watermark is on 'ts'"),
    ("SELECT k FROM TUMBLE(TABLE c, DESCRIPTOR(ts), INTERVAL '1' SECOND)", "has no watermark"),
    ("SELECT k FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' MONTH)", "no length of time"),
    ("SELECT k FROM TUMBLE(TABLE a, DESCRIPTOR(ts))", "TUMBLE has 0 times"),
    ("SELECT k FROM TUMBLE(TABLE a, INTERVAL '1' SECOND)", "which column has the time"),
    ("SELECT k FROM CUMULATE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '1' HOUR)", "CUMULATE"),
    ("SELECT * FROM range(10)", "the table function RANGE"),
    ("SELECT k FROM SESSION(TABLE a PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' SECOND)", "a SESSION without GROUP BY"),
    ("SELECT v, count(*) AS n FROM SESSION(TABLE a PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' SECOND)"
     " GROUP BY v, window_end", "kept by its PARTITION BY"),
    ("SELECT TUMBLE_START(ts, INTERVAL '2' SECOND) AS w, count(*) AS n FROM a GROUP BY TUMBLE(ts, INTERVAL '1' SECOND)",
     "other windows than GROUP BY"),
    ("SELECT TUMBLE_START(ts, INTERVAL '2' SECOND) AS w FROM a", "TUMBLE_START in SELECT"),
    ("SELECT collect_list(v, 3) AS l FROM c", "goes by event time"),
]  # fmt: skip


@pytest.fixture(scope="module")
def streams(spark: SparkSession) -> dict[str, hf.Stream]:
    """Two streams with a watermark, and one without."""
    schema = "k int, v bigint, s string, ts timestamp"
    bare = hf.stream(EpochSource(spark, schema).df)
    timed = [hf.stream(EpochSource(spark, schema).df).with_watermark("ts", "1 s") for _ in "ab"]
    return {"a": timed[0], "b": timed[1], "c": bare}


@pytest.mark.parametrize(("statement", "words"), REFUSED, ids=[text for text, _ in REFUSED])
def test_it_is_refused(streams: dict[str, hf.Stream], statement: str, words: str) -> None:
    with pytest.raises(hf.InputError, match=words) as caught:
        sql(statement, **streams)
    assert str(caught.value).startswith("SQL: ")


def test_a_table_is_a_stream(streams: dict[str, hf.Stream]) -> None:
    with pytest.raises(hf.InputError, match="table 'a' is DataFrame, no stream"):
        sql("SELECT k FROM a", a=streams["a"].df)  # type: ignore[arg-type]


def test_the_last_operator_itself_is_given_back(streams: dict[str, hf.Stream]) -> None:
    """So that it can be named, and its late rows can be had."""
    statement = f"SELECT k, window_start, window_end, count(*) AS n FROM {TUMBLE} GROUP BY 1, 2, 3"
    counts = sql(statement, a=streams["a"])
    assert isinstance(counts, hf.WindowResultStream)
    assert counts.named("counts").label == "counts"
    running = sql("SELECT s, sum(v) AS v FROM a GROUP BY s", a=streams["a"])
    assert isinstance(running, hf.AggregatedStream)


def test_the_watermark_goes_with_its_column(streams: dict[str, hf.Stream]) -> None:
    renamed = sql("SELECT ts AS at, k FROM a", a=streams["a"]).rows
    assert renamed.watermark is not None
    assert (renamed.watermark.column, renamed.watermark.delay_ms) == ("at", 1000)
    assert sql("SELECT k FROM a", a=streams["a"]).rows.watermark is None


@pytest.mark.parametrize(
    "text",
    ["TRY_CAST(a AS INT)", "LOG(a)", "'it\\'s'", "COLLECT_LIST(x, 10)", "REGEXP_EXTRACT(u, 'a', 1)",
     "TIMESTAMPDIFF(SECOND, a, b)", "TRANSFORM(arr, x -> x + 1)", "a.b.c", "ELEMENT_AT(m, 'k')"],
)  # fmt: skip
def test_expressions_reach_spark_as_they_were_written(text: str) -> None:
    assert text_of(parse_statement(f"SELECT {text} FROM t").expressions[0]) == text


def test_conditions_and_intervals_are_taken_apart() -> None:
    tree = parse_statement("SELECT 1 FROM t WHERE a = 1 AND (b BETWEEN 2 AND 3 AND c) AND (d OR e)")
    parts = [text_of(part) for part in conjuncts(tree.args["where"].this)]
    assert parts == ["a = 1", "b >= 2", "b <= 3", "c", "(d OR e)"]
    lengths = parse_statement(
        "SELECT INTERVAL '1.5' SECOND, INTERVAL 2 MINUTES, INTERVAL '3 hours', -INTERVAL '1' DAY FROM t"
    ).expressions
    assert [int(interval_ms(each)) for each in lengths] == [1500, 120_000, 10_800_000, -86_400_000]
