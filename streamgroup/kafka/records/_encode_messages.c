/*
 * The compiled encoder of messages before record batches: magic 0 and 1, and those of Kafka 0.7. Equal to
 * encode_numpy.py byte for byte; the formats are described in message_sets.py.
 *
 * The first pass adds up the sizes, the second one writes. The room for a message is held against the end of what was
 * allocated before any of its bytes is written. The GIL is released in both.
 */

#include "_encode.h"

#include "_crc32.h"

enum { LARGEST_HEAD = 34 }; /* magic 1, without key and value */

static inline int64_t bytes_of(const struct cell *cell) {
    return cell->size > 0 ? cell->size : 0;
}

/* The bytes of one message, of which `head` are not those of key and value. */
static inline enum encode_fault message_size(const struct column *key, const struct column *value, int64_t row,
                                             int64_t head, struct cell cells[2], int64_t *size) {
    enum encode_fault fault;
    if ((fault = read_cell(key, row, &cells[0])) || (fault = read_cell(value, row, &cells[1]))) {
        return fault;
    }
    *size = head + bytes_of(&cells[0]) + bytes_of(&cells[1]);
    return *size > INT32_MAX ? TOO_LONG : ENCODED;
}

static int hold(const struct column *key, const struct column *value, int64_t start, int64_t stop) {
    if (start < 0 || start > stop || stop > elements(key) || stop > elements(value)) {
        PyErr_SetString(PyExc_ValueError, "the columns do not have these rows");
        return 0;
    }
    return 1;
}

PyObject *encode_message_sizes(PyObject *module, PyObject *args) {
    (void)module;
    struct column key, value;
    Py_buffer out;
    int head;
    if (!PyArg_ParseTuple(args, COLUMN_FORMAT COLUMN_FORMAT "iw*:message_sizes", COLUMN_ARGUMENTS(key),
                          COLUMN_ARGUMENTS(value), &head, &out)) {
        return NULL;
    }
    PyObject *result = NULL;
    const int64_t rows = out.len / (int64_t)sizeof(int64_t);
    if (!sized(&out, rows, sizeof(int64_t), "the sizes") || !hold(&key, &value, 0, rows)) {
        goto done;
    }
    if (head < 0 || head > LARGEST_HEAD) {
        PyErr_SetString(PyExc_ValueError, "no message has such a head");
        goto done;
    }
    int64_t *sizes = out.buf;
    enum encode_fault fault = ENCODED;
    Py_BEGIN_ALLOW_THREADS
    for (int64_t row = 0; row < rows && !fault; row++) {
        struct cell cells[2];
        fault = message_size(&key, &value, row, head, cells, &sizes[row]);
    }
    Py_END_ALLOW_THREADS
    result = fault ? refuse(fault) : Py_NewRef(Py_None);
done:
    release_column(&key);
    release_column(&value);
    PyBuffer_Release(&out);
    return result;
}

/* The sizes of all messages added up. */
static enum encode_fault add_up(const struct column *key, const struct column *value, int64_t start, int64_t stop,
                                int64_t head, int64_t *total) {
    *total = 0;
    for (int64_t row = start; row < stop; row++) {
        struct cell cells[2];
        int64_t size;
        const enum encode_fault fault = message_size(key, value, row, head, cells, &size);
        if (fault) {
            return fault;
        }
        *total += size;
        if (*total > INT32_MAX) {
            return TOO_LONG;
        }
    }
    return ENCODED;
}

/* A length, -1 for null, and as many bytes; the caller has checked that there is room. */
static inline uint8_t *store_cell(uint8_t *at, const struct cell *cell) {
    store_u32(at, (uint32_t)(int32_t)cell->size);
    if (cell->size > 0) {
        memcpy(at + 4, cell->data, (size_t)cell->size);
    }
    return at + 4 + bytes_of(cell);
}

