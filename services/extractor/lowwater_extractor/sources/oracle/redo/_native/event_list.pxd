# The C types of event_list.py. An xid has more than 64 bits: it and its upper part are Python integers.
cimport cython

ctypedef const long long[::1] Column
ctypedef const unsigned long long[::1] Words

@cython.locals(row=cython.Py_ssize_t, events=list, xid=object, high=object, data=bytes)
cpdef list list_events(
    const char* memory, const char* heads, Py_ssize_t head_size, Words scn, Column container, Words low, Column code,
    Column place, Column start, Column stop,
)
