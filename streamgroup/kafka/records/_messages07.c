/*
 * The compiled scan of messages of Kafka 0.7. Equal to scan.py in all it accepts, refuses and finds; the format
 * is described in message_sets.py, and how bytes are kept apart in _messages.c.
 */

#include "_messages.h"

#include "_crc32.h"

enum { LEAST_FRAME = 9, CODEC_BITS = 3 };

static inline enum fault frame07(const uint8_t *at, const uint8_t *end, const uint8_t **next) {
    if (end - at < LEAST_FRAME) {
        return FRAME;
    }
    const int64_t length = i32(at);
    const uint8_t magic = at[4];
    if (magic > 1) {
        return MAGIC;
    }
    if (length < 5 + magic || length > end - at - 4) {
        return FRAME;
    }
    *next = at + 4 + length;
    return OK;
}

PyObject *messages_walk07(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer data;
    Py_ssize_t position, stop;
    if (!PyArg_ParseTuple(args, "y*nn:walk07", &data, &position, &stop)) {
        return NULL;
    }
    if (position < 0 || position > data.len || stop < 0 || stop > data.len) {
        PyBuffer_Release(&data);
        PyErr_SetString(PyExc_ValueError, "the position lies outside of the data");
        return NULL;
    }
    Py_ssize_t count = 0, last = -1;
    const uint8_t *base = data.buf, *at = base + position, *end = base + data.len, *next;
    Py_BEGIN_ALLOW_THREADS
    for (; at < base + stop && frame07(at, end, &next) == OK; at = next, count++) {
        if (at[4] && at[5] & CODEC_BITS) {
            break;
        }
        last = at - base;
    }
    Py_END_ALLOW_THREADS
    PyObject *result = Py_BuildValue("nnn", (Py_ssize_t)(at - base), count, last);
    PyBuffer_Release(&data);
    return result;
}

PyObject *messages_count07(PyObject *module, PyObject *args) {
    (void)module;
    return count_by(args, frame07);
}

/* The arrays of MessageFields07. */
struct messages07 {
    int64_t *offset;
    int32_t *inner;
    int32_t *value_start;
    int32_t *value_length;
};

/* The messages of one set, from `row` on, of which there are `rows`; `at` follows them. */
static inline enum fault scan_set07(const uint8_t *begin, const uint8_t *end, int64_t offset, int wrapped,
                                    const uint8_t *base, int checked, const struct messages07 *out, int64_t *row,
                                    int64_t rows, const uint8_t **at) {
    const uint8_t *next = begin;
    enum fault fault;
    for (int32_t inner = 0; next < end; (*row)++, inner++) {
        if (*row >= rows) {
            return MISCOUNTED;
        }
        *at = next;
        if ((fault = frame07(*at, end, &next))) {
            return fault;
        }
        const uint8_t magic = (*at)[4], *value = *at + 9 + magic;
        if (magic && (*at)[5] & CODEC_BITS) {
            return NESTED;
        }
        if (checked && crc32_of(value, (size_t)(next - value)) != u32(value - 4)) {
            return CHECKSUM;
        }
        out->offset[*row] = offset + (wrapped ? 0 : *at - begin);
        out->inner[*row] = wrapped ? inner : 0;
        out->value_start[*row] = (int32_t)(value - base);
        out->value_length[*row] = (int32_t)(next - value);
    }
    return OK;
}

enum { SETS_07 = 4, MESSAGES_07 = 4 };
PyObject *messages_scan07(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer b[1 + SETS_07 + MESSAGES_07];
    int checked;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*pw*w*w*w*:messages07", &b[0], &b[1], &b[2], &b[3], &b[4], &checked, &b[5],
                          &b[6], &b[7], &b[8])) {
        return NULL;
    }
    PyObject *result = NULL;
    const int64_t sets = (int64_t)b[1].len / (int64_t)sizeof(int64_t);
    const int64_t rows = (int64_t)b[5].len / (int64_t)sizeof(int64_t);
    int good = addressable(&b[0]);
    for (int index = 1; index <= SETS_07 && good; index++) {
        good = sized(&b[index], sets, index == 4 ? sizeof(uint8_t) : sizeof(int64_t), "an array of sets");
    }
    for (int index = SETS_07 + 1; index <= SETS_07 + MESSAGES_07 && good; index++) {
        good = sized(&b[index], rows, index == 5 ? sizeof(int64_t) : sizeof(int32_t), "an array of messages");
    }
    if (!good || !inside(b[1].buf, b[2].buf, sets, b[0].len)) {
        goto done;
    }
    const int64_t *begin = b[1].buf, *end = b[2].buf, *offset = b[3].buf;
    const uint8_t *wrapped = b[4].buf, *base = b[0].buf, *at = base;
    const struct messages07 out = {b[5].buf, b[6].buf, b[7].buf, b[8].buf};
    enum fault fault = OK;
    int64_t set = 0, row = 0;
    Py_BEGIN_ALLOW_THREADS
    for (; set < sets; set++) {
        fault = scan_set07(base + begin[set], base + end[set], offset[set], wrapped[set], base, checked, &out, &row,
                           rows, &at);
        if (fault) {
            break;
        }
    }
    Py_END_ALLOW_THREADS
    result = verdict(!fault && row != rows ? MISCOUNTED : fault, set, at, base);
done:
    release(b, 1 + SETS_07 + MESSAGES_07);
    return result;
}
