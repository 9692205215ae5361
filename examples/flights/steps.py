"""The steps in Python of weather.toml: windows with a watermark, and a join of two streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FLIGHT = "origin STRING, dep_delay INT, time_hour TIMESTAMP"
_WEATHER = (
    "origin STRING, time_hour TIMESTAMP, temp DOUBLE, wind_speed DOUBLE, precip DOUBLE,"
    " visib DOUBLE"
)


def by_hour(frame: DataFrame, late: str) -> DataFrame:
    """Count flights by airport and scheduled hour of departure, with their mean delay.

    Args:
        frame: messages with a JSON body.
        late: a window closes once a flight so much newer than its end has arrived; an interval as
            Spark writes it.
    """
    from pyspark.sql import functions as F

    return (
        _bodies(frame, _FLIGHT)
        .withWatermark("time_hour", late)
        .groupBy("origin", F.window("time_hour", "1 hour"))
        .agg(
            F.count("*").alias("flights"),
            F.count("dep_delay").alias("departed"),
            F.coalesce(F.sum("dep_delay"), F.lit(0)).alias("minutes"),
        )
    )


def with_weather(frame: DataFrame, name_server: str, topic: str, late: str) -> DataFrame:
    """Join each airport's hour with the weather there, which is a stream of its own.

    Args:
        frame: from `by_hour`.
        name_server: where the topic of the weather is.
        topic: the topic of the weather.
        late: as for `by_hour`.
    """
    from pyspark.sql import functions as F

    reader = frame.sparkSession.readStream.format("rocketmq")
    options = {"nameServer": name_server, "columns": "body", "startingOffsets": "earliest"}
    weather = (
        _bodies(reader.options(**options).load(topic), _WEATHER)
        .withWatermark("time_hour", late)
        .withColumn("window", F.window("time_hour", "1 hour"))
        .drop("time_hour")
    )
    return frame.join(weather, ["origin", "window"]).selectExpr(
        "origin",
        "date_format(window.start, 'yyyy-MM-dd HH:mm') AS hour",
        "flights",
        "departed",
        "minutes",
        "round(minutes / nullif(departed, 0), 1) AS delay",
        "temp",
        "wind_speed AS wind",
        "precip",
        "visib",
    )


def _bodies(frame: DataFrame, schema: str) -> DataFrame:
    from pyspark.sql import functions as F

    body = F.from_json(F.col("body").cast("string"), schema)
    return frame.select(body.alias("row")).select("row.*")
