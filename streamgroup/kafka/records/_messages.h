/*
 * What the scans of message sets share: big-endian integers, faults, and the counting of messages.
 */

#ifndef STREAMGROUP_MESSAGES_H
#define STREAMGROUP_MESSAGES_H

#include "_kernel.h"

/* The numbers of message_sets.py: MessageFaultKind. */
enum fault {
    OK, FRAME = 1, MAGIC = 2, NESTED = 3, CHECKSUM = 4, LENGTH = 5, OVERRUN = 6, TRAILING = 7, OFFSET = 8,
    MISCOUNTED = 100, /* the caller's fault: the sets hold more or fewer messages than there is room for */
};

static inline uint32_t u32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | (uint32_t)at[3];
}

static inline int64_t i32(const uint8_t *at) {
    return (int32_t)u32(at);
}

static inline int64_t i64(const uint8_t *at) {
    return (int64_t)((uint64_t)u32(at) << 32 | u32(at + 4));
}

/* Where the frame at `at` ends, of which nothing reaches beyond `end`. */
typedef enum fault frame_reader(const uint8_t *at, const uint8_t *end, const uint8_t **next);

/* None, or (set, position, fault). */
static inline PyObject *verdict(enum fault fault, int64_t set, const uint8_t *at, const uint8_t *base) {
    if (fault == MISCOUNTED) {
        PyErr_SetString(PyExc_ValueError, "the messages are not as many as have been counted");
        return NULL;
    }
    return fault ? Py_BuildValue("Lni", (long long)set, (Py_ssize_t)(at - base), (int)fault) : Py_NewRef(Py_None);
}

/* How many messages the sets hold, whose frames `read` tells apart, or the verdict. */
static inline PyObject *count_by(PyObject *args, frame_reader *read) {
    Py_buffer b[3];
    if (!PyArg_ParseTuple(args, "y*y*y*:count", &b[0], &b[1], &b[2])) {
        return NULL;
    }
    PyObject *result = NULL;
    const int64_t sets = (int64_t)b[1].len / (int64_t)sizeof(int64_t);
    if (!addressable(&b[0]) || !sized(&b[1], sets, sizeof(int64_t), "begin") ||
        !sized(&b[2], sets, sizeof(int64_t), "end") || !inside(b[1].buf, b[2].buf, sets, b[0].len)) {
        goto done;
    }
    const int64_t *begin = b[1].buf, *end = b[2].buf;
    const uint8_t *base = b[0].buf, *at = base;
    enum fault fault = OK;
    int64_t count = 0, set = 0;
    Py_BEGIN_ALLOW_THREADS
    for (; set < sets; set++) {
        const uint8_t *stop = base + end[set];
        for (at = base + begin[set]; at < stop; count++) {
            if ((fault = read(at, stop, &at))) {
                break;
            }
        }
        if (fault) {
            break;
        }
    }
    Py_END_ALLOW_THREADS
    result = fault ? verdict(fault, set, at, base) : PyLong_FromLongLong(count);
done:
    release(b, 3);
    return result;
}

#endif
