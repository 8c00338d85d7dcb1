# The C types of lwns.py.
cimport cython

cdef int _BLOCK_HEAD, _LWN_HEAD, _VLD_LWN
cdef int _START, _STOP, _SCN, _UPPER, _TIME, _NUMBER, _MEMBERS

ctypedef const unsigned char[::1] Raw
ctypedef unsigned long long[::1] Column

cdef unsigned long long _u16(Raw raw, long long at, bint is_big) noexcept

@cython.locals(first=cython.ulonglong, second=cython.ulonglong)
cdef unsigned long long _u32(Raw raw, long long at, bint is_big) noexcept

@cython.locals(scn=cython.ulonglong, high=cython.ulonglong, last=cython.ulonglong)
cdef unsigned long long _scn(Raw raw, long long at, bint is_big) noexcept

@cython.locals(count=cython.longlong, block=cython.longlong, at=cython.longlong, length=cython.longlong)
cpdef long long count_lwns(Raw raw, long long block_size, long long blocks, bint is_big)

@cython.locals(block=cython.longlong, at=cython.longlong, lwn=cython.longlong)
cpdef list_lwns(Raw raw, long long block_size, long long count, bint is_big, Column out)
