# The C types of slab.py. Without them the module works the same, but is a hundred times slower.
cimport cython

from lowwater_extractor._native.frames cimport Frames

cdef int _WORDS, _PAYLOAD, _SIZE, _KEY, _KEY_SIZE, _SEQ_MAX, _FRAME_SIZE, _HEADER
cdef unsigned int _ALL
cdef const unsigned int[::1] _TABLES

@cython.locals(crc=cython.uint, low=cython.uint)
cdef unsigned int _crc32(const unsigned char* data, Py_ssize_t at, Py_ssize_t stop, const unsigned int[::1] tables) noexcept

@cython.locals(place=cython.Py_ssize_t)
cdef Py_ssize_t _put(
    unsigned char* out, Py_ssize_t at, const unsigned char* data, Py_ssize_t start, Py_ssize_t stop
) noexcept

@cython.locals(left=cython.ulonglong)
cdef Py_ssize_t _put_seq(unsigned char* out, Py_ssize_t at, unsigned long long seq) noexcept

cdef class Slab:
    cdef Py_ssize_t _rows, _room, _at
    cdef bytearray _memory
    cdef object _held, _table
    cdef unsigned long long _base
    cdef unsigned long long[::1] _words
    cdef readonly Py_ssize_t count, size
    cdef readonly unsigned long long checksum

    cpdef clear(self)

    @cython.locals(
        at=cython.Py_ssize_t, key_at=cython.Py_ssize_t, key_size=cython.Py_ssize_t, row=cython.Py_ssize_t,
        number=cython.Py_ssize_t, stop=cython.Py_ssize_t, begin=cython.Py_ssize_t, checksum=cython.ulonglong,
        frame=tuple, header=bytes, body=bytes,
    )
    cpdef Py_ssize_t add_changes(
        self, bytes key, list frames, Py_ssize_t start, Py_ssize_t most, unsigned long long seq
    ) except -1

    @cython.locals(
        at=cython.Py_ssize_t, key_at=cython.Py_ssize_t, key_size=cython.Py_ssize_t, row=cython.Py_ssize_t,
        stop=cython.Py_ssize_t, end=cython.Py_ssize_t, header=cython.Py_ssize_t,
        begin=cython.Py_ssize_t, checksum=cython.ulonglong,
    )
    cpdef Py_ssize_t add_frames(
        self, bytes key, Frames frames, Py_ssize_t place, Py_ssize_t most, unsigned long long seq
    ) except -1

    cdef void _added(
        self, Py_ssize_t count, Py_ssize_t at, Py_ssize_t begin, unsigned long long checksum
    ) noexcept

    @cython.locals(at=cython.Py_ssize_t)
    cpdef bint add(self, bytes key, bytes value) except -1

    cdef Py_ssize_t _put_key(self, bytes key) except -2

    cdef void _list(self, Py_ssize_t row, Py_ssize_t begin, Py_ssize_t end, Py_ssize_t key_at, Py_ssize_t key_size) noexcept
