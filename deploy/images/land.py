"""The application that the Spark operator submits: the landing, in the driver that the operator has started."""

from lowwater_spark.__main__ import main

main()
