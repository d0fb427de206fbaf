"""Expressions over one row are Spark's: what ``hf.sql`` makes of them gives what Spark gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import holdfast as hf
from holdfast.sql import sql
from holdfast.sql.dialect import bracketed, parse_statement, text_of
from holdfast.sql.reading import check_reading
from holdfast.testing import EpochSource

COLUMNS = (
    "i int, j int, big bigint, small smallint, tiny tinyint, d double, f float, dec decimal(10,2),"
    " wide decimal(20,4), s string, pat string, js string, yes boolean, ts timestamp,"
    " ntz timestamp_ntz, dt date, arr array<int>, words array<string>, nested array<array<int>>,"
    " m map<string,int>, st struct<a:int,b:struct<c:string,d:array<int>>,`x y`:int>,"
    " people array<struct<name:string,age:int>>, bin binary, `odd name` int, `order` int,"
    " `tick``s` string, x int"
)
# Three rows, the last of nulls only.
ROWS = [
    "7, 3, 9000000000, 12S, 5Y, 2.5D, 1.5F, 12.34, 1234567.8901, 'it''s a Test_100%', '^it.*',"
    ' \'{"a":{"b":[1,"x",null]},"n":null,"t":"q"}\', true, TIMESTAMP \'2024-02-29 13:45:59.123456\','
    " TIMESTAMP_NTZ '2024-02-29 13:45:59.123456', DATE '2024-02-29', array(1, 2, 3), array('b', 'a', null),"
    " array(array(1), array(2, 3)), map('k', 1, 'l', null),"
    " named_struct('a', 1, 'b', named_struct('c', 'deep', 'd', array(9, 8)), 'x y', 4),"
    " array(named_struct('name', 'ann', 'age', 30), named_struct('name', 'bob', 'age', null)),"
    " X'DEADBEEF', 11, 22, 'tock', 5",
    "-4, 2, -1, -3S, -2Y, -0.5D, 0F, -0.50, 0.0001, 'a\\\\b_c/d\\'e', 'b_c', '[1,2]', false,"
    " TIMESTAMP '1969-12-31 23:59:58', TIMESTAMP_NTZ '1969-12-31 23:59:58', DATE '1999-12-31',"
    " array(5, null, 4), array('x'), array(array(7), array(null)), map('k', -1),"
    " named_struct('a', -1, 'b', named_struct('c', '', 'd', array(0)), 'x y', -4),"
    " array(named_struct('name', null, 'age', 1)), X'00', -11, -22, '', 6",
    ", ".join(["NULL"] * 27),
]


def read_expressions() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {
        "over several lines": ["'line\nbreak'", "i /* one */ + 1 -- two\n"]
    }
    kind = ""
    for line in (Path(__file__).parent / "expressions.sql").read_text().splitlines()[1:]:
        if line.startswith("-- "):
            kind = line[3:]
            found[kind] = []
        elif line:
            found[kind].append(line)
    return found


EXPRESSIONS = read_expressions()
# What Spark has and this hasn't: refused with these words.
REFUSED = {
    "CAST(NULL AS VOID)": "can't be read",
    "arr::array<string>[0]": "Spark can't read a part",
    "DATE '2024-01-01'::string": "Put parentheses around DATE and its literal",
    "TIME '10:00:00'": "otherwise than it is understood here",
    "struct(st.*)": "name the columns",
    "transform(arr, x -> x + t.x)": "t.x is hidden by a variable .*another name",
    "IDENTIFIER('i')": r"IDENTIFIER\(...\) is not supported",
    "try_cast(s AS INT) IN (SELECT 1)": "a subquery in SELECT",
    "explode(arr)": "explode is not supported",
    "posexplode(arr)": "posexplode is not supported",
    "inline(people)": "inline is not supported",
    "stack(2, 1, 2)": "stack is not supported",
    "json_tuple(js, 'a')": "json_tuple is not supported",
    "sum(i) OVER (ORDER BY j)": "the window function sum",
    ":p": "the parameter",
    "?": "the parameter",
}
# What other databases have and Spark hasn't.
FOREIGN = {
    "js -> 'a'": "»->«.*say get_json_object",
    "js ->> 'a'": "»->>«.*say get_json_object",
    "js #> 'a'": "»#>«.*say get_json_object",
    "js #>> 'a'": "»#>>«.*say get_json_object",
    "js:a": "can't be read",
    "js:a.b[0]": "can't be read",
    "js ? 'a'": "can't be read",
    "words @> array('a')": "can't be read",
    "words <@ array('a')": "can't be read",
    "ts AT TIME ZONE 'Asia/Tokyo'": "no AT TIME ZONE.*say from_utc_timestamp",
    "i ** 2": "can't be read",
    "i // 2": "can't be read",
    "i ?? 2": "say coalesce",
    "|/ i": "can't be read",
    "yes XOR yes": "can't be read",
    "yes && yes": "can't be read",
    "s ~ 'x'": "say x RLIKE",
    "s ~* 'x'": "say x RLIKE",
    "s !~ 'x'": "say x RLIKE",
    "s ~~ 'x'": "can't read '~' here",
    "s SIMILAR TO 'x'": "say x RLIKE",
    "s GLOB 'x'": "say x RLIKE",
    "i BETWEEN SYMMETRIC 7 AND 1": "can't read '7' here",
    "i = ANY (arr)": "is not supported.*exists",
    "i ISNULL": "can't read 'AS' here",
    "[1, 2]": r"can't read '\[' here",
    "MAP {'a': 1}": "can't read '{' here",
    "arr[0:1]": "can't read",
    "i::int4": "Unsupported data type",
    "i::text": "Unsupported data type",
    "CAST(ts AS TIMESTAMPTZ)": "Unsupported data type",
    "CAST(s AS DATE FORMAT 'x')": "can't read 'FORMAT' here",
    "N'x'": "can't read",
    "INT '5'": "can't read",
    "i IN (1, 2,)": r"can't read '[()]' here",  # Spark 4.1 points to the first
}


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    """The rows, in the plan itself: Spark computes what is projected of them without a job."""
    schema = spark.createDataFrame([], COLUMNS).schema
    values = ", ".join(f"({row})" for row in ROWS)
    made = spark.sql(f"SELECT * FROM VALUES {values}").toDF(*schema.names)
    columns = [made[f"`{name.replace('`', '``')}`"] for name in schema.names]
    return made.select(
        *(column.cast(field.dataType) for column, field in zip(columns, schema, strict=True))
    ).toDF(*schema.names)


@pytest.fixture(scope="module")
def stream(spark: SparkSession) -> hf.Stream:
    return hf.stream(EpochSource(spark, COLUMNS).df)


@pytest.mark.parametrize("kind", EXPRESSIONS)
def test_expressions_equal_spark(
    spark: SparkSession, rows: DataFrame, stream: hf.Stream, kind: str
) -> None:
    items = [f"{text} AS c{number}" for number, text in enumerate(EXPRESSIONS[kind])]
    statement = f"SELECT {', '.join(items)} FROM t"
    (branch,) = sql(statement, t=stream).rows.branches
    found = rows
    for step in branch.steps:
        found = step(found)
    rows.createOrReplaceTempView("t")
    wanted = spark.sql(statement)
    assert found.schema.simpleString() == wanted.schema.simpleString()
    pairs = zip(found.collect(), wanted.collect(), strict=True)
    for ours, theirs in pairs:
        for text, one, other in zip(EXPRESSIONS[kind], ours, theirs, strict=True):
            assert repr(one) == repr(other), text


@pytest.mark.parametrize(("text", "words"), [*REFUSED.items(), *FOREIGN.items()])
def test_what_is_not_the_same_is_refused(stream: hf.Stream, text: str, words: str) -> None:
    with pytest.raises(hf.InputError, match=words) as caught:
        sql(f"SELECT {text} AS c FROM t", t=stream)
    assert str(caught.value).startswith("SQL: ")


def test_a_statement_that_is_understood_otherwise_is_refused(spark: SparkSession) -> None:
    """Whatever the parser here makes of a text that Spark makes something else of."""
    understood = parse_statement("SELECT (a | b) & c AS d FROM t")
    check_reading("SELECT (a | b) & c AS d FROM t", understood, spark)
    with pytest.raises(hf.InputError, match="otherwise than it is understood here, which is: "):
        check_reading("SELECT a | b & c AS d FROM t", understood, spark)
    ours = parse_statement("SELECT a = b AS c FROM t")
    ours.expressions[0].this.expression.replace(parse_statement("SELECT b IS NULL").expressions[0])
    with pytest.raises(hf.InputError, match="a = b IS NULL can be read in two ways"):
        check_reading("SELECT a = b IS NULL AS c FROM t", ours, spark)


def test_every_operator_is_put_into_parentheses() -> None:
    tree = parse_statement(
        "SELECT a + b * -c AS x, NOT a LIKE 'x' ESCAPE '/' AS y FROM TUMBLE(TABLE t, DESCRIPTOR(ts),"
        " INTERVAL '1' SECOND) WHERE a AND b AND c IS NOT NULL OR Upper(d) <= INTERVAL 1 DAY 2 HOURS"
    )
    assert bracketed(tree) == (
        "SELECT (a + (b * (-c))) AS x, (NOT (a LIKE 'x' ESCAPE '/')) AS y FROM TUMBLE()"
        " WHERE ((a AND b AND (c IS NOT NULL)) OR (Upper(d) <= INTERVAL '1' DAY '2' HOURS))"
    )


@pytest.mark.parametrize(
    "text",
    ["TRY_CAST(a AS INT)", "LOG(a)", "'it\\'s'", "COLLECT_LIST(x, 10)", "REGEXP_EXTRACT(u, 'a', 1)",
     "TIMESTAMPDIFF(SECOND, a, b)", "TRANSFORM(arr, x -> x + 1)", "a.b.c", "ELEMENT_AT(m, 'k')",
     "ARRAY(a, b)[1]", "DATE '2026-01-01'", "1L", "1.50BD", "INTERVAL '1' HOUR '30' MINUTES",
     "a IS NOT NULL", "TRIM(BOTH 'x' FROM a)", "EXTRACT(YEAR FROM a)", "a << 1 >>> b", "+ a"],
)  # fmt: skip
def test_expressions_reach_spark_as_they_were_written(text: str) -> None:
    assert text_of(parse_statement(f"SELECT {text} FROM t").expressions[0]) == text
