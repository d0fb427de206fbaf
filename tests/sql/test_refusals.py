"""What SQL can't do here is refused by name, never left out."""

from __future__ import annotations

import re

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import pandas_udf

import holdfast as hf
from holdfast.joins import JoinedStream
from holdfast.sql import sql
from holdfast.sql.dialect import parse_statement, text_of
from holdfast.sql.expressions import conjuncts, interval_ms
from holdfast.sql.timing import _SHAPES
from holdfast.stream import Output, result_of
from holdfast.testing import EpochSource
from holdfast.tops import TopStream

NEAR = "b.ts BETWEEN a.ts - INTERVAL '1' SECOND AND a.ts"
TUMBLE = "TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' SECOND)"
HOP = "HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '2' SECOND)"
NUMBERED = "(SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) AS rn FROM a)"
RUNNING = "(SELECT k, count(*) AS n FROM a GROUP BY k)"

COUNTED = f"(SELECT k, window_start, window_end, count(*) AS n FROM {TUMBLE} GROUP BY 1, 2, 3)"
LONGER = COUNTED.replace("INTERVAL '1' SECOND", "INTERVAL '3' SECOND")
SESSIONS = (
    "(SELECT k, window_start, window_end, count(*) AS n FROM SESSION(TABLE a PARTITION BY k,"
    " DESCRIPTOR(ts), INTERVAL '1' SECOND) GROUP BY k, window_start, window_end)"
)

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
    ("SELECT k FROM a LATERAL VIEW explode(array(1)) t AS e", "LATERAL VIEW .*before, of the rows of FROM"),
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
    ("SELECT *, (SELECT max(v) FROM b) AS m FROM a", "a subquery in SELECT"),
    ("SELECT k FROM a GROUP BY k HAVING count(*) > (SELECT 1 FROM b)", "a subquery in HAVING"),
    ("SELECT k FROM a UNION SELECT k FROM b", "UNION is not supported"),
    ("SELECT k FROM a EXCEPT SELECT k FROM b", "EXCEPT is .*DISTINCT with a LEFT ANTI JOIN"),
    ("SELECT k FROM a INTERSECT SELECT k FROM b", "INTERSECT is .*DISTINCT with a LEFT SEMI JOIN"),
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
    ("SELECT k, count(DISTINCT v) AS n FROM a GROUP BY k", r"count\(DISTINCT.*or count\(x\) of the rows of SELECT DISTINCT"),
    ("SELECT k, sum(DISTINCT v) AS n FROM a GROUP BY k", r"sum\(DISTINCT"),
    ("SELECT k, median(v) AS n FROM a GROUP BY k", "aggregate MEDIAN"),
    ("SELECT k, percentile(v, 0.5) AS n FROM a GROUP BY k", "aggregate PERCENTILE"),
    ("SELECT k, percentile_cont(0.5) WITHIN GROUP (ORDER BY v) AS n FROM a GROUP BY k",
     "the aggregate PERCENTILE_CONT.*write a hf.BatchProcess"),
    ("SELECT k, listagg(s) WITHIN GROUP (ORDER BY v) AS n FROM a GROUP BY k", "LISTAGG.*hf.BatchProcess"),
    ("SELECT k, own_sum(v) AS n FROM a GROUP BY k", "own_sum is no aggregate.*of your own are not supported"),
    ("SELECT k, upper(own_sum(v)) AS n FROM a GROUP BY k", "own_sum is no aggregate"),
    ("SELECT k, nope(v) AS n FROM a GROUP BY k", "nope is no aggregate that there is here"),
    ("SELECT own_sum(v) AS n FROM a", "an aggregate of your own is not supported"),
    ("SELECT own_sum(v) AS n, k FROM a", "an aggregate of your own is not supported"),
    ("SELECT k, kurtosis(v) AS n FROM a GROUP BY k", "the aggregate KURTOSIS.*write a hf.BatchProcess"),
    ("SELECT corr(k, v) AS n, bit_or(v) AS o FROM a", "the aggregate CORR.*write a hf.BatchProcess"),
    ("SELECT max(k, v) AS n FROM a", r"the aggregate MAX\(`k`, `v`\) is not supported$"),
    (f"SELECT own_sum(n) AS n FROM {COUNTED}", "an aggregate of your own is not supported"),
    ("SELECT k, upper(s) AS n FROM a GROUP BY k", "'s' is neither in GROUP BY nor in an aggregate"),
    ("SELECT k, collect_list(v) AS n FROM a GROUP BY k", "collect_list without a limit"),
    ("SELECT k, array_agg(v ORDER BY ts) AS n FROM a GROUP BY k", "ARRAY_AGG"),
    ("SELECT k, first(v) IGNORE NULLS AS n FROM a GROUP BY k",
     r"IGNORE NULLS.*say first\(`v`\) FILTER \(WHERE `v` IS NOT NULL\)"),
    ("SELECT k, last(v, true) AS n FROM a GROUP BY k", r"say last\(`v`\) FILTER \(WHERE `v` IS NOT NULL\)"),
    ("SELECT k, first(v, false) AS n FROM a GROUP BY k", r"say first\(`v`\): nulls count$"),
    ("SELECT k, last_value(v, true) AS n FROM a GROUP BY k", r"say last\(`v`\) FILTER \(WHERE `v` IS NOT NULL\)"),
    ("SELECT k, first(v, true) FILTER (WHERE k > 1 OR k < 0) AS n FROM a GROUP BY k",
     r"say first\(`v`\) FILTER \(WHERE `v` IS NOT NULL AND \(`k` > 1 OR `k` < 0\)\)"),
    ("SELECT k, first(v) RESPECT NULLS AS n FROM a GROUP BY k", "leave out RESPECT NULLS: nulls count"),
    ("SELECT k, approx_count_distinct(v, 0.1) AS n FROM a GROUP BY k", "APPROX_COUNT_DISTINCT"),
    ("SELECT k, v FROM a GROUP BY k", "'v' is neither in GROUP BY nor in an aggregate"),
    ("SELECT * FROM a GROUP BY k", r"\* with GROUP BY"),
    ("SELECT k FROM a WHERE count(*) > 1", "the aggregate count in WHERE"),
    ("SELECT k FROM a WHERE k > 1 HAVING k > 1", "HAVING without GROUP BY"),
    ("SELECT max(count(*)) AS m FROM a", "the aggregate count in the aggregate max"),
    ("SELECT explode(array(k)) AS e FROM a", r"explode is .*behind: hf.sql\(...\).transform"),
    ("SELECT window(ts, '1 minute') AS w FROM a", "Spark's window"),
    ("SELECT count(*) AS n FROM a GROUP BY window(ts, '1 hour')",
     r"Spark's window\(...\) is .*say GROUP BY TUMBLE\(ts, INTERVAL '1 hour'\), and in SELECT TUMBLE_START"),
    ("SELECT window.start AS w, count(*) AS n FROM a GROUP BY k, window(ts, '1 hour', '5 minutes')",
     r"say GROUP BY HOP\(ts, INTERVAL '5 minutes', INTERVAL '1 hour'\)"),
    ("SELECT count(*) AS n FROM a GROUP BY session_window(ts, '5 minutes')",
     r"say GROUP BY SESSION\(ts, INTERVAL '5 minutes'\)"),
    ("SELECT count(*) AS n FROM a GROUP BY window(ts, '10 minutes', '5 minutes', '1 minute')",
     r"say GROUP BY HOP\(ts, INTERVAL '5 minutes', INTERVAL '10 minutes', INTERVAL '1 minute'\), and in SELECT HOP_START"),
    ("SELECT count(*) AS n FROM a GROUP BY window(ts, INTERVAL 2 HOURS)", r"TUMBLE\(ts, INTERVAL '2' HOURS\)"),
    ("SELECT count(*) AS n FROM a GROUP BY window(ts, concat('1', ' hour'))", "must be constant here, each written as an"),
    ("SELECT count(*) AS n FROM a GROUP BY session_window(ts, CASE WHEN k = 1 THEN '1 s' ELSE '2 s' END)",
     r"the gap of a SESSION must be constant here; [^0-9]*$"),
    ("SELECT count(*) AS n FROM a GROUP BY window(timestamp => ts, windowDuration => '1 hour')",
     r"say GROUP BY TUMBLE\(time, size\), HOP.* arguments have no names here"),
    ("SELECT count(*) AS n FROM a GROUP BY window(date_trunc('hour', ts), '1 hour')",
     "windows are by the column of the watermark: compute what this is by in a step before"),
    ("SELECT window(ts, '1 month', '2 days') AS w FROM a", "months and years differ in length: windows are of WEEK"),
    ("SELECT k FROM a INTERSECT ALL SELECT k FROM b", "INTERSECT ALL is not .*nothing equal here: write"),
    ("SELECT k FROM a EXCEPT ALL SELECT k FROM b", "EXCEPT ALL is not .*nothing equal here: write"),
    ("SELECT k FROM a INTERSECT SELECT k FROM b", "rows with NULL, which equals NULL in INTERSECT and nothing in ON"),
    ("SELECT s -> 'a' AS x FROM a", "get_json_object.*without its quotes, as ->> does"),
    ("SELECT k FROM a WHERE k = :p", "the parameter"),
    ("SELECT k + 1 FROM a", "k \\+ 1 has no name"),
    ("SELECT k, v AS k FROM a", "two columns are called 'k'"),
    ("SELECT * EXCEPT (nope) FROM a", "there is no column 'nope'"),
    ("SELECT * EXCEPT (st.v) FROM (SELECT v, named_struct('v', v, 'w', v) AS st FROM a)",
     r"EXCEPT \(st.v\) is not supported.*struct\(st.x, ...\) AS st"),
    ("SELECT k FROM (SELECT k, named_struct('rn', v) AS st, ROW_NUMBER() OVER (ORDER BY v) AS rn FROM a)"
     " WHERE st.rn <= 2", r"ROW_NUMBER\(\) without a bound, as 'rn'"),
    ("SELECT nope FROM a", "there is no column 'nope'"),
    ("SELECT z.k FROM a", "there is no column 'z.k'"),
    ("SELECT nope(k) AS n FROM a", "Spark can't read"),
    ("SELECT k FROM nope", "there is no table 'nope'"),
    ("SELECT k FROM a AS x(y)", "names 1 columns"),
    ("SELECT k FROM a; SELECT k FROM b", "2 statements"),
    ("SELECT FROM WHERE", "can't be read"),
    (f"SELECT a.k FROM a JOIN b ON {NEAR}", "a join without equal columns"),
    ("SELECT a.k FROM a JOIN b ON a.k = b.k", "a join without a time bound.*b.ts BETWEEN a.ts - INTERVAL 'x' SECOND"),
    (f"SELECT x.k FROM {COUNTED} x JOIN {COUNTED} y ON x.k = y.k",
     "a join without a time bound .*results of the same window add: AND y.window_end = x.window_end"),
    (f"SELECT x.k FROM {SESSIONS} x JOIN {SESSIONS} y ON x.k = y.k", "a join without a time bound .*say how far apart"),
    (f"SELECT x.k FROM {SESSIONS} x JOIN {SESSIONS} y ON x.k = y.k AND x.window_start = y.window_start",
     "a join without a time bound .*say how far apart .*: AND y.window_end BETWEEN x.window_end - INTERVAL 'x' SECOND"),
    (f"SELECT x.k FROM {SESSIONS} x JOIN {SESSIONS} y USING (k, window_start)", "a join without a time bound .*say how far apart"),
    (f"SELECT x.k FROM {COUNTED} x JOIN {COUNTED} y ON x.k = y.k AND x.window_start < y.window_start",
     "a join without a time bound .*say how far apart"),
    (f"SELECT x.k FROM {COUNTED} x JOIN {COUNTED} y ON x.k = y.k AND x.window_start + INTERVAL '1' SECOND = y.window_start",
     "a join without a time bound .*say how far apart"),
    (f"SELECT x.k FROM {COUNTED} x JOIN {COUNTED} y ON x.k = y.k AND x.window_end < y.window_end",
     "a join without a second time bound .*say how far apart"),
    (f"SELECT x.k FROM {COUNTED} x JOIN {LONGER} y ON x.k = y.k",
     "a join without a time bound .*say how far apart"),
    (f"SELECT x.k FROM (SELECT k, window_start FROM {COUNTED}) x JOIN {COUNTED} y USING (window_start)",
     "the left side of the join has no watermark.*select window_end in the subquery, too"),
    ("SELECT a.k FROM a, b", "a join without a time bound .*have equal columns, such as AND a.k = b.k"),
    ("SELECT a.k FROM a JOIN b ON a.k = b.k AND b.ts > a.ts", "a second time bound"),
    (f"SELECT a.k FROM a LEFT JOIN b ON a.k = b.k AND {NEAR} AND a.v > b.v", "the condition a.v > b.v .*only inner"),
    (f"SELECT a.k FROM a LEFT JOIN b ON a.k = b.k AND {NEAR} AND a.v > 1", "the condition a.v > 1 .*only inner joins"),
    (f"SELECT a.k FROM a LEFT JOIN b ON a.k = b.k AND {NEAR} AND b.v > 1", "the condition b.v > 1 .*in a subquery"),
    (f"SELECT a.k FROM a FULL JOIN b ON a.k = b.k AND {NEAR} AND b.v > 1", "the condition b.v > 1 .*only inner joins"),
    ("SELECT a.k FROM a LEFT JOIN b ON a.k = b.k AND b.ts > a.ts AND b.ts < a.ts",
     r"the bound b.ts > a.ts .*x > y is x >= y \+ INTERVAL '1' MILLISECOND"),
    ("SELECT a.k FROM a ASOF JOIN b ON a.k = b.k", "ASOF JOIN"),
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
    (f"SELECT k AS change FROM {NUMBERED} WHERE rn = 1", "a column is called 'change', as the one"),
    (f"SELECT * FROM {NUMBERED}", "ROW_NUMBER.. without a bound"),
    (NUMBERED[1:-1], "ROW_NUMBER.. without a bound"),
    (f"SELECT * FROM {NUMBERED} WHERE rn >= 2", "ROW_NUMBER.. without a bound"),
    ("SELECT rn FROM (SELECT v, ROW_NUMBER() OVER (ORDER BY v) AS rn FROM a) x(rn, r) WHERE rn < 3",
     "ROW_NUMBER.. without a bound, as 'r',.*say WHERE r <= n"),
    (f"SELECT * FROM {NUMBERED} WHERE rn < 1", "true for no row"),
    ("SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k) AS rn FROM a) WHERE rn = 1", "needs an order"),
    ("SELECT k, ROW_NUMBER() OVER (ORDER BY k) + 1 AS n FROM a", "row_number.. in SELECT"),
    ("SELECT * FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY v NULLS LAST) AS rn FROM a) WHERE rn = 1", "NULLS LAST"),
    ("SELECT * FROM (SELECT *, ROW_NUMBER() OVER (ORDER BY v ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)"
     " AS rn FROM a) WHERE rn = 1", "a frame"),
    (f"SELECT k, count(*) AS n FROM {TUMBLE} GROUP BY k", "a window without GROUP BY window_start"),
    (f"SELECT window_start, sum(n) AS n FROM (SELECT window_start, n FROM {COUNTED}) GROUP BY window_start",
     "GROUP BY window_start, which is a bound of windows, .*select window_end in the subquery, too"),
    (f"SELECT s, sum(n) AS n FROM (SELECT window_start AS s, n FROM {COUNTED}) GROUP BY s", "GROUP BY s, which is a bound"),
    (f"SELECT window_start, count(*) AS n FROM (SELECT window_start FROM {TUMBLE}) GROUP BY 1", "which is a bound"),
    (f"SELECT window_start, window_end, sum(n) AS n FROM {SESSIONS} GROUP BY 1, 2", r"add TUMBLE\(window_end, .*groups stay the same"),
    (f"SELECT x.window_end, sum(x.n) AS n FROM {COUNTED} x JOIN {COUNTED} y ON x.k = y.k AND"
     " x.window_end = y.window_end GROUP BY x.window_end", r"which is a bound .*add TUMBLE\(x.window_end,"),
    ("SELECT window_start, count(*) AS n FROM (SELECT * FROM HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '1' SECOND,"
     " INTERVAL '2' SECOND)) GROUP BY window_start", "in the SELECT that has the windows in FROM"),
    (f"SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start ORDER BY n) AS rn FROM"
     f" (SELECT window_start, n FROM {COUNTED})) WHERE rn = 1", "PARTITION BY bounds of windows .*select window_end in the subquery"),
    (f"SELECT k, window_end, count(*) AS n FROM {TUMBLE} WHERE window_end > ts GROUP BY k, window_end",
     r"window_end in WHERE .*in a subquery, \(SELECT \* FROM TUMBLE\(...\)\), and group those"),
    (f"SELECT k, window_end, count(*) AS n FROM {HOP} WHERE window_end > ts GROUP BY k, window_end", r"WHERE .*\.apply\("),
    (f"SELECT k, window_end FROM {HOP} WHERE window_end > now() GROUP BY k, window_end", "window_end in WHERE .*say HAVING"),
    (f"SELECT window_start, max(v) FILTER (WHERE window_end > ts) AS n FROM {TUMBLE} GROUP BY window_start",
     "window_end in an aggregate .*in a subquery"),
    ("SELECT k FROM TUMBLE(TABLE a, DESCRIPTOR(k), INTERVAL '1' SECOND)", "the watermark is on 'ts'"),
    ("SELECT k FROM TUMBLE(TABLE c, DESCRIPTOR(ts), INTERVAL '1' SECOND)", "has no watermark"),
    ("SELECT k FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' MONTH)", "no length of time"),
    ("SELECT k FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1 hour 30')", "Spark can't read .*'1 hour 30'"),
    ("SELECT k FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1_0' SECOND)", "Spark can't read .*1_0"),
    ("SELECT k FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1/0' SECOND)", "no length of time"),
    ("SELECT k FROM TUMBLE(TABLE a, DESCRIPTOR(ts))", "TUMBLE has 0 times"),
    ("SELECT k FROM TUMBLE(TABLE a, INTERVAL '1' SECOND)", "which column has the time"),
    ("SELECT k FROM TUMBLE(TABLE (SELECT k, ts FROM a), DESCRIPTOR(ts), INTERVAL '1' SECOND)",
     r"a subquery in TUMBLE is .*in WITH t AS \(...\), and say TUMBLE\(TABLE t"),
    ("SELECT k FROM CUMULATE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '1' HOUR)", "CUMULATE"),
    ("SELECT * FROM a, explode(array(1))", r"the table function EXPLODE.*before, of the rows of FROM"),
    ("SELECT k FROM a CROSS JOIN UNNEST(array(1)) AS t(x)", "UNNEST in FROM .*before, of the rows of FROM"),
    ("SELECT * FROM range(10)", "the table function RANGE"),
    ("SELECT k FROM SESSION(TABLE a PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' SECOND)", "a SESSION without GROUP BY"),
    ("SELECT v, count(*) AS n FROM SESSION(TABLE a PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' SECOND)"
     " GROUP BY v, window_end", "kept by its PARTITION BY"),
    ("SELECT TUMBLE_START(ts, INTERVAL '2' SECOND) AS w, count(*) AS n FROM a GROUP BY TUMBLE(ts, INTERVAL '1' SECOND)",
     "other windows than GROUP BY"),
    ("SELECT TUMBLE_START(ts, INTERVAL '2' SECOND) AS w FROM a", "TUMBLE_START in SELECT"),
    ("SELECT HOP_END(ts, INTERVAL '1' SECOND, INTERVAL '2' SECOND) AS w, count(*) AS n FROM a",
     r"HOP_END in SELECT .*say GROUP BY HOP\(`ts`, INTERVAL '1' SECOND, INTERVAL '2' SECOND\), and in SELECT HOP_START"),
    ("SELECT TUMBLE(ts, INTERVAL '2' SECOND) AS w, count(*) AS n FROM a GROUP BY 1", "TUMBLE in SELECT .*TUMBLE_START and"),
    ("SELECT k, any(v > 1) AS n FROM a GROUP BY k", r"ANY\(`v` > 1\) in SELECT .*say bool_or"),
    ("SELECT count(*) AS n FROM a GROUP BY (k, v)", r"GROUP BY \(k, v\) is .*leave out the parentheses"),
    ("SELECT t.* FROM (SELECT struct(k, v) AS t, ts FROM a)", r"t\.\* is not supported.*name the fields, as in t\.x"),
    ("SELECT sum(x) AS n FROM (SELECT window_end AS ts, n AS x FROM w UNION ALL SELECT ts, v FROM a) GROUP BY"
     " TUMBLE(ts, INTERVAL '1' SECOND)", "the stream has no watermark"),
    ("SELECT collect_list(v, 3) AS l FROM c", "goes by event time"),
    (f"SELECT window_end, sum(n) AS n FROM {COUNTED.replace('TABLE a', 'TABLE late')} GROUP BY 1",
     r"results of windows that have several each\).*leave out allowed_lateness"),
]  # fmt: skip


