"""Real servers for tests and benchmarks: HDFS daemons (hadoop.py) and an S3 server (s3.py).

Programs and jars are fetched once into a cache (:func:`bench.services.daemon.cache_folder`); servers
listen on loopback unless a command prefix starts them on a host of their own.
"""
