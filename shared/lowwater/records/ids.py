"""Distinct types for ids that are numbers or strings."""

from typing import NewType

SchemaId = NewType("SchemaId", int)
#: `source/incarnation.generation/thread/txid`: unique among all transactions of a group
TransactionId = NewType("TransactionId", str)


def transaction_id(source: str, incarnation: str, generation: int, thread: int, txid: str) -> TransactionId:
    return TransactionId(f"{source}/{incarnation}.{generation}/{thread}/{txid}")


def next_generation(last: int, now_us: int) -> int:
    """The number of the next generation: `last + 1`, or the seconds since 1970 if higher.

    If the position of a source was lost with its topic, the last number is unknown. The time still gives a number that
    is higher than those of all earlier generations.
    """
    return max(last + 1, now_us // 1_000_000)