@pytest.fixture(scope="module")
def streams(spark: SparkSession) -> dict[str, hf.Stream]:
    """Two streams with a watermark, and one without."""
    spark.udf.register("own_sum", pandas_udf(own_sum, "bigint"))  # type: ignore[call-overload]
    schema = "k int, v bigint, s string, ts timestamp"
    bare = hf.stream(EpochSource(spark, schema).df)
    timed = [hf.stream(EpochSource(spark, schema).df).with_watermark("ts", "1 s") for _ in "ab"]
    windows = timed[0].key_by("k").window(hf.tumbling("1 s")).aggregate(n=hf.count())
    late = bare.with_watermark("ts", "1 s", allowed_lateness="1 s")
    return {"a": timed[0], "b": timed[1], "c": bare, "w": windows.filter("n > 1"), "late": late}


def own_sum(values: pd.Series) -> int:
    """An aggregate of somebody's own."""
    return int(values.sum())


@pytest.mark.parametrize(("statement", "words"), REFUSED, ids=[text for text, _ in REFUSED])
def test_it_is_refused(streams: dict[str, hf.Stream], statement: str, words: str) -> None:
    with pytest.raises(hf.InputError, match=words) as caught:
        sql(statement, **streams)
    assert str(caught.value).startswith("SQL: ")


