"""What the conditions of a join say: equal columns, how far apart in time, and the rest."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor
from typing import NamedTuple

from sqlglot import exp

from holdfast.errors import InputError
from holdfast.sql.dialect import text_of
from holdfast.sql.expressions import columns_in, interval_ms, resolved
from holdfast.sql.refuse import check_scalar, refuse
from holdfast.sql.relation import Known, Relation

__all__ = ["Conditions", "Sides"]

_COMPARISONS = (exp.EQ, exp.GTE, exp.LTE, exp.GT, exp.LT)
_TURNED = {exp.GTE: exp.LTE, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.LT: exp.GT, exp.EQ: exp.EQ}
_DAY_MS = 86_400_000


class _Moment(NamedTuple):
    """A side's event time and what is added to it."""

    side: str
    length: Fraction
    slack_ms: int = 0
    """How much longer or shorter that may be: Spark adds whole days as those of the time zone."""


@dataclass(frozen=True)
class Sides:
    """Both sides of a join; columns are known to be of one or the other."""

    left: Relation
    right: Relation

    @property
    def both(self) -> Relation:
        """The names of both sides; their columns begin with the side's letter."""
        names = [Known(k.table, k.name, f"l{k.column}") for k in self.left.names]
        names += [Known(k.table, k.name, f"r{k.column}") for k in self.right.names]
        return Relation(self.left.stream, tuple(names))

    def of(self, node: exp.Expr) -> set[str]:
        """The sides whose columns an expression over both uses."""
        return {column.name[0] for column in columns_in(node)}

    def bounds_in(self, node: exp.Expr) -> set[str]:
        """The sides of which an expression has bounds of windows."""
        known = {"l": self.left.windows, "r": self.right.windows}
        return {
            side
            for side, windows in known.items()
            if windows is not None
            and any(
                each.name[0] == side and each.name[1:] in windows.bounds
                for each in columns_in(node)
            )
        }

    def own(self, node: exp.Expr) -> exp.Expr:
        """An expression over one side's columns, as they are called there."""
        copy: exp.Expr = exp.Paren(this=node.copy())
        for column in list(columns_in(copy)):
            column.replace(exp.column(exp.to_identifier(column.name[1:], quoted=True)))
        inner: exp.Expr = copy.this
        return inner.pop()

    def unlike_days_ms(self, side: str) -> int:
        """How far from 24 hours a day may be where Spark adds one to the time of a side."""
        from holdfast.spark.jvm.columns import zone_offsets

        relation = self.left if side == "l" else self.right
        if _time_type(relation) == "timestamp_ntz":
            return 0
        offsets = zone_offsets(relation.stream.df.sparkSession)
        return (max(offsets) - min(offsets)) * 1000

    def time_side(self, node: exp.Expr) -> str | None:
        """The side whose event time a column is."""
        if not isinstance(node, exp.Column):
            return None
        side, name = node.name[0], node.name[1:]
        return side if name == (self.left if side == "l" else self.right).time else None


