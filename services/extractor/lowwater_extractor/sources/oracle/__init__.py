"""Oracle, one or several redo threads: from the redo logs themselves, or by LogMiner."""

from collections.abc import Mapping

#: roles of a source kind (tests/conformance) that have a module of another name here, or none, and why
ROLES_ELSEWHERE: Mapping[str, str] = {
    "catalogue": "dictionary/query",
    "assembler": "transactions/assembler",
    "relations": "rows/row_decoder",
    "wire": "redo",
    "cursor": "there is no mode `incremental` for Oracle",
}
