"""Reads tables on S3 by Spark 4.1, and writes a line of JSON for each: its name, and its rows.

Arguments: the folder of the jars, the address of S3, that of an Iceberg catalog, and NAME=PLACE of each table.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

jars, endpoint, catalog, *tables = sys.argv[1:]
OPTIONS = {
    "spark.driver.extraClassPath": f"{jars}/*",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "rest",
    "spark.sql.catalog.lake.uri": catalog,
    "spark.sql.catalog.lake.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
    "spark.sql.catalog.lake.s3.endpoint": endpoint,
    "spark.sql.catalog.lake.s3.path-style-access": "true",
    "spark.sql.catalog.lake.s3.access-key-id": "local",
    "spark.sql.catalog.lake.s3.secret-access-key": "local",
    "spark.sql.catalog.lake.client.region": "us-east-1",
    "spark.hadoop.fs.s3a.endpoint": endpoint,
    "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
    "spark.hadoop.fs.s3a.path.style.access": "true",
    "spark.hadoop.fs.s3a.access.key": "local",
    "spark.hadoop.fs.s3a.secret.key": "local",
    "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
}
builder = SparkSession.builder.master("local[2]")
for name, value in OPTIONS.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
for table in tables:
    name, _, place = table.partition("=")
    if name == "iceberg":
        frame = spark.table(f"lake.{place}")
    elif name == "delta":
        frame = spark.read.format("delta").load(place)
    else:
        frame = spark.read.option("mergeSchema", "true").parquet(place)
    rows = frame.select("stream", "shard", "sequenceNumber", "price").collect()
    print(json.dumps([name, [list(row) for row in rows]]))
spark.stop()
