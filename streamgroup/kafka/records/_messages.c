/*
 * The compiled scan of message sets of magic 0 and 1. Equal to scan.py in all it accepts, refuses and finds;
 * the format is described in message_sets.py.
 *
 * A message is read only after its whole frame has been held against the end of its set, and keys and values after
 * their lengths have been held against the end of their message. Nothing is allocated here. The GIL is released while
 * bytes are read.
 */

#include "_messages.h"

#include "_crc32.h"

enum { FRAME_SIZE = 12, LEAST_FRAME = 26, CODEC_BITS = 7 };

#define NO_TIMESTAMP (-1)
#define NO_TIMESTAMP_TYPE (-1)
#define OWN (-2) /* as a set's timestamp type: each message has its own */

static inline enum fault frame(const uint8_t *at, const uint8_t *end, const uint8_t **next) {
    if (end - at < LEAST_FRAME) {
        return FRAME;
    }
    const int64_t size = i32(at + 8);
    const uint8_t magic = at[16];
    if (magic > 1) {
        return MAGIC;
    }
    if (size < (magic ? 22 : 14) || size > end - at - FRAME_SIZE) {
        return FRAME;
    }
    *next = at + FRAME_SIZE + size;
    return OK;
}

/* Looking ahead */

PyObject *messages_walk(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer data;
    Py_ssize_t position;
    long long least, until;
    if (!PyArg_ParseTuple(args, "y*nLL:walk", &data, &position, &least, &until)) {
        return NULL;
    }
    if (position < 0 || position > data.len || least < 0) {
        PyBuffer_Release(&data);
        PyErr_SetString(PyExc_ValueError, "the position lies outside of the data");
        return NULL;
    }
    Py_ssize_t count = 0;
    const uint8_t *base = data.buf, *at = base + position, *end = base + data.len, *next;
    Py_BEGIN_ALLOW_THREADS
    for (; frame(at, end, &next) == OK && !(at[17] & CODEC_BITS); at = next, count++) {
        const int64_t offset = i64(at);
        if (offset < least || offset >= until) {
            break;
        }
        least = offset + 1;
    }
    Py_END_ALLOW_THREADS
    PyObject *result = Py_BuildValue("nnL", (Py_ssize_t)(at - base), count, least - 1);
    PyBuffer_Release(&data);
    return result;
}

/* Scanning */

PyObject *messages_count(PyObject *module, PyObject *args) {
    (void)module;
    return count_by(args, frame);
}

/* One set: the arrays of MessageSets, one element. */
struct set {
    const uint8_t *begin;
    const uint8_t *end;
    int64_t least;
    int64_t last;
    int relative;
    int64_t timestamp;
    int64_t type;
};

/* The arrays of MessageFields. */
struct messages {
    int64_t *offset;
    int64_t *timestamp;
    int32_t *timestamp_type;
    int32_t *key_start;
    int32_t *key_length;
    int32_t *value_start;
    int32_t *value_length;
};

/* Bytes behind their length, -1 for null, that end at `end` at the latest; at least 4 bytes are there. */
static inline enum fault bytes(const uint8_t **at, const uint8_t *end, int64_t leave, const uint8_t *base,
                               int32_t *start, int32_t *length) {
    const int64_t size = i32(*at);
    *at += 4;
    if (size < -1) {
        return LENGTH;
    }
    if (size > end - *at - leave) {
        return OVERRUN;
    }
    *start = (int32_t)(*at - base);
    *length = (int32_t)size;
    *at += size > 0 ? size : 0;
    return OK;
}

/* The message `[at, end)`, but for its offset. */
static inline enum fault message(const uint8_t *at, const uint8_t *end, const uint8_t *base, const struct set *set,
                                 int checked, const struct messages *out, int64_t row) {
    const uint8_t magic = at[16], attributes = at[17];
    enum fault fault;
    if (attributes & CODEC_BITS) {
        return NESTED;
    }
    if (checked && crc32_of(at + 16, (size_t)(end - at - 16)) != u32(at + 12)) {
        return CHECKSUM;
    }
    const uint8_t *field = at + (magic ? 26 : 18);
    if ((fault = bytes(&field, end, 4, base, &out->key_start[row], &out->key_length[row])) ||
        (fault = bytes(&field, end, 0, base, &out->value_start[row], &out->value_length[row]))) {
        return fault;
    }
    if (field != end) {
        return TRAILING;
    }
    const int64_t timestamp = !magic ? NO_TIMESTAMP : set->type == 1 ? set->timestamp : i64(at + 18);
    out->timestamp[row] = timestamp;
    out->timestamp_type[row] = set->type != OWN ? (int32_t)set->type : magic ? attributes >> 3 & 1 : NO_TIMESTAMP_TYPE;
    return OK;
}

