"""What the Spark operator submits: the landing application, in the driver that it has started."""

from lowwater_spark.__main__ import main

main()
