"""Which files of a state may hold tangled keys, by what the ledger says of them. Pure; see `tangles`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lowwater.lake.chain.manifest import File


@dataclass(frozen=True, slots=True)
class Suspects:
    """All changes of every transaction that may be tangled are in these; nothing else need be searched."""

    #: to be searched whole
    whole: tuple[File, ...] = ()
    #: to be searched at `gsns` alone: transactions that are in more than one file
    partly: tuple[File, ...] = ()
    gsns: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.whole or self.gsns)


def find_suspects(files: Sequence[File]) -> Suspects:
    """`files`: of one table, of the `stream` layer."""
    whole = {file.path for file in files if file.tangles is None or file.tangles.inside}
    ends: list[tuple[File, File]] = []
    for a, b in _overlapping(files):
        if a.gsn_max == b.gsn_min:
            ends.append((a, b))
        else:
            whole |= {a.path, b.path}
    partly: dict[str, File] = {}
    gsns: set[int] = set()
    for a, b in ends:
        if a.path in whole or b.path in whole or _may_tangle(a, b):
            partly |= {a.path: a, b.path: b}
            gsns.add(b.gsn_min)
    return Suspects(
        tuple(file for file in files if file.path in whole),
        tuple(file for path, file in partly.items() if path not in whole),
        tuple(sorted(gsns)),
    )


def _overlapping(files: Sequence[File]) -> Iterator[tuple[File, File]]:
    """Pairs that share a gsn, the one that begins first in front."""
    active: list[File] = []
    for file in sorted(files, key=lambda file: (file.gsn_min, file.gsn_max)):
        active = [other for other in active if other.gsn_max >= file.gsn_min]
        for other in active:
            yield other, file
        active.append(file)


def _may_tangle(a: File, b: File) -> bool:
    """Of the transaction that is the last one in `a`, and the first one in `b`."""
    if a.tangles is None or b.tangles is None:
        return True
    # which of the two has the transaction's first changes is not known
    adds = a.tangles.last_adds or b.tangles.first_adds
    return adds and (a.tangles.last_takes or b.tangles.first_takes)