def without_names(statement: str) -> str:
    """The statement without AS in its SELECT."""
    made, depth = "", 0
    parts = iter(re.split(r"([()]| FROM | AS \w+)", statement))
    for part in parts:
        depth += {"(": 1, ")": -1}.get(part, 0)
        if depth == 0 and part == " FROM ":
            return made + part + "".join(parts)
        made += "" if depth == 0 and part.startswith(" AS ") else part
    return made


# Two of these are about the names themselves.
UNNAMED = [
    (bare, words)
    for statement, words in REFUSED
    if statement.startswith("SELECT") and " is called " not in words and " are called " not in words
    if (bare := without_names(statement)) != statement
]


@pytest.mark.parametrize(("statement", "words"), UNNAMED, ids=[text for text, _ in UNNAMED])
def test_it_is_refused_by_the_same_words_without_names(
    streams: dict[str, hf.Stream], statement: str, words: str
) -> None:
    """A name would not help: who gave one would be refused once more."""
    test_it_is_refused(streams, statement, words)


def test_what_can_be_done_needs_a_name(streams: dict[str, hf.Stream]) -> None:
    numbered = "SELECT k, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v) FROM a"
    with pytest.raises(
        hf.InputError, match=r"without a bound, .*select it AS rn, and say WHERE rn <= n"
    ):
        sql(numbered, **streams)
    for statement in (
        "SELECT k + 1, count(*), v FROM a GROUP BY 1, 3",
        "SELECT k + 1, v + 2 FROM a UNION ALL SELECT k, v FROM b",
        "SELECT k AS j, v FROM b UNION ALL SELECT k + 1, v + 2 FROM a",
        "WITH t AS (SELECT k + 1 FROM a) SELECT * FROM t",
        "SELECT DISTINCT k + 1, k + 1 FROM a",
    ):
        with pytest.raises(hf.InputError, match=r"k \+ 1 has no name.*k \+ 1 AS some_name"):
            sql(statement, **streams)
    with pytest.raises(hf.InputError, match=r"ROW_NUMBER\(\) OVER .* has no name"):
        sql(f"SELECT * FROM ({numbered}) WHERE k < 3", **streams)


