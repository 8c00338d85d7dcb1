"""Finds the files of a state that may have tangled keys, by their `TangleFacts` in the ledger. Pure; see `tangles`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lowwater.lake.chain.manifest import File


@dataclass(frozen=True, slots=True)
class Suspects:
    """The files to search for tangled keys. They have all changes of every transaction that may be tangled."""

    #: to be searched completely
    whole: tuple[File, ...] = ()
    #: to be searched only at `gsns`: transactions that are in more than one file
    partly: tuple[File, ...] = ()
    gsns: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.whole or self.gsns)


def find_suspects(files: Sequence[File]) -> Suspects:
    """`files`: `stream` files of one table."""
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
    """Pairs of files with a common gsn; the file that begins first is the first of the pair."""
    active: list[File] = []
    for file in sorted(files, key=lambda file: (file.gsn_min, file.gsn_max)):
        active = [other for other in active if other.gsn_max >= file.gsn_min]
        for other in active:
            yield other, file
        active.append(file)


def _may_tangle(a: File, b: File) -> bool:
    """Whether the last transaction of `a`, which is the first one of `b`, may be tangled."""
    if a.tangles is None or b.tangles is None:
        return True
    # it is unknown which file has the first changes of the transaction
    adds = a.tangles.last_adds or b.tangles.first_adds
    return adds and (a.tangles.last_takes or b.tangles.first_takes)
