"""The codes of events, and the head of their data (HEAD: value u32, flags u16, split u16).

code                          value, flags; bytes after the head

ROW | opcode of the partner   object id; the bytes of the 5.1 and of the 11.x after it. `split`: where the latter
                              begins, in words of 4 bytes. Without a partner the opcode and `split` are 0:
                                  such a 5.1 may be a part of an undo that is spread over several blocks
UNDO | opcode                 object id; the bytes of the 11.x and of the 5.6 or 5.11 after it, `split` as above.
                              Cancels the newest change of the transaction that matches; the xid has no sqn
BEGIN | FLAG_SYSTEM           the session's flags, 0 if there are none
COMMIT, ROLLBACK              epoch seconds, the flags of the 5.4
PREPARE                       0; the bytes of the 5.12
DDL                           object id, 0 if it has none; the bytes of the 24.1
LOAD                          data object id; blocks were loaded, or written without logging. It has no transaction
"""

from __future__ import annotations

from struct import Struct

ROW = 0x8000_0000
BEGIN = 0x52 << 16
COMMIT = 0x54 << 16
ROLLBACK = 0x55 << 16
UNDO = 0x56 << 16
PREPARE = 0x57 << 16
DDL = 0x58 << 16
LOAD = 0x59 << 16
OPERATION = 0xFFFF_0000
#: of ROW and UNDO: the opcode; of BEGIN: flags
ARGUMENT = 0xFFFF

#: flag of BEGIN: an internal transaction of the database, which changes no user table
FLAG_SYSTEM = 1

HEAD = Struct("<IHH")
#: flag of ROW, UNDO, PREPARE, DDL: the bytes are in the byte order of a big-endian host
FLAG_BIG_ENDIAN = 1