AGGREGATES = [
    "count(*)", "count(v)", "sum(v)", "avg(v)", "mean(v)", "min(v)", "max(v)", "stddev(v)", "std(v)",
    "stddev_samp(v)", "stddev_pop(v)", "variance(v)", "var_samp(v)", "var_pop(v)", "bool_and(v > 1)",
    "every(v > 1)", "bool_or(v > 1)", "some(v > 1)", "count_if(v > 1)", "min_by(v, ts)", "max_by(v, ts)",
    "any_value(v)", "approx_count_distinct(v)", "first(v)", "last(v)", "collect_list(v, 9)", "collect_set(v, 9)",
]  # fmt: skip


@pytest.mark.parametrize("condition", ["", " FILTER (WHERE k > 1)"])
def test_every_aggregate_of_the_documentation_is_read(
    streams: dict[str, hf.Stream], condition: str
) -> None:
    items = [f"{text}{condition} AS x{number}" for number, text in enumerate(AGGREGATES)]
    found = sql(f"SELECT k, {', '.join(items)} FROM a GROUP BY k", a=streams["a"])
    assert len(found.rows.df.columns) == 1 + len(AGGREGATES)


def test_a_table_is_a_stream(streams: dict[str, hf.Stream]) -> None:
    with pytest.raises(hf.InputError, match="table 'a' is DataFrame, no stream"):
        sql("SELECT k FROM a", a=streams["a"].df)  # type: ignore[arg-type]