/* The messages of one set, from `row` on, of which there are `rows`; `at` follows them. */
static inline enum fault scan_set(const struct set *set, const uint8_t *base, int checked, const struct messages *out,
                                  int64_t *row, int64_t rows, const uint8_t **at) {
    const int64_t first = *row;
    const uint8_t *next = set->begin;
    enum fault fault;
    for (int64_t previous = -1; next < set->end; (*row)++) {
        if (*row >= rows) {
            return MISCOUNTED;
        }
        *at = next;
        if ((fault = frame(*at, set->end, &next)) || (fault = message(*at, next, base, set, checked, out, *row))) {
            return fault;
        }
        const int64_t offset = i64(*at);
        if (offset <= previous) {
            return OFFSET;
        }
        previous = out->offset[*row] = offset;
    }
    if (*row == first) {
        return OK;
    }
    /* Neither is negative: their difference fits. */
    const int64_t raw = out->offset[*row - 1], shift = set->relative ? set->last - raw : 0;
    if (shift < 0 || out->offset[first] + shift < set->least || raw + shift != set->last) {
        return OFFSET;
    }
    for (int64_t index = first; shift && index < *row; index++) {
        out->offset[index] += shift;
    }
    return OK;
}

enum { SETS = 7, MESSAGES = 7 };
PyObject *messages_scan(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer b[1 + SETS + MESSAGES];
    int checked;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*y*y*pw*w*w*w*w*w*w*:messages", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5],
                          &b[6], &b[7], &checked, &b[8], &b[9], &b[10], &b[11], &b[12], &b[13], &b[14])) {
        return NULL;
    }
    PyObject *result = NULL;
    const int64_t sets = (int64_t)b[1].len / (int64_t)sizeof(int64_t);
    const int64_t rows = (int64_t)b[8].len / (int64_t)sizeof(int64_t);
    int good = addressable(&b[0]);
    for (int index = 1; index <= SETS && good; index++) {
        good = sized(&b[index], sets, index == 5 ? sizeof(uint8_t) : sizeof(int64_t), "an array of sets");
    }
    for (int index = SETS + 1; index <= SETS + MESSAGES && good; index++) {
        good = sized(&b[index], rows, index < SETS + 3 ? sizeof(int64_t) : sizeof(int32_t), "an array of messages");
    }
    if (!good || !inside(b[1].buf, b[2].buf, sets, b[0].len)) {
        goto done;
    }
    const int64_t *begin = b[1].buf, *end = b[2].buf, *least = b[3].buf, *last = b[4].buf;
    const int64_t *timestamp = b[6].buf, *type = b[7].buf;
    const uint8_t *relative = b[5].buf, *base = b[0].buf, *at = base;
    const struct messages out = {b[8].buf, b[9].buf, b[10].buf, b[11].buf, b[12].buf, b[13].buf, b[14].buf};
    enum fault fault = OK;
    int64_t set = 0, row = 0;
    Py_BEGIN_ALLOW_THREADS
    for (; set < sets; set++) {
        const struct set one = {base + begin[set], base + end[set], least[set],    last[set],
                                relative[set],     timestamp[set],  type[set]};
        if ((fault = scan_set(&one, base, checked, &out, &row, rows, &at))) {
            break;
        }
    }
    Py_END_ALLOW_THREADS
    result = verdict(!fault && row != rows ? MISCOUNTED : fault, set, at, base);
done:
    release(b, 1 + SETS + MESSAGES);
    return result;
}

PyObject *messages_crc32(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer data;
    int portable;
    if (!PyArg_ParseTuple(args, "y*p:crc32", &data, &portable)) {
        return NULL;
    }
    uint32_t crc;
    Py_BEGIN_ALLOW_THREADS
    crc = portable ? crc32_portable(data.buf, (size_t)data.len) : crc32_of(data.buf, (size_t)data.len);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(crc);
}
