"""A whole statement: WITH, UNION ALL, and SELECT from its FROM to its DISTINCT."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NoReturn

from sqlglot import exp

from holdfast.arguments import said
from holdfast.errors import InputError
from holdfast.sql.bounds import WindowBounds, of_both
from holdfast.sql.dialect import WINDOW_TABLES, name_of, parse_statement, text_of
from holdfast.sql.expressions import columns_in, conjuncts, output_name, resolved, scalar
from holdfast.sql.forgetting import check_distinct
from holdfast.sql.grouping import Item, group, groups_rows
from holdfast.sql.joining import how_of, join
from holdfast.sql.ranking import bounded, is_row_number, ranked
from holdfast.sql.reading import check_reading
from holdfast.sql.refuse import (
    EXPLODED,
    GENERATORS,
    check_arguments,
    check_scalar,
    check_windows,
    refuse,
)
from holdfast.sql.relation import (
    Known,
    Relation,
    filtered,
    free_name,
    must_append,
    projected,
    table,
)
from holdfast.sql.timing import bounds_in, cut_table, refuse_bound, spread
from holdfast.stream import Output, ResultStream, Rows, Stream, result_of
from holdfast.types import quoted

__all__ = ["run"]

_CHANGE = "change"
Tables = Mapping[str, Relation]


def run(statement: str, tables: Mapping[str, Rows]) -> Stream | ResultStream:
    """The rows that a statement stands for."""
    if not isinstance(statement, str):
        raise InputError(
            f"hf.sql takes a statement, not {said(statement)}",
            hint='say hf.sql("SELECT ... FROM t", t=stream)',
        )
    tree = parse_statement(statement)
    known: dict[str, Relation] = {}
    for name, rows in tables.items():
        if name.lower() in known:
            raise InputError(f"SQL: two tables are called {name.lower()!r}", hint="rename one")
        known[name.lower()] = table(name, rows)
    relation = _query(tree, known)
    if relation.rank is not None:
        must_append(relation, "a statement")
    # Behind what is refused by name, which says more.
    check_reading(statement, tree, relation.stream.df.sparkSession)
    relation.check_named()
    branch = relation.stream.branches[0]
    whole = len(relation.stream.branches) == 1 and not branch.steps
    if whole and isinstance(branch.origin, Output) and not branch.origin.name:
        return result_of(branch.origin)
    return relation.stream


def _query(node: exp.Expr, tables: Tables) -> Relation:
    if isinstance(node, exp.Subquery):
        check_arguments(node, {"this", "with"})
        return _query(node.this, _with(node, tables))
    if isinstance(node, exp.Union):
        return _union(node, _with(node, tables))
    if isinstance(node, exp.Select):
        return _select(node, _with(node, tables))
    name = type(node).__name__.upper()
    if isinstance(node, exp.Intersect | exp.Except):
        _refuse_set(node, name)
    if isinstance(node, exp.Command):
        name = str(node.this).upper()
    return refuse(name, "write a SELECT; where rows go is said with write_to(...)")


def _refuse_set(node: exp.SetOperation, name: str) -> NoReturn:
    if not node.args.get("distinct"):
        refuse(
            f"{name} ALL",
            "it counts how often rows are there on each side, for which there is nothing equal here: "
            "write a hf.KeyedProcess",
        )
    kind = "LEFT SEMI" if isinstance(node, exp.Intersect) else "LEFT ANTI"
    refuse(
        name,
        f"say SELECT DISTINCT with a {kind} JOIN on all columns, within a time bound; it differs for "
        f"rows with NULL, which equals NULL in {name} and nothing in ON",
    )


def _argument(node: exp.Expr, name: str) -> exp.Expr | None:
    """A part whose name would be a word of Python's: sqlglot has called it both ways."""
    found: exp.Expr | None = node.args.get(f"{name}_") or node.args.get(name)
    return found