def test_what_is_passed_is_refused_in_words(streams: dict[str, hf.Stream]) -> None:
    with pytest.raises(hf.InputError, match=r"hf\.sql takes a statement, not 5"):
        sql(5, a=streams["a"])  # type: ignore[arg-type]
    with pytest.raises(hf.InputError, match="two tables are called 'a'"):
        sql("SELECT k FROM a", a=streams["a"], A=streams["b"])
    top = streams["a"].key_by("k").top(1, by="v")
    with pytest.raises(hf.InputError, match="a step has left out the column 'change'"):
        sql("SELECT k FROM a", a=top.select("k"))


def test_the_last_operator_itself_is_given_back(streams: dict[str, hf.Stream]) -> None:
    """So that it can be named, and its late rows can be had."""
    statement = f"SELECT k, window_start, window_end, count(*) AS n FROM {TUMBLE} GROUP BY 1, 2, 3"
    counts = sql(statement, a=streams["a"])
    assert isinstance(counts, hf.WindowResultStream)
    assert counts.named("counts").label == "counts"
    running = sql("SELECT s, sum(v) AS v FROM a GROUP BY s", a=streams["a"])
    assert isinstance(running, hf.AggregatedStream)


def test_hints_of_joins_have_no_length_that_could_be_taken_over(
    streams: dict[str, hf.Stream],
) -> None:
    """Who follows a hint must not get other pairs."""
    with pytest.raises(hf.InputError) as caught:
        sql("SELECT a.k FROM a JOIN b ON a.k = b.k", **streams)
    hint = caught.value.hint or ""
    assert not any(letter.isdigit() for letter in hint)
    assert "Pairs further apart are left out" in hint


