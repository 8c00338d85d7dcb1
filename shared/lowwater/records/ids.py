"""Names for numbers and strings that must not be mixed up."""

from typing import NewType

SchemaId = NewType("SchemaId", int)
#: `source/incarnation.generation/thread/txid`: unique over all that a group ever merges
TransactionId = NewType("TransactionId", str)


def transaction_id(source: str, incarnation: str, generation: int, thread: int, txid: str) -> TransactionId:
    return TransactionId(f"{source}/{incarnation}.{generation}/{thread}/{txid}")


def next_generation(last: int, now_us: int) -> int:
    """The number of a capture that starts from scratch.

    Seconds since 1970 where they are higher: a source whose position was lost with its topic must still come after
    all that it published before, and nothing but the time tells it so.
    """
    return max(last + 1, now_us // 1_000_000)
