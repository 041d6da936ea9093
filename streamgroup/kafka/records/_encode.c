/*
 * The compiled encoder of record batches v2: Arrow's columns to records, one behind the other. Equal to encode_numpy.py
 * byte for byte; the format is described in fields.py.
 *
 * The first pass adds up the sizes, the second one writes. Every write is held against the end of what was allocated.
 * The GIL is released in both.
 */

#include "_encode.h"

/* The columns of RecordColumns. */
struct records {
    Py_buffer timestamps;
    struct column key;
    struct column value;
    Py_buffer header_offsets; /* of 8 bytes, one more than rows; none where no record has headers */
    struct column header_key;
    struct column header_value;
    int64_t headers; /* how many there are in the two columns */
};

#define RECORDS_FORMAT "y*" COLUMN_FORMAT COLUMN_FORMAT "z*" COLUMN_FORMAT COLUMN_FORMAT
#define RECORDS_ARGUMENTS(in)                                                                                          \
    &(in).timestamps, COLUMN_ARGUMENTS((in).key), COLUMN_ARGUMENTS((in).value), &(in).header_offsets,                  \
        COLUMN_ARGUMENTS((in).header_key), COLUMN_ARGUMENTS((in).header_value)

static void release_records(struct records *in) {
    PyBuffer_Release(&in->timestamps);
    release_column(&in->key);
    release_column(&in->value);
    PyBuffer_Release(&in->header_offsets);
    release_column(&in->header_key);
    release_column(&in->header_value);
}

/* Whether all columns have the rows `[start, stop)`. Where a record's headers lie is checked record by record. */
static int hold(struct records *in, int64_t start, int64_t stop) {
    const int64_t keys = elements(&in->header_key), values = elements(&in->header_value);
    in->headers = keys < values ? keys : values;
    if (start < 0 || start > stop || stop > in->timestamps.len / 8 || stop > elements(&in->key) ||
        stop > elements(&in->value) || (in->header_offsets.buf && stop > in->header_offsets.len / 8 - 1)) {
        PyErr_SetString(PyExc_ValueError, "the columns do not have these rows");
        return 0;
    }
    return 1;
}

static inline uint64_t zigzag(int64_t value) {
    return (uint64_t)value << 1 ^ (0 - ((uint64_t)value >> 63));
}

static inline int64_t varint_size(int64_t value) {
    int64_t size = 1;
    for (uint64_t left = zigzag(value) >> 7; left; left >>= 7) {
        size++;
    }
    return size;
}

static inline int put_varint(struct writer *out, int64_t value) {
    uint64_t left = zigzag(value);
    while (out->at < out->end) {
        if (left < 0x80) {
            *out->at++ = (uint8_t)left;
            return 1;
        }
        *out->at++ = (uint8_t)(left | 0x80);
        left >>= 7;
    }
    return 0;
}

/* A length, -1 for null, and as many bytes. */
static inline int64_t cell_size(const struct cell *cell) {
    return varint_size(cell->size) + (cell->size > 0 ? cell->size : 0);
}

static inline int put_cell(struct writer *out, const struct cell *cell) {
    return put_varint(out, cell->size) && put_bytes(out, cell->data, cell->size);
}

/* The headers `[begin, end)` of a row, whose elements lie in the columns. */
static inline enum encode_fault find_headers(const struct records *in, int64_t row, int64_t *begin, int64_t *end) {
    if (!in->header_offsets.buf) {
        *begin = *end = 0;
        return ENCODED;
    }
    *begin = load_long(&in->header_offsets, row);
    *end = load_long(&in->header_offsets, row + 1);
    if (*begin < 0 || *begin > *end || *end > in->headers) {
        return BAD_COLUMN;
    }
    return *end - *begin > INT32_MAX ? TOO_LONG : ENCODED;
}

static inline enum encode_fault read_header(const struct records *in, int64_t index, struct cell *key,
                                            struct cell *value) {
    const enum encode_fault fault = read_cell(&in->header_key, index, key);
    if (fault) {
        return fault;
    }
    return key->size < 0 ? BAD_COLUMN : read_cell(&in->header_value, index, value);
}

/* One row: what is read once and then both measured and written. */
struct record {
    struct cell key;
    struct cell value;
    int64_t first_header;
    int64_t last_header;
    int64_t size; /* of everything behind the two deltas */
};

static inline enum encode_fault read_record(const struct records *in, int64_t row, struct record *record) {
    enum encode_fault fault;
    if ((fault = read_cell(&in->key, row, &record->key)) || (fault = read_cell(&in->value, row, &record->value)) ||
        (fault = find_headers(in, row, &record->first_header, &record->last_header))) {
        return fault;
    }
    record->size = cell_size(&record->key) + cell_size(&record->value) +
                   varint_size(record->last_header - record->first_header);
    for (int64_t index = record->first_header; index < record->last_header; index++) {
        struct cell key, value;
        if ((fault = read_header(in, index, &key, &value))) {
            return fault;
        }
        record->size += cell_size(&key) + cell_size(&value);
    }
    return record->size > INT32_MAX - 16 ? TOO_LONG : ENCODED; /* 16: attributes and deltas */
}