@dataclass
class Conditions:
    """The conditions of a join, sorted by what they are good for."""

    sides: Sides
    exact: bool
    """Whether what can't be a key or a bound must be refused: it decides what has a match."""
    optional: str | None = None
    """The side of which only rows with a match come out; None if there is none or both are."""
    keys: list[tuple[exp.Expr, exp.Expr]] = field(default_factory=list)
    lower: int | None = None
    upper: int | None = None
    same_time: bool = False
    of_left: list[exp.Expr] = field(default_factory=list)
    of_right: list[exp.Expr] = field(default_factory=list)
    behind: list[exp.Expr] = field(default_factory=list)
    """As they were written."""
    else_apart: int | None = None
    """How far apart the times are by bounds of windows, should nothing else say it."""
    bounds_of_both: bool = False
    """Whether a condition says how the windows of both sides lie to each other."""

    def add(self, condition: exp.Expr) -> None:
        """Find out what a condition is good for."""
        check_scalar(condition, "ON")
        node = resolved(condition, self.sides.both)
        self.bounds_of_both |= self.sides.bounds_in(node) == {"l", "r"}
        while isinstance(node, exp.Paren):
            node = node.this
        if isinstance(node, _COMPARISONS) and (
            self._is_bound(node, condition) or self._is_key(node)
        ):
            return
        sides = self.sides.of(node)
        if self.exact:
            refuse(
                f"the condition {text_of(condition)} in ON of this join",
                "filter the rows of that side in a subquery"
                if sides == {self.optional}
                else "only inner joins have other conditions than equal columns and a time bound",
            )
        if sides == {"l"}:
            self.of_left.append(self.sides.own(node))
        elif sides == {"r"}:
            self.of_right.append(self.sides.own(node))
        else:
            self.behind.append(condition)

    def add_equal(self, ours: str, theirs: str) -> None:
        """Add a column of USING: what it is called on both sides."""
        left, right = (exp.column(exp.to_identifier(name)) for name in (f"l{ours}", f"r{theirs}"))
        node = exp.EQ(this=left, expression=right)
        self.bounds_of_both |= self.sides.bounds_in(node) == {"l", "r"}
        if not self._is_bound(node, node):
            self._is_key(node)

    def _is_key(self, node: exp.Binary) -> bool:
        pair = (node.this, node.expression)
        sides = [self.sides.of(each) for each in pair]
        if not isinstance(node, exp.EQ) or sides not in ([{"l"}, {"r"}], [{"r"}, {"l"}]):
            return False
        left, right = pair if sides[0] == {"l"} else pair[::-1]
        ours, theirs = self.sides.own(left), self.sides.own(right)
        self.keys.append((ours, theirs))
        self._use_windows(ours, theirs)
        return True

    def _use_windows(self, ours: exp.Expr, theirs: exp.Expr) -> None:
        """Windows of which bounds are equal end as far apart as their lengths say: that is a bound."""
        left, right = self.sides.left, self.sides.right
        lengths = _length_from(left, ours), _length_from(right, theirs)
        if lengths[0] is None or lengths[1] is None:
            return
        apart = lengths[1] - lengths[0]
        if _is_start(left, ours) and _is_start(right, theirs):
            self.lower = apart if self.lower is None else max(self.lower, apart)
            self.upper = apart if self.upper is None else min(self.upper, apart)
        else:
            # What bounds were written is what the join of a checkpoint has.
            self.else_apart = apart

    def _is_bound(self, node: exp.Binary, condition: exp.Expr) -> bool:
        """``right time - left time`` compared with a length, however it was written."""
        first, second = self._moment(node.this), self._moment(node.expression)
        if first is None or second is None or first.side == second.side:
            return False
        kind: type[exp.Binary] = type(node)
        length, slack = second.length - first.length, first.slack_ms + second.slack_ms
        if first.side == "l":
            kind, length = _TURNED[kind], -length
        loose = kind in (exp.GT, exp.LT) or length.denominator != 1 or slack > 0
        if slack and self.exact:
            refuse(
                f"the bound {text_of(condition)} in ON of this join",
                "a day of the session's time zone may have 23 or 25 hours, and only inner joins can "
                "have such bounds: for 24 hours of any day add parts of one, as in ts + INTERVAL '12' "
                "HOUR + INTERVAL '12' HOUR",
            )
        if loose and self.exact:
            refuse(
                f"the bound {text_of(condition)} in ON of this join",
                "bounds of other joins than inner ones are whole milliseconds, with >= and <=: if "
                "times have no fractions of them, x > y is x >= y + INTERVAL '1' MILLISECOND",
            )
        if loose or (kind is exp.EQ and length):
            # The bounds of the operator are wider than that: what is too much goes behind it.
            self.behind.append(condition)
        if kind in (exp.GTE, exp.GT, exp.EQ):
            low = floor(length) - slack
            self.lower = low if self.lower is None else max(self.lower, low)
        if kind in (exp.LTE, exp.LT, exp.EQ):
            high = ceil(length) + slack
            self.upper = high if self.upper is None else min(self.upper, high)
        self.same_time |= kind is exp.EQ and not length and not slack
        return True

    def _moment(self, node: exp.Expr) -> _Moment | None:
        if isinstance(node, exp.Paren):
            return self._moment(node.this)
        side = self.sides.time_side(node)
        if side is not None:
            return _Moment(side, Fraction(0))
        if not isinstance(node, exp.Add | exp.Sub):
            return None
        length, base = node.expression, self._moment(node.this)
        if base is None and isinstance(node, exp.Add):
            length, base = node.this, self._moment(node.expression)
        if base is None or any(columns_in(length)) or length.find(exp.Interval) is None:
            return None
        plus = interval_ms(length)
        more = self.sides.unlike_days_ms(base.side) if abs(plus) >= _DAY_MS else 0
        total = base.length + (plus if isinstance(node, exp.Add) else -plus)
        return _Moment(base.side, total, base.slack_ms + more)

    def checked_bounds(self) -> tuple[int, int]:
        """The bounds, which there must be."""
        left, right = self.sides.left, self.sides.right
        for side, relation in (("left", left), ("right", right)):
            if relation.time is None:
                of_windows = relation.windows is not None and not relation.windows.ends
                hint = (
                    "select window_end in the subquery, too: it is the time of its rows"
                    if of_windows
                    else 'say with_watermark("ts", "10 seconds") on both streams, and select the '
                    "column in subqueries"
                )
                raise InputError(f"SQL: the {side} side of the join has no watermark", hint=hint)
        _check_zones(left, right)
        self.lower = self.else_apart if self.lower is None else self.lower
        self.upper = self.else_apart if self.upper is None else self.upper
        if self.lower is None or self.upper is None:
            missing = "time bound" if self.lower is self.upper else "second time bound"
            hint = _how_to_bound(left, right, same_windows=not self.bounds_of_both)
            if not self.keys and not self.same_time:
                hint += "; and rows that belong together have equal columns, such as AND a.k = b.k"
            refuse(f"a join without a {missing}", hint)
        return self.lower, self.upper


