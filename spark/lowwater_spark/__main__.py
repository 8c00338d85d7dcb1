"""`lowwater-spark --config fleet.yaml --group bank`"""

from lowwater.runtime.service import run_service
from lowwater_spark.service import LandService


def main() -> None:
    flags = {"once": "land the available records, then exit"}
    run_service("lowwater-spark", "Lands a group's ordered transactions in Parquet.", "group", LandService, flags)


if __name__ == "__main__":
    main()
