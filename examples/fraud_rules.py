"""Fraud rules that change while the stream runs: a broadcast control stream.

Payments are keyed by card. Rules come on a second, small stream; every partition gets all of them
and keeps them as broadcast state. A rule takes effect from the epoch in which it arrives.
"""

import holdfast as hf
from common import print_table, session, work_folder, write_file


class FraudRules(hf.KeyedProcess):
    """Raises an alarm for each payment that breaks a rule."""

    output = "card string, rule string, amount double, spent double, payments long"

    rules = hf.BroadcastState("string", "struct<about:string,limit:double>")
    spent = hf.ReducingState("double", "sum")
    payments = hf.ReducingState("long", "sum")

    def process_broadcast(self, rows, ctx):
        for row in rows:
            if row.limit is None:
                self.rules.pop(row.rule)
            else:
                self.rules[row.rule] = (row.about, row.limit)

    def process(self, key, rows, ctx):
        for row in rows:
            self.spent.add(row.amount)
            self.payments.add(1)
            facts = {
                "amount": row.amount,
                "spent": self.spent.value,
                "payments": self.payments.value,
            }
            for name, rule in sorted(self.rules.items()):
                if facts[rule["about"]] > rule["limit"]:
                    ctx.metrics.add("alarms")
                    yield {"card": key.card, "rule": name, **facts}


def main() -> None:
    with work_folder() as work:
        write_input(work)
        spark = session("fraud_rules")
        payments = (
            spark.readStream.schema("card string, amount double")
            .option("maxFilesPerTrigger", 1)
            .json(str(work / "payments"))
        )
        rules = (
            spark.readStream.schema("rule string, about string, limit double")
            .option("maxFilesPerTrigger", 1)
            .json(str(work / "rules"))
        )
        alarms = hf.sinks.memory("alarms")
        query = (
            hf.stream(payments)
            .key_by("card")
            .connect(hf.stream(rules))
            .broadcast(FraudRules())
            .write_to(alarms)
            .start("fraud_rules", work / "checkpoint", trigger="available-now")
        )
        query.await_termination()
        for epoch, rows in alarms.epochs.items():
            found = sorted(rows.to_pylist(), key=lambda r: (r["card"], r["payments"], r["rule"]))
            print_table(f"Alarms of epoch {epoch}", found)
        spark.stop()


def write_input(work):
    """Three files of payments and of rules: each pair is read in the same epoch."""
    rules = [
        [("large payment", "amount", 500.0), ("many payments", "payments", 2)],
        [("large payment", "amount", 200.0), ("high total", "spent", 1000.0)],
        [("many payments", "payments", None)],
    ]
    payments = [
        [("4929", 30.0), ("4929", 620.0), ("5211", 480.0), ("5500", 5.0)],
        [("4929", 90.0), ("5211", 480.0), ("5500", 5.0), ("5500", 6.0)],
        [("4929", 15.0), ("5211", 480.0), ("5500", 5.0), ("5500", 210.0)],
    ]
    for number, (some, more) in enumerate(zip(rules, payments, strict=True)):
        names = ("rule", "about", "limit")
        write_file(work / "rules", number, [dict(zip(names, r, strict=True)) for r in some])
        write_file(work / "payments", number, [{"card": c, "amount": a} for c, a in more])


if __name__ == "__main__":
    main()