def _with(node: exp.Expr, tables: Tables) -> Tables:
    clause = _argument(node, "with")
    if clause is None:
        return tables
    check_arguments(clause, {"expressions"})
    known = dict(tables)
    for each in clause.expressions:
        check_arguments(each, {"this", "alias"})
        columns = [column.name for column in each.args["alias"].args.get("columns") or ()]
        known[each.alias.lower()] = _query(each.this, known).called(each.alias, columns)
    return known


def _union(node: exp.Union, tables: Tables) -> Relation:
    if node.args.get("distinct"):
        refuse("UNION", "say UNION ALL, and SELECT DISTINCT around it if need be")
    check_arguments(node, {"this", "expression", "distinct", "with"})
    left, right = _query(node.this, tables), _query(node.expression, tables)
    for relation in (left, right):
        # Rows that come and go can be put together; what takes another's place can't.
        if relation.rank is not None or not left.changes == right.changes == "retract":
            must_append(relation, "UNION ALL")
    if len(left.names) != len(right.names):
        raise InputError(
            f"SQL: UNION ALL of {len(left.names)} and of {len(right.names)} columns",
            hint="select as many on both sides",
        )
    pairs = zip(left.names, right.names, strict=True)
    theirs = projected(right.stream, [(quoted(r.column), ours.column) for ours, r in pairs])
    ours = projected(left.stream, [(quoted(k.column), k.column) for k in left.names])
    if _time(ours) != _time(theirs):
        # Rows of which some don't say when they happened have no time.
        ours, theirs = _without_time(ours), _without_time(theirs)
    return Relation(
        ours.union(theirs),
        left.names,
        left.changes,
        _windows_of_both(left, right),
        unnamed={**left.unnamed, **right.unnamed},
    )


def _windows_of_both(left: Relation, right: Relation) -> WindowBounds | None:
    """The windows of the rows, as far as those of both sides are alike and in the same columns."""
    ours = left.windows and left.windows.among(known.column for known in left.names)
    names: dict[str, list[str]] = {}
    for mine, other in zip(left.names, right.names, strict=True):
        names.setdefault(other.column, []).append(mine.column)
    return of_both(ours, right.windows and right.windows.called(names))


def _time(stream: Stream) -> tuple[str, bool] | None:
    return (stream.watermark.column, stream.watermark.is_end) if stream.watermark else None


def _without_time(stream: Stream) -> Stream:
    return Stream(tuple(replace(branch, watermark=None) for branch in stream.branches))


def _select(select: exp.Select, tables: Tables) -> Relation:
    known = {"expressions", "from", "joins", "where", "group", "having", "distinct", "with"}
    check_arguments(select, known)
    for each in () if (clause := select.args.get("group")) is None else clause.walk():
        check_windows(each)  # Before columns of SELECT, which may be of such windows.
    relation = _filtered_rows(select, tables)
    grouped = groups_rows(select)
    if relation.cut is not None and not grouped:
        relation = spread(relation)
    items = _items(select, relation)
    if grouped:
        relation, items = group(select, relation, items)
    elif select.args.get("having") is not None:
        refuse("HAVING without GROUP BY", "say WHERE")
    distinct = select.args.get("distinct")
    if any(is_row_number(item.node) for item in items):
        if distinct is not None:
            refuse("DISTINCT with ROW_NUMBER()", "use a subquery")
        made = ranked(relation, items, _windows(relation, items))
    else:
        made = _selected(relation, items)
        if distinct is not None:
            check_arguments(distinct, set())
            must_append(made, "DISTINCT")
            check_distinct([item.node for item in items], relation, grouped)
            made = _distinct(made)
    return replace(made, unnamed={each.name: each.unnamed for each in items if each.unnamed})


