# The C types of row_bytes.py. Without them the module works the same, but is a hundred times slower.
cimport cython

from lowwater_extractor._native.frames cimport Frames

cdef int _STEP, _HIDDEN, _NEVER_NULL, _ROWID, _WHAT
cdef int _INTEGER, _REAL, _TEXT, _BLOB, _SIGNED, _UNSIGNED, _COPIED, _COUNTED, _TIMESTAMP, _DATETIME, _DATE, _DECIMAL
cdef int _UTF8
cdef int _CREATE, _UPDATE, _DELETE, _INSERTED, _UPDATED, _DELETED
cdef Py_ssize_t _ID, _TIME, _TXN, _KIND, _TABLE, _ROW, _BEFORE, _AFTER, _UPDATES
cdef long long _EXACT, _EPOCH_DAYS, _DAY_SECONDS, _MILLION, _SECONDS_MAX, _DATETIME_OFFSET, _YEAR_MIN, _YEAR_MAX
cdef bytes _WIDTHS, _MONTH_DAYS, _DIGIT_BYTES

@cython.locals(z=cython.ulonglong)
cdef Py_ssize_t _put_long(unsigned char* out, Py_ssize_t at, long long n) noexcept

@cython.locals(place=cython.Py_ssize_t)
cdef Py_ssize_t _put_copy(
    unsigned char* out, Py_ssize_t at, const unsigned char* data, Py_ssize_t start, Py_ssize_t stop
) noexcept

@cython.locals(size=cython.longlong, exponent=cython.longlong, one=cython.longlong, bits=cython.longlong, shift=cython.int)
cdef Py_ssize_t _put_double(unsigned char* out, Py_ssize_t at, long long n) noexcept

@cython.locals(found=cython.int, place=cython.Py_ssize_t)
cdef bint _has_more_than_ascii(const unsigned char* r, Py_ssize_t p, Py_ssize_t e) noexcept

@cython.locals(c=cython.int, d=cython.int, more=cython.int, place=cython.Py_ssize_t)
cdef bint _is_utf8(const unsigned char* r, Py_ssize_t p, Py_ssize_t e) noexcept

@cython.locals(
    head=cython.Py_ssize_t, i=cython.Py_ssize_t, first=cython.Py_ssize_t, p=cython.Py_ssize_t, column=cython.Py_ssize_t,
    serial=cython.longlong, byte=cython.int, flags=cython.int, what=cython.int, length=cython.longlong,
    number=cython.longlong, place=cython.Py_ssize_t,
)
cdef Py_ssize_t _put_record(
    const unsigned char* r, Py_ssize_t size, long long rowid, const unsigned char* program, Py_ssize_t columns,
    bint is_rowid_first, unsigned char* out, Py_ssize_t at,
) noexcept

@cython.locals(half=cython.longlong)
cdef long long _signed(long long n, long long size) noexcept

@cython.locals(
    first=tuple, row=tuple, expected=cython.longlong, change_id=cython.longlong, txn=cython.longlong,
    change_txn=cython.longlong, table=str, count=cython.Py_ssize_t, total=cython.Py_ssize_t,
    number=cython.Py_ssize_t, kind=cython.longlong, rowid=cython.longlong, at=cython.Py_ssize_t,
    seconds=cython.longlong,
)
cpdef tuple take_changes(
    list rows, Py_ssize_t start, const unsigned char* program, Py_ssize_t columns, bint is_rowid_first, bytes header,
    unsigned char* out, Py_ssize_t room, Frames frames,
)

@cython.locals(
    nulls=cython.Py_ssize_t, column=cython.Py_ssize_t, flags=cython.int, is_shown=cython.bint, what=cython.int,
    size=cython.Py_ssize_t, length=cython.longlong, place=cython.Py_ssize_t, byte=cython.longlong,
)
cdef Py_ssize_t _put_row(
    const unsigned char* e, Py_ssize_t p, Py_ssize_t end, const unsigned char* program, Py_ssize_t columns,
    unsigned char* out, Py_ssize_t at, Py_ssize_t* behind,
) noexcept

@cython.locals(
    n=cython.longlong, place=cython.Py_ssize_t, byte=cython.longlong, micros=cython.longlong,
    days=cython.longlong,
)
cdef Py_ssize_t _put_number(
    const unsigned char* e, Py_ssize_t p, int what, Py_ssize_t size, Py_ssize_t fraction, unsigned char* out,
    Py_ssize_t at,
) noexcept

@cython.locals(is_leap=cython.bint, era=cython.longlong, of_era=cython.longlong, of_year=cython.longlong)
cdef long long _days_of(long long year, long long month, long long day) noexcept

@cython.locals(
    turned=cython.int, first=cython.int, unscaled=cython.longlong, whole=cython.int, left=cython.int, part=cython.int,
    digits=cython.int, group=cython.longlong, power=cython.longlong, place=cython.Py_ssize_t, size=cython.int,
)
cdef Py_ssize_t _put_decimal(
    const unsigned char* e, Py_ssize_t p, int precision, int scale, unsigned char* out, Py_ssize_t at
) noexcept

@cython.locals(total=cython.Py_ssize_t, behind=cython.Py_ssize_t[1], at=cython.Py_ssize_t)
cpdef Py_ssize_t take_rows(
    int op, const unsigned char* e, Py_ssize_t p, Py_ssize_t end, const unsigned char* program, Py_ssize_t columns,
    bytes header, long long ts_us, unsigned char* out, Py_ssize_t room, list frames,
) except? -2
