"""Names for numbers and strings that must not be mixed up."""

from typing import NewType

SchemaId = NewType("SchemaId", int)
#: `source/incarnation/thread/txid`: unique over all that a group ever merges
TransactionId = NewType("TransactionId", str)


def transaction_id(source: str, incarnation: str, thread: int, txid: str) -> TransactionId:
    return TransactionId(f"{source}/{incarnation}/{thread}/{txid}")
