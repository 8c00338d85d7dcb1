# The C types of frames.py. Without them the module works the same, but is a hundred times slower.
cimport cython

cdef int SIZE_BYTES, HEADER_BYTES

cdef class Frames:
    cdef bytearray _memory
    cdef Py_ssize_t _end, _count

    @cython.locals(at=cython.Py_ssize_t, whole=cython.Py_ssize_t, place=cython.Py_ssize_t)
    cpdef Py_ssize_t put(self, bytes header, const unsigned char* body, Py_ssize_t size) except -1

    @cython.locals(size=cython.Py_ssize_t, place=cython.Py_ssize_t)
    cpdef Py_ssize_t after(self, Py_ssize_t at) noexcept