@pytest.mark.parametrize("shape", _SHAPES.values())
def test_hints_of_windows_can_be_followed(streams: dict[str, hf.Stream], shape: str) -> None:
    call = shape.replace("TABLE t", "TABLE a")
    sql(f"SELECT k, window_end, count(*) AS n FROM {call} GROUP BY k, window_end", a=streams["a"])


@pytest.mark.parametrize("window", [
    "window(ts, '1 hour 30 minutes')",
    "window(ts, '1 hour', '5 minutes')",
    "window(ts, '10 minutes', '5 minutes', '1 minute')",
    "window(ts, INTERVAL 1 HOUR 30 MINUTES)",
    "session_window(ts, '1 minute 30 seconds')",
])  # fmt: skip
def test_hints_instead_of_sparks_windows_can_be_followed(
    streams: dict[str, hf.Stream], window: str
) -> None:
    with pytest.raises(hf.InputError) as caught:
        sql(f"SELECT count(*) AS n FROM a GROUP BY {window}", a=streams["a"])
    call = (caught.value.hint or "").removeprefix("say GROUP BY ").partition(", and in SELECT")[0]
    sql(f"SELECT k, count(*) AS n FROM a GROUP BY k, {call}", a=streams["a"])


ACCEPTED = {
    "bounds in WHERE": f"SELECT k, v FROM {HOP} WHERE window_end > ts AND v > 1",
    "bounds in WHERE, grouped": f"SELECT k, window_end FROM (SELECT * FROM {TUMBLE} WHERE window_end > ts) GROUP BY 1, 2",
    "bounds in aggregates": f"SELECT window_end, max(window_start) AS n FROM (SELECT * FROM {TUMBLE}) GROUP BY 1",
    "an offset longer than its windows": "SELECT window_end FROM TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' SECOND,"
    " INTERVAL '5' SECOND)",
    "names of our own": "WITH t AS (SELECT k AS _rows, v AS _window, ts FROM a) SELECT _rows FROM (SELECT * FROM"
    " TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' SECOND)) GROUP BY _rows, window_end",
    "WITH in a subquery": "SELECT n FROM (WITH a AS (SELECT v AS n FROM a) SELECT n FROM a)",
    "WITH in WITH": "WITH x AS (WITH x AS (SELECT k AS z FROM a) SELECT z FROM x) SELECT z FROM x",
    "a change under another name": f"SELECT k FROM (SELECT k, change AS c FROM {NUMBERED} WHERE rn = 1)",
    "odd names": "SELECT `c``d`, sum(`a.b`) AS `x.y` FROM (SELECT k AS `a.b`, s AS `c``d` FROM a) GROUP BY 1",
    "distinct odd names": "SELECT DISTINCT `c``d` FROM (SELECT s AS `c``d` FROM a)",
    "union of ends and times": "SELECT n, sum(n) AS m FROM (SELECT window_end AS ts, n FROM w UNION ALL SELECT ts, v FROM a)"
    " GROUP BY n",
    "a number under another name": "WITH x(q, r) AS (SELECT k, ROW_NUMBER() OVER (ORDER BY v) AS rn FROM a)"
    " SELECT q FROM x WHERE r = 1",
    "LIKE ANY": "SELECT s LIKE ANY ('a', 'b') AS x, count(*) AS n FROM a GROUP BY s",
}  # fmt: skip


