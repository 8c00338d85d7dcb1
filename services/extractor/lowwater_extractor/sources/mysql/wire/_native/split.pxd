# The C types of split.py.
cimport cython

cdef Py_ssize_t _WHOLE

@cython.locals(found=list, raw=cython.p_uchar, at=cython.Py_ssize_t, size=cython.Py_ssize_t, end=cython.Py_ssize_t)
cpdef tuple split(bytes data)

@cython.locals(found=list, raw=cython.p_uchar, at=cython.Py_ssize_t, size=cython.Py_ssize_t, end=cython.Py_ssize_t)
cpdef tuple split_events(bytes data)