static inline enum encode_fault put_message(struct writer *out, const struct column *key, const struct column *value,
                                            const Py_buffer *timestamps, int magic, int64_t row, int64_t offset) {
    struct cell cells[2];
    int64_t size;
    const enum encode_fault fault = message_size(key, value, row, magic ? 34 : 26, cells, &size);
    if (fault) {
        return fault;
    }
    if (size > out->end - out->at) {
        return NO_ROOM;
    }
    uint8_t *begin = out->at, *at = begin + 18;
    store_u64(begin, (uint64_t)offset);
    store_u32(begin + 8, (uint32_t)(size - 12));
    begin[16] = (uint8_t)magic;
    begin[17] = 0;
    if (magic) {
        store_u64(at, (uint64_t)load_long(timestamps, row));
        at += 8;
    }
    at = store_cell(at, &cells[0]);
    out->at = store_cell(at, &cells[1]);
    store_u32(begin + 12, crc32_of(begin + 16, (size_t)(size - 16)));
    return ENCODED;
}

PyObject *encode_messages(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer timestamps;
    struct column key, value;
    int magic;
    Py_ssize_t start, stop, reserve;
    if (!PyArg_ParseTuple(args, "y*" COLUMN_FORMAT COLUMN_FORMAT "innn:encode_messages", &timestamps,
                          COLUMN_ARGUMENTS(key), COLUMN_ARGUMENTS(value), &magic, &start, &stop, &reserve)) {
        return NULL;
    }
    PyObject *result = NULL;
    if (!hold(&key, &value, start, stop)) {
        goto done;
    }
    if (stop > timestamps.len / 8 || (magic != 0 && magic != 1)) {
        PyErr_SetString(PyExc_ValueError, "a magic or rows that there are not");
        goto done;
    }
    int64_t total;
    enum encode_fault fault;
    Py_BEGIN_ALLOW_THREADS
    fault = add_up(&key, &value, start, stop, magic ? 34 : 26, &total);
    Py_END_ALLOW_THREADS
    struct writer out;
    result = allocate(fault, reserve, total, &out);
    if (!result) {
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    for (int64_t row = start; row < stop && !fault; row++) {
        fault = put_message(&out, &key, &value, &timestamps, magic, row, row - start);
    }
    Py_END_ALLOW_THREADS
    result = finish(result, fault, &out);
done:
    PyBuffer_Release(&timestamps);
    release_column(&key);
    release_column(&value);
    return result;
}

/* Kafka 0.7 */

static const struct column no_keys;

static inline enum encode_fault put_message07(struct writer *out, const struct column *value, int magic, int64_t row) {
    const int64_t head = magic ? 10 : 9;
    struct cell cells[2];
    int64_t size;
    const enum encode_fault fault = message_size(&no_keys, value, row, head, cells, &size);
    if (fault) {
        return fault;
    }
    if (size > out->end - out->at) {
        return NO_ROOM;
    }
    uint8_t *begin = out->at, *payload = begin + head;
    const int64_t length = bytes_of(&cells[1]);
    store_u32(begin, (uint32_t)(size - 4));
    begin[4] = (uint8_t)magic;
    begin[5] = 0; /* the attributes; in magic 0 the checksum, which comes next */
    if (length) {
        memcpy(payload, cells[1].data, (size_t)length);
    }
    store_u32(payload - 4, crc32_of(payload, (size_t)length));
    out->at = payload + length;
    return ENCODED;
}

PyObject *encode_messages07(PyObject *module, PyObject *args) {
    (void)module;
    struct column value;
    int magic;
    Py_ssize_t start, stop, reserve;
    if (!PyArg_ParseTuple(args, COLUMN_FORMAT "innn:encode_messages07", COLUMN_ARGUMENTS(value), &magic, &start, &stop,
                          &reserve)) {
        return NULL;
    }
    PyObject *result = NULL;
    if (!hold(&no_keys, &value, start, stop)) {
        goto done;
    }
    if (magic != 0 && magic != 1) {
        PyErr_SetString(PyExc_ValueError, "a magic that there is not");
        goto done;
    }
    int64_t total;
    enum encode_fault fault;
    Py_BEGIN_ALLOW_THREADS
    fault = add_up(&no_keys, &value, start, stop, magic ? 10 : 9, &total);
    Py_END_ALLOW_THREADS
    struct writer out;
    result = allocate(fault, reserve, total, &out);
    if (!result) {
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    for (int64_t row = start; row < stop && !fault; row++) {
        fault = put_message07(&out, &value, magic, row);
    }
    Py_END_ALLOW_THREADS
    result = finish(result, fault, &out);
done:
    release_column(&value);
    return result;
}
