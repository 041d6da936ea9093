/*
 * What the parts of the compiled kernel share: buffers of the caller, whose sizes are checked before anything is read
 * or written. Limited API (abi3): one build serves every CPython from 3.11 on.
 */

#ifndef STREAMGROUP_KERNEL_H
#define STREAMGROUP_KERNEL_H

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>
#include <stdint.h>
#include <string.h>

static inline int sized(const Py_buffer *buffer, int64_t items, size_t size, const char *name) {
    if (buffer->len != (Py_ssize_t)(items * (int64_t)size)) {
        PyErr_Format(PyExc_ValueError, "%s has %zd bytes where %lld elements are asked for", name, buffer->len,
                     (long long)items);
        return 0;
    }
    if ((uintptr_t)buffer->buf % size) {
        PyErr_Format(PyExc_ValueError, "%s is not aligned", name);
        return 0;
    }
    return 1;
}

static inline int addressable(const Py_buffer *buffer) {
    if (buffer->len > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "positions in the buffer take more than 32 bits");
        return 0;
    }
    return 1;
}

static inline void release(Py_buffer *buffers, int count) {
    for (int index = 0; index < count; index++) {
        PyBuffer_Release(&buffers[index]);
    }
}

/* Whether each `[begin, end)` lies in a buffer of `size` bytes. */
static inline int inside(const int64_t *begin, const int64_t *end, int64_t items, int64_t size) {
    for (int64_t index = 0; index < items; index++) {
        if (begin[index] < 0 || begin[index] > end[index] || end[index] > size) {
            PyErr_SetString(PyExc_ValueError, "a batch lies outside of the buffer");
            return 0;
        }
    }
    return 1;
}

/* _messages.c */
PyObject *messages_walk(PyObject *module, PyObject *args);
PyObject *messages_count(PyObject *module, PyObject *args);
PyObject *messages_scan(PyObject *module, PyObject *args);
PyObject *messages_crc32(PyObject *module, PyObject *args);

/* _messages07.c */
PyObject *messages_walk07(PyObject *module, PyObject *args);
PyObject *messages_count07(PyObject *module, PyObject *args);
PyObject *messages_scan07(PyObject *module, PyObject *args);

/* _encode.c */
PyObject *encode_record_sizes(PyObject *module, PyObject *args);
PyObject *encode_records(PyObject *module, PyObject *args);

/* _encode_messages.c */
PyObject *encode_message_sizes(PyObject *module, PyObject *args);
PyObject *encode_messages(PyObject *module, PyObject *args);
PyObject *encode_messages07(PyObject *module, PyObject *args);

#endif