def _filtered_rows(select: exp.Select, tables: Tables) -> Relation:
    """FROM, JOIN and WHERE."""
    clause = _argument(select, "from")
    if clause is None:
        refuse("SELECT without FROM", "select from a stream")
    check_arguments(clause, {"this"})
    filters = select.args.get("where")
    where = conjuncts(None if filters is None else filters.this)
    relation = _source(clause.this, tables)
    joins = select.args.get("joins") or []
    # Only where no join puts rows in anew may a condition be looked at before it.
    all_inner = all(how_of(each) == "inner" for each in joins)
    needed = _needed(select)
    rights = [_source(each.this, tables) for each in joins]
    for number, (each, right) in enumerate(zip(joins, rights, strict=True), 1):
        later = {str(known.table).lower() for rest in rights[number:] for known in rest.names}
        relation = join(relation, right, each, where if all_inner else [], needed, later)
    if relation.rank is not None:
        relation, where = bounded(relation, where, select)
    for condition in where:
        text = scalar(condition, relation, "WHERE")
        if relation.cut is not None and (bounds := bounds_in(condition, relation)):
            if groups_rows(select):
                only = len(bounds) == len(list(columns_in(condition)))
                refuse_bound(bounds[0], "WHERE", relation.cut, "say HAVING" if only else None)
            relation = spread(relation)
        relation = replace(relation, stream=filtered(relation.stream, text))
    return relation


def _needed(select: exp.Select) -> set[str] | None:
    """The names of all columns that a SELECT uses; None if it has a star."""
    names: set[str] = set()
    for each in select.expressions:
        if isinstance(each, exp.Star) or (
            isinstance(each, exp.Column) and isinstance(each.this, exp.Star)
        ):
            return None
    for column in select.find_all(exp.Column):
        names.update(part.name.lower() for part in column.parts)
    for each in select.args.get("joins") or ():
        names.update(column.name.lower() for column in each.args.get("using") or ())
    return names


def _source(node: exp.Expr, tables: Tables) -> Relation:
    """A table, a subquery, or a table that is cut into windows."""
    alias = node.args.get("alias")
    columns = [column.name for column in alias.args.get("columns") or ()] if alias else []
    if isinstance(node, exp.Subquery):
        check_arguments(node, {"this", "alias", "with"})
        relation = _query(node.this, _with(node, tables))
        return relation.called(node.alias or None, columns)
    if isinstance(node, exp.Lateral):
        refuse("LATERAL", EXPLODED)
    if not isinstance(node, exp.Table):
        of_rows = isinstance(node, exp.Unnest)
        refuse(
            f"{type(node).__name__.upper()} in FROM",
            EXPLODED if of_rows else "select from a stream",
        )
    check_arguments(node, {"this", "alias", "joins"})
    if node.args.get("joins"):
        refuse("joins in parentheses", "use a subquery")
    if isinstance(node.this, exp.Anonymous):
        relation = _cut(node.this, tables)
        return relation.called(node.alias, columns) if alias else relation
    return _named(node.this.name, tables).called(node.alias or node.name, columns)


def _cut(call: exp.Anonymous, tables: Tables) -> Relation:
    if name_of(call) == "TABLE" and len(call.expressions) == 1:
        call = call.expressions[0]
    if name_of(call) not in WINDOW_TABLES:
        hint = EXPLODED if name_of(call) in GENERATORS else "there are TUMBLE, HOP and SESSION"
        refuse(f"the table function {text_of(call)}", hint)
    first = call.expressions[0] if call.expressions else None
    if isinstance(first, exp.Window) and isinstance(first.this, exp.Query):
        refuse(
            f"a subquery in {name_of(call)}",
            f"give it a name in WITH t AS (...), and say {name_of(call)}(TABLE t, ...)",
        )
    if not isinstance(first, exp.Window) or not isinstance(first.this, exp.Table):
        raise InputError(
            f"SQL: {name_of(call)} names no table",
            hint=f"say {name_of(call)}(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND)",
        )
    name = first.this.name
    return cut_table(call, _named(name, tables).called(name))


def _named(name: str, tables: Tables) -> Relation:
    if name.lower() not in tables:
        raise InputError(
            f"SQL: there is no table {name!r}",
            hint=f"tables are {', '.join(tables)}" if tables else f"say hf.sql(..., {name}=stream)",
        )
    return tables[name.lower()]


