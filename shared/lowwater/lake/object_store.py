"""A lake in an object store: S3 and its like, GCS, Azure. `obstore` speaks to all of them."""

from __future__ import annotations