@pytest.mark.parametrize("statement", ACCEPTED.values(), ids=ACCEPTED)
def test_it_is_accepted(streams: dict[str, hf.Stream], statement: str) -> None:
    sql(statement, **streams)


def last_operator(statement: str, streams: dict[str, hf.Stream]) -> hf.ResultStream:
    origin = sql(statement, **streams).rows.branches[0].origin
    assert isinstance(origin, Output)
    return result_of(origin)


@pytest.mark.parametrize("rows", [
    COUNTED,
    f"(SELECT * FROM {COUNTED} UNION ALL SELECT * FROM {COUNTED})",
    f"(SELECT *, 1 AS n FROM {TUMBLE})",
    f"(SELECT window_start, window_end, ts AS at, 1 AS n FROM {TUMBLE})",
])  # fmt: skip
def test_the_start_of_a_window_is_enough_to_group_by_it(
    streams: dict[str, hf.Stream], rows: str
) -> None:
    statement = f"SELECT window_start, sum(n) AS n FROM {rows} GROUP BY window_start"
    grouped = last_operator(statement, streams)
    assert isinstance(grouped, hf.WindowResultStream)
    assert grouped.windows.window == hf.tumbling("1 s")


def test_the_start_of_a_window_is_enough_to_number_its_rows(streams: dict[str, hf.Stream]) -> None:
    statement = (
        "SELECT k, n FROM (SELECT k, n, ROW_NUMBER() OVER (PARTITION BY window_start ORDER BY n) AS rn"
        f" FROM {COUNTED}) WHERE rn = 1"
    )
    top = last_operator(statement, streams)
    assert isinstance(top, TopStream)
    assert (top.output_mode, top.until) == ("append", "window_end")


@pytest.mark.parametrize(("left", "right", "ours", "theirs", "bound"), [
    (COUNTED, COUNTED, "window_start", "window_start", 0),
    (COUNTED, LONGER, "window_start", "window_start", 2000),
    (COUNTED, LONGER, "window_end", "window_start", 3000),
    (COUNTED, LONGER, "window_start", "window_end", -1000),
    (COUNTED, SESSIONS, "window_start", "window_end", -1000),
])  # fmt: skip
def test_windows_with_an_equal_bound_are_a_bound_of_a_join(
    streams: dict[str, hf.Stream], left: str, right: str, ours: str, theirs: str, bound: int
) -> None:
    on = f"x.k = y.k AND x.{ours} = y.{theirs}"
    joined = last_operator(f"SELECT x.k FROM {left} x LEFT JOIN {right} y ON {on}", streams)
    assert isinstance(joined, JoinedStream)
    assert joined.bounds_ms == (bound, bound)