def _items(select: exp.Select, relation: Relation) -> list[Item]:
    """The columns of SELECT, stars written out, over the columns of the stream."""
    items: list[Item] = []
    for node in select.expressions:
        bare = node.this if isinstance(node, exp.Column) else node
        if isinstance(bare, exp.Star):
            items += _star(node, bare, relation)
            continue
        value = node.unalias()
        if value.find(exp.Query) is not None:
            refuse("a subquery in SELECT", "join the streams instead")
        table = node.table if isinstance(node, exp.Column) and node.table else None
        while isinstance(value, exp.Paren):
            value = value.this
        name, found = output_name(node), resolved(value, relation)
        unnamed = text_of(node) if name is None else None
        items.append(Item(name or "", found, table, unnamed))
    return _unlike(items)


def _star(node: exp.Expr, star: exp.Star, relation: Relation) -> list[Item]:
    check_arguments(star, {"except"})
    select = node.find_ancestor(exp.Select)
    if select is not None and groups_rows(select):
        refuse("* with GROUP BY or aggregates", "name the columns")
    table = node.table.lower() if isinstance(node, exp.Column) else None
    known = [k for k in relation.names if table is None or (k.table or "").lower() == table]
    if not known and any(k.name.lower() == table for k in relation.names):
        refuse(text_of(node), f"name the fields, as in {table}.x, {table}.y")
    if not known:
        raise InputError(f"SQL: there is no table {table!r} for {text_of(node)}")
    left_out = _left_out(star, replace(relation, names=tuple(known)))
    return [
        Item(k.name, exp.column(exp.to_identifier(k.column, quoted=True)), k.table)
        for k in known
        if k not in left_out
    ]


def _left_out(star: exp.Star, relation: Relation) -> list[Known]:
    """The columns in EXCEPT (...)."""
    found: list[Known] = []
    for each in star.args.get("except_") or star.args.get("except") or ():
        parts = each.parts if isinstance(each, exp.Column) else [each]
        known, fields = relation.find([part.name for part in parts])
        if fields:
            refuse(
                f"EXCEPT ({text_of(each)})",
                f"leave out {known.name}, and name the fields that stay: "
                f"struct({known.name}.x, ...) AS {known.name}",
            )
        found.append(known)
    return found


def _unlike(items: list[Item]) -> list[Item]:
    """Columns of one name are told apart by their tables' names."""
    made: list[Item] = []
    taken: set[str] = set()
    for item in items:
        name = item.name
        if item.unnamed is not None:  # Only messages have it: without a name nothing comes out.
            name = free_name(item.unnamed, {*taken, *(each.name for each in items)})
        if name.lower() in taken and item.table is not None:
            name = f"{item.table}_{item.name}"
        if name.lower() in taken:
            raise InputError(
                f"SQL: two columns are called {name!r}", hint="give one another name with AS"
            )
        taken.add(name.lower())
        made.append(replace(item, name=name))
    return made


def _selected(relation: Relation, items: list[Item]) -> Relation:
    for item in items:
        check_scalar(item.node, "SELECT")
    pairs = [(text_of(item.node), item.name) for item in items]
    if relation.changes == "retract" and (quoted(_CHANGE), _CHANGE) not in pairs:
        # Without it nobody could tell what came from what left.
        if any(name.lower() == _CHANGE for _, name in pairs):
            raise InputError(
                f"SQL: a column is called {_CHANGE!r}, as the one that says whether a row comes or goes",
                hint="give it another name with AS",
            )
        pairs.append((quoted(_CHANGE), _CHANGE))
    stream = projected(relation.stream, pairs)
    names = tuple(Known(None, name, name) for _, name in pairs)
    return Relation(stream, names, relation.changes, _windows(relation, items))


def _windows(relation: Relation, items: list[Item]) -> WindowBounds | None:
    """The windows of the rows, and what the columns that tell them are called."""
    if relation.windows is None:
        return None
    names: dict[str, list[str]] = {}
    for item in items:
        if isinstance(item.node, exp.Column):
            names.setdefault(item.node.name, []).append(item.name)
    return relation.windows.called(names)


def _distinct(relation: Relation) -> Relation:
    names = [known.column for known in relation.names]
    return replace(relation, stream=relation.stream.key_by(*names).drop_duplicates().rows)
