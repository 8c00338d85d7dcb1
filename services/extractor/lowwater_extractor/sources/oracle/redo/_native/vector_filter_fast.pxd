# The C types of vector_filter_fast.py.
cimport cython

cdef int _VECTOR_HEAD, _TYP_ENCRYPTED, _ROW_UNDO, _LOCK, _SESSION_START, _SESSION_ON, _SESSION_SYSTEM, _ROLLED_BACK
cdef int _COMMIT_FIELDS_MAX, _PASSED, _UNDO, _ROW, _BEGIN, _COMMIT, _SESSION, _UNKNOWN
cdef long long _CODE_ROW, _CODE_BEGIN, _CODE_COMMIT, _CODE_ROLLBACK, _FLAG_SYSTEM, _FLAG_BIG_ENDIAN
cdef int _START_FIELD, _ON_FIELD

ctypedef const unsigned char[::1] Raw
ctypedef const unsigned short[::1] Words
ctypedef const unsigned int[::1] Longs
ctypedef const long long[::1] Column
ctypedef long long[::1] Out
ctypedef unsigned long long[::1] Xids

@cython.locals(low=cython.longlong, high=cython.longlong, middle=cython.longlong)
cdef bint _has(Column keys, long long key) noexcept

@cython.locals(place=cython.longlong)
cdef long long _field(Words words, long long at, long long first, long long number) noexcept

@cython.locals(high=cython.ulonglong)
cdef unsigned long long _xid(long long segment, unsigned long long slot, unsigned long long sequence) noexcept

@cython.locals(event=cython.longlong)
cdef void _tell(Out code, Out value, long long start, long long stop, long long session) noexcept

@cython.locals(
    count=cython.longlong, open_event=cython.longlong, record=cython.longlong, first_event=cython.longlong,
    session=cython.longlong, is_on=cython.bint, pick=cython.longlong, kind=cython.int, at=cython.longlong,
    first=cython.longlong, container=cython.longlong, ktub=cython.longlong, number=cython.longlong,
    operation=cython.int, opcode=cython.longlong, flags=cython.longlong, fields=cython.longlong,
    is_change=cython.bint, is_hidden=cython.bint,
    raw=Raw, words=Words, longs=Longs, is_big=cython.bint, objects=Column, low=Column, containers=Column,
    newest=cython.longlong, is_row=Raw, record_of=Column, at_of=Column, stop_of=Column, first_of=Column,
    fields_of=Column, opcode_of=Column, container_of=Column, kind_of=Raw, before_of=Column, event_record=Out,
    event_place=Out, event_stop=Out, event_container=Out, event_xid=Xids, event_code=Out, event_value=Out,
    event_flags=Out, event_split=Out,
)
cpdef long long list_usual(object payload, object captured, object picks, object room) except? -100
