/*
 * What the encoders share: Arrow's binary columns as the caller's buffers, and a writer that never writes beyond its
 * end. Every position that an offset or a bitmap gives is compared with its buffer before a byte there is read.
 */

#ifndef STREAMGROUP_ENCODE_H
#define STREAMGROUP_ENCODE_H

#include "_kernel.h"

enum encode_fault {
    ENCODED, BAD_COLUMN = 1, TOO_LONG = 2, NO_ROOM = 3,
};

/* One binary column. Buffers of Arrow may lie at any address, so that numbers are copied out of them. */
struct column {
    Py_buffer validity; /* a bitmap; none where no element is null */
    Py_buffer offsets;  /* of 4 or 8 bytes */
    Py_buffer data;
    Py_ssize_t first; /* the index of the first element in offsets and bitmap */
    int width;        /* the bytes of an offset; 0 where all elements are null and there are no buffers */
};

/* Flat: CPython 3.11 counts an inner tuple as one argument when it allocates the list of buffers to release, and writes
 * beyond that list where the tuple holds several. */
#define COLUMN_FORMAT "z*z*z*ni"
#define COLUMN_ARGUMENTS(column)                                                                                       \
    &(column).validity, &(column).offsets, &(column).data, &(column).first, &(column).width

static inline void release_column(struct column *column) {
    PyBuffer_Release(&column->validity);
    PyBuffer_Release(&column->offsets);
    PyBuffer_Release(&column->data);
}

/* The number of elements whose offsets and bits lie in their buffers; INT64_MAX where all are null, -1 for a column that
 * cannot be. */
static inline int64_t elements(const struct column *column) {
    if (!column->width) {
        return INT64_MAX;
    }
    if ((column->width != 4 && column->width != 8) || column->first < 0) {
        return -1;
    }
    int64_t found = column->offsets.len / column->width - 1 - column->first;
    if (column->validity.buf && found > 8 * (int64_t)column->validity.len - column->first) {
        found = 8 * (int64_t)column->validity.len - column->first;
    }
    return found > 0 ? found : 0;
}

static inline int64_t load_long(const Py_buffer *buffer, int64_t index) {
    int64_t value;
    memcpy(&value, (const uint8_t *)buffer->buf + 8 * index, sizeof value);
    return value;
}

static inline int64_t load_offset(const struct column *column, int64_t index) {
    if (column->width == 8) {
        return load_long(&column->offsets, index);
    }
    int32_t value;
    memcpy(&value, (const uint8_t *)column->offsets.buf + 4 * index, sizeof value);
    return value;
}

/* The bytes of one element; a size of -1 is null. */
struct cell {
    const uint8_t *data;
    int64_t size;
};

static inline enum encode_fault read_cell(const struct column *column, int64_t row, struct cell *cell) {
    cell->data = NULL;
    cell->size = -1;
    if (!column->width) {
        return ENCODED;
    }
    const int64_t index = column->first + row;
    const uint8_t *validity = column->validity.buf;
    if (validity && !(validity[index >> 3] >> (index & 7) & 1)) {
        return ENCODED;
    }
    const int64_t begin = load_offset(column, index), end = load_offset(column, index + 1);
    if (begin < 0 || begin > end || end > column->data.len) {
        return BAD_COLUMN;
    }
    if (end - begin > INT32_MAX) {
        return TOO_LONG;
    }
    cell->size = end - begin;
    cell->data = cell->size ? (const uint8_t *)column->data.buf + begin : NULL;
    return ENCODED;
}

/* Room to write to. */
struct writer {
    uint8_t *at;
    uint8_t *end;
};

static inline int put_bytes(struct writer *out, const void *data, int64_t size) {
    if (size > out->end - out->at) {
        return 0;
    }
    if (size > 0) {
        memcpy(out->at, data, (size_t)size);
        out->at += size;
    }
    return 1;
}

static inline void store_u32(uint8_t *at, uint32_t value) {
    at[0] = (uint8_t)(value >> 24), at[1] = (uint8_t)(value >> 16), at[2] = (uint8_t)(value >> 8), at[3] = (uint8_t)value;
}

static inline void store_u64(uint8_t *at, uint64_t value) {
    store_u32(at, (uint32_t)(value >> 32));
    store_u32(at + 4, (uint32_t)value);
}

/* Set the exception of a fault; always NULL. */
static inline PyObject *refuse(enum encode_fault fault) {
    switch (fault) {
    case TOO_LONG:
        PyErr_SetString(PyExc_OverflowError, "a record or a batch takes more than 2147483647 bytes");
        break;
    case NO_ROOM:
        PyErr_SetString(PyExc_ValueError, "the columns have changed while they were encoded");
        break;
    default:
        PyErr_SetString(PyExc_ValueError, "the offsets of a column do not fit its buffers");
    }
    return NULL;
}

/* A new bytearray of `size` bytes behind `reserve` zeros, and the room for them; NULL with an exception. `fault` is that
 * of the pass that added up the size. */
static inline PyObject *allocate(enum encode_fault fault, int64_t reserve, int64_t size, struct writer *out) {
    if (fault) {
        return refuse(fault);
    }
    if (reserve < 0 || size < 0 || size > INT32_MAX - reserve) {
        return refuse(TOO_LONG);
    }
    PyObject *result = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)(reserve + size));
    if (result) {
        uint8_t *begin = (uint8_t *)PyByteArray_AsString(result);
        memset(begin, 0, (size_t)reserve);
        out->at = begin + reserve;
        out->end = out->at + size;
    }
    return result;
}

/* `result`, where everything has been written; NULL with an exception else. */
static inline PyObject *finish(PyObject *result, enum encode_fault fault, const struct writer *out) {
    if (fault || out->at != out->end) {
        Py_DECREF(result);
        return refuse(fault ? fault : NO_ROOM);
    }
    return result;
}

#endif