def test_what_was_written_is_the_bound_of_a_join_whose_windows_follow_each_other(
    streams: dict[str, hf.Stream],
) -> None:
    """Checkpoints of before know the join by that; and where nothing can follow there are no pairs."""
    for shortest, longest in ((0, 5000), (0, 1000), (500, 600)):
        on = (
            "x.k = y.k AND x.window_end = y.window_start AND y.window_end BETWEEN x.window_end + INTERVAL "
            f"'{shortest / 1000}' SECOND AND x.window_end + INTERVAL '{longest / 1000}' SECOND"
        )
        joined = last_operator(
            f"SELECT x.k FROM {COUNTED} x LEFT JOIN {COUNTED} y ON {on}", streams
        )
        assert isinstance(joined, JoinedStream)
        assert joined.bounds_ms == (shortest, longest)


@pytest.mark.parametrize(("on", "bounds", "columns"), [
    (f"a JOIN b ON a.k = b.k AND ({NEAR})", (-1000, 0), None),
    ("a JOIN b USING (ts)", (0, 0), "ts k v s b_k b_v b_s"),
    ("a JOIN b USING (v, ts)", (0, 0), "v ts k s b_k b_s"),
    ("w x RIGHT JOIN w y USING (window_end, k)", (0, 0), "window_end k window_start n y_window_start y_n"),
    ("w x LEFT SEMI JOIN w y USING (window_start, k)", (0, 0), "window_start k window_end n"),
])  # fmt: skip
def test_bounds_of_joins_are_known_in_parentheses_and_in_using(
    streams: dict[str, hf.Stream], on: str, bounds: tuple[int, int], columns: str | None
) -> None:
    """And the columns come in Spark's order: UNION ALL goes by it."""
    joined = last_operator(f"SELECT * FROM {on}", streams)
    assert isinstance(joined, JoinedStream)
    assert joined.bounds_ms == bounds
    if columns is not None:
        assert sql(f"SELECT * FROM {on}", **streams).rows.df.columns == columns.split()


def test_a_column_of_one_table_alone_is_left_out(streams: dict[str, hf.Stream]) -> None:
    joined = "FROM a JOIN b ON a.k = b.k AND a.ts = b.ts"
    made = sql(f"SELECT * EXCEPT (b.k, a.v) {joined}", **streams).rows
    assert made.df.columns == ["k", "s", "ts", "v", "b_s", "b_ts"]
    made = sql(f"SELECT b.* EXCEPT (b.k, s) {joined}", **streams).rows
    assert made.df.columns == ["v", "ts"]
    with pytest.raises(hf.InputError, match=r"there is no column .a\.v."):
        sql(f"SELECT b.* EXCEPT (a.v) {joined}", **streams)


def test_a_table_of_a_later_join_is_no_struct(streams: dict[str, hf.Stream]) -> None:
    statement = (
        "WITH x AS (SELECT k, ts, named_struct('v', v) AS z FROM a) SELECT x.k FROM x JOIN b y"
        " ON x.k = y.k AND x.ts = y.ts JOIN b z ON x.k = z.k AND x.ts = z.ts WHERE z.v > 1"
    )
    joined = last_operator(statement, streams)
    assert isinstance(joined, JoinedStream)
    assert "Filter (v#" in joined.right.df._jdf.queryExecution().analyzed().toString()


def test_columns_that_a_with_has_renamed_are_no_bounds(streams: dict[str, hf.Stream]) -> None:
    statement = (
        f"WITH c(k, s, e, n) AS {COUNTED} SELECT s, window_start, sum(n) AS n FROM"
        " TUMBLE(TABLE c, DESCRIPTOR(e), INTERVAL '1' MINUTE) GROUP BY s, window_start, window_end"
    )
    grouped = last_operator(statement, streams)
    assert isinstance(grouped, hf.WindowResultStream)
    assert grouped.windows.keys == ("s",)


def test_the_watermark_goes_with_its_column(streams: dict[str, hf.Stream]) -> None:
    renamed = sql("SELECT ts AS at, k FROM a", a=streams["a"]).rows
    assert renamed.watermark is not None
    assert (renamed.watermark.column, renamed.watermark.delay_ms) == ("at", 1000)
    assert sql("SELECT k FROM a", a=streams["a"]).rows.watermark is None


def test_conditions_and_intervals_are_taken_apart() -> None:
    tree = parse_statement("SELECT 1 FROM t WHERE a = 1 AND (b BETWEEN 2 AND 3 AND c) AND (d OR e)")
    parts = [text_of(part) for part in conjuncts(tree.args["where"].this)]
    assert parts == ["a = 1", "b >= 2", "b <= 3", "c", "(d OR e)"]
    lengths = parse_statement(
        "SELECT INTERVAL '1.5' SECOND, INTERVAL 2 MINUTES, INTERVAL '3 hours', -INTERVAL '1' DAY,"
        " INTERVAL '1 hour 30 minutes', INTERVAL '-1 minute 1 second' FROM t"
    ).expressions
    known = [1500, 120_000, 10_800_000, -86_400_000, 5_400_000, -59_000]
    assert [int(interval_ms(each)) for each in lengths] == known