/* Java's subtraction, which wraps around. */
static inline int64_t timestamp_delta(const struct records *in, int64_t row, int64_t start) {
    const uint64_t delta = (uint64_t)load_long(&in->timestamps, row) - (uint64_t)load_long(&in->timestamps, start);
    int64_t result;
    memcpy(&result, &delta, sizeof result);
    return result;
}

static inline enum encode_fault put_record(struct writer *out, const struct records *in, int64_t row, int64_t start) {
    static const uint8_t attributes = 0;
    struct record record;
    enum encode_fault fault = read_record(in, row, &record);
    if (fault) {
        return fault;
    }
    const int64_t time = timestamp_delta(in, row, start), offset = row - start;
    if (!put_varint(out, 1 + varint_size(time) + varint_size(offset) + record.size) ||
        !put_bytes(out, &attributes, 1) || !put_varint(out, time) || !put_varint(out, offset) ||
        !put_cell(out, &record.key) || !put_cell(out, &record.value) ||
        !put_varint(out, record.last_header - record.first_header)) {
        return NO_ROOM;
    }
    for (int64_t index = record.first_header; index < record.last_header; index++) {
        struct cell key, value;
        if ((fault = read_header(in, index, &key, &value))) {
            return fault;
        }
        if (!put_cell(out, &key) || !put_cell(out, &value)) {
            return NO_ROOM;
        }
    }
    return ENCODED;
}

PyObject *encode_record_sizes(PyObject *module, PyObject *args) {
    (void)module;
    struct records in;
    Py_buffer out;
    long long deltas;
    if (!PyArg_ParseTuple(args, RECORDS_FORMAT "Lw*:record_sizes", RECORDS_ARGUMENTS(in), &deltas, &out)) {
        return NULL;
    }
    PyObject *result = NULL;
    const int64_t rows = in.timestamps.len / 8;
    if (!sized(&out, rows, sizeof(int64_t), "the sizes") || !hold(&in, 0, rows)) {
        goto done;
    }
    if (deltas < 0 || deltas > 15) {
        PyErr_SetString(PyExc_ValueError, "the two deltas take 15 bytes at most");
        goto done;
    }
    int64_t *sizes = out.buf;
    enum encode_fault fault = ENCODED;
    Py_BEGIN_ALLOW_THREADS
    for (int64_t row = 0; row < rows && !fault; row++) {
        struct record record;
        if (!(fault = read_record(&in, row, &record))) {
            const int64_t size = 1 + deltas + record.size;
            sizes[row] = varint_size(size) + size;
        }
    }
    Py_END_ALLOW_THREADS
    result = fault ? refuse(fault) : Py_NewRef(Py_None);
done:
    release_records(&in);
    PyBuffer_Release(&out);
    return result;
}

PyObject *encode_records(PyObject *module, PyObject *args) {
    (void)module;
    struct records in;
    Py_ssize_t start, stop, reserve;
    if (!PyArg_ParseTuple(args, RECORDS_FORMAT "nnn:encode_records", RECORDS_ARGUMENTS(in), &start, &stop, &reserve)) {
        return NULL;
    }
    PyObject *result = NULL;
    if (!hold(&in, start, stop)) {
        goto done;
    }
    int64_t total = 0, latest = start < stop ? load_long(&in.timestamps, start) : 0;
    enum encode_fault fault = ENCODED;
    Py_BEGIN_ALLOW_THREADS
    for (int64_t row = start; row < stop; row++) {
        struct record record;
        if ((fault = read_record(&in, row, &record))) {
            break;
        }
        const int64_t timestamp = load_long(&in.timestamps, row);
        latest = timestamp > latest ? timestamp : latest;
        const int64_t size = 1 + varint_size(timestamp_delta(&in, row, start)) + varint_size(row - start) + record.size;
        total += varint_size(size) + size;
        if (total > INT32_MAX) {
            fault = TOO_LONG;
            break;
        }
    }
    Py_END_ALLOW_THREADS
    struct writer out;
    result = allocate(fault, reserve, total, &out);
    if (!result) {
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    for (int64_t row = start; row < stop && !fault; row++) {
        fault = put_record(&out, &in, row, start);
    }
    Py_END_ALLOW_THREADS
    result = finish(result, fault, &out);
    if (result) {
        result = Py_BuildValue("NL", result, (long long)latest);
    }
done:
    release_records(&in);
    return result;
}
