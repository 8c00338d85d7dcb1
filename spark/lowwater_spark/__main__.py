"""`lowwater-spark --config fleet.yaml --group bank`"""

from lowwater.service import run_service
from lowwater_spark.service import LandService


def main() -> None:
    run_service("lowwater-spark", "Lands a group's ordered transactions in Parquet.", "group", LandService)


if __name__ == "__main__":
    main()
