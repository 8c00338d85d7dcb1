# The C types of record_scan.py: without them it does the same, a hundred times slower.
cimport cython

cdef int _RECORD_HEAD, _LWN_HEAD, _VECTOR_HEAD, _BLOCK_HEAD, _VLD_VECTORS, _VLD_LWN, _TYP_ENCRYPTED
cdef int _PASSED, _UNDO, _ROW, _BEGIN, _COMMIT, _UNDONE, _STATE, _SESSION, _DDL
cdef int _NO_UNDO, _OTHER_UNDO, _UNDO_HEAD_MIN, _UNDO_OBJECT_MIN, _OPEN_LAST
cdef int _SMALL_RECORD, _BROKEN_CHAIN, _EMPTY_LWN, _BROKEN_VECTOR

ctypedef const unsigned char[::1] Raw
ctypedef const unsigned short[::1] Words
ctypedef const unsigned int[::1] Longs
ctypedef const unsigned char[::1] Table
ctypedef long long[::1] Column
ctypedef unsigned long long[::1] Keys
ctypedef unsigned char[::1] Bytes

@cython.locals(
    count=cython.longlong, lwn=cython.longlong, at=cython.longlong, end=cython.longlong, block=cython.longlong,
    left=cython.longlong, seen=cython.longlong, size=cython.longlong, low=cython.ulonglong, high=cython.ulonglong,
    last=cython.ulonglong, key=cython.ulonglong, offset=cython.longlong, named=cython.longlong,
    words=Words, longs=Longs, step=cython.Py_ssize_t, first=Column, start=Column, stop=Column, at_of=Column, key_of=Keys,
    cuts=Column, lowest=Keys, highest=Keys, ordered=Bytes,
)
cpdef long long walk_records(object payload, object lwns, object records, Column wrong) except? -100

@cython.locals(
    count=cython.longlong, lwn=cython.longlong, record=cython.longlong, at=cython.longlong, end=cython.longlong,
    flags=cython.int, undo=cython.longlong, lone=cython.longlong, listed=cython.longlong, first=cython.longlong,
    stop=cython.longlong, place=cython.longlong, field=cython.longlong, opcode=cython.int, kind=cython.int, before=cython.longlong,
    picked=cython.bint, head=cython.longlong, number=cython.longlong, spot=cython.longlong,
    began=cython.longlong,
    raw=Raw, words=Words, longs=Longs, at_of=Column, cuts=Column, ordered=Table, kinds=Table, maybe=Table,
    newest=cython.longlong, record_of=Column, place_of=Column, stop_of=Column, first_of=Column, fields_of=Column,
    opcode_of=Column, container_of=Column, kind_of=Bytes, before_of=Column,
)
cpdef long long pick_vectors(
    object payload, object records, object wanted, object room, Column open_of, Column wrong
) except? -100

cdef bint _ends(
    Words words, Longs longs, long long at, long long first, long long begin_at, long long begin_first,
) except -1
