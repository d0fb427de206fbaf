"""A query of Spark's own that dies in the middle of a batch. Run as a script.

python adopt_killed_query.py WORK_DIR PROVIDER BATCH
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.spark.adopt_support import PROVIDER, PROVIDERS, stream
from tests.spark.programs import session


def main() -> None:
    work, provider, last = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    spark = session(work)
    spark.conf.set(PROVIDER, PROVIDERS[provider])
    spark.conf.set("spark.sql.shuffle.partitions", "2")

    def die(batch: DataFrame, number: int) -> None:
        # The state of the batch is written when its rows have been computed, and then it is late.
        batch.collect()
        if number == last:
            os.kill(os.getpid(), signal.SIGKILL)

    counts = stream(spark, work).groupBy("word").agg(F.count("*"), F.sum("amount"))
    writer = counts.writeStream.outputMode("update").foreachBatch(die)
    writer = writer.option("checkpointLocation", str(work / "old")).trigger(availableNow=True)
    writer.start().awaitTermination()


if __name__ == "__main__":
    main()
