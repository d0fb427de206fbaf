"""``hdfs_program.py write|read URL PATH BYTES [COPIES]``: on a host of the lab, as a program there would."""

from __future__ import annotations

import sys

from hdfs_native import Client, WriteOptions


def main(verb: str, url: str, path: str, size: str, copies: str = "1") -> None:
    client = Client(url)
    if verb == "write":
        with client.create(path, WriteOptions(replication=1)) as file:
            file.write(bytes(int(size)))
        client.set_replication(path, int(copies))  # the others are made by HDFS
    else:
        with client.read(path) as file:
            assert len(file.read()) == int(size)


if __name__ == "__main__":
    main(*sys.argv[1:])