def _time_type(relation: Relation) -> str:
    return relation.stream.df.schema[relation.time or ""].dataType.simpleString()


def _check_zones(left: Relation, right: Relation) -> None:
    """Raise if the times of both sides are as far apart as Spark says only where the zone is UTC."""
    from holdfast.spark.jvm.columns import zone_offsets

    kinds = _time_type(left), _time_type(right)
    if kinds[0] != kinds[1] and zone_offsets(left.stream.df.sparkSession) != {0}:
        raise InputError(
            f"SQL: a join by times that are {kinds[0]} and {kinds[1]}, which Spark compares by the "
            "session's time zone",
            hint="give both streams times of one type before: stream.with_column('ts', "
            "F.col('ts').cast('timestamp')).with_watermark('ts', ...)",
        )


def _how_to_bound(left: Relation, right: Relation, same_windows: bool) -> str:
    """Without a length that could be taken over: only who knows the rows knows which is right."""
    ours, theirs = left.spoken_time, right.spoken_time
    if same_windows and _are_alike(left, right):
        return f"to pair results of the same window add: AND {theirs} = {ours}"
    return (
        f"say how far apart in time rows that belong together can be, as in: AND {theirs} BETWEEN "
        f"{ours} - INTERVAL 'x' SECOND AND {ours} + INTERVAL 'y' SECOND. Pairs further apart are "
        "left out, so x and y must be large enough for your rows; state is as large as they are"
    )


def _are_alike(left: Relation, right: Relation) -> bool:
    """Whether the rows of both sides are results of windows that are the same if their ends are."""
    ours, theirs = left.windows, right.windows
    if ours is None or theirs is None or ours.size_ms is None:
        return False
    return ours.spec == theirs.spec and left.time in ours.ends and right.time in theirs.ends


def _length_from(relation: Relation, node: exp.Expr) -> int | None:
    """How far it is from a bound of windows to their end, which is the time of the rows."""
    windows = relation.windows
    if windows is None or relation.time not in windows.ends or not isinstance(node, exp.Column):
        return None
    if node.name in windows.ends:
        return 0
    return windows.size_ms if _is_start(relation, node) else None


def _is_start(relation: Relation, node: exp.Expr) -> bool:
    windows = relation.windows
    return isinstance(node, exp.Column) and windows is not None and node.name in windows.starts
