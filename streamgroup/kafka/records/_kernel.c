/*
 * The compiled scan: one pass over the records of many batches finds where every field lies, a second copies keys or
 * values together for Arrow. Equal to scan.py and columns.py in all it accepts, refuses and finds.
 *
 * Bytes are read in four places only (varint, attributes, field, gather), each behind a comparison with the end of what
 * may be read. Nothing is allocated here: the caller brings all buffers, and their sizes are checked. The GIL is
 * released while bytes are read.
 *
 * Message sets (magic 0, 1 and Kafka 0.7) are read by _messages.c and _messages07.c. Records are written by _encode.c and
 * _encode_messages.c.
 */

#include "_kernel.h"

#include "_crc32.h"

/* The numbers of fields.py: FaultCode. */
enum fault {
    OK, RECORD_LENGTH = 1, RECORDS_LEFT = 2, OVERRUN = 3, VARINT = 4, OFFSET = 5,
    LENGTH = 6, TRAILING = 7, HEADER_KEY = 8,
};

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        enum fault fault_ = (call);                                                                                    \
        if (fault_) {                                                                                                  \
            return fault_;                                                                                             \
        }                                                                                                              \
    } while (0)

/* What is left to read. */
struct cursor {
    const uint8_t *at;
    const uint8_t *end;
};

/* A zigzag varint of at most `width` bytes, the last of which may hold `last` at most. */
static inline enum fault varint(struct cursor *in, int width, uint8_t last, int64_t *value) {
    if (in->at < in->end && *in->at < 0x80) { /* most take one byte */
        const int64_t byte = *in->at++;
        *value = (byte >> 1) ^ -(byte & 1);
        return OK;
    }
    uint64_t raw = 0;
    for (int index = 0; index < width; index++) {
        if (in->at >= in->end) {
            return OVERRUN;
        }
        uint8_t byte = *in->at++;
        raw |= (uint64_t)(byte & 0x7F) << (7 * index);
        if (byte < 0x80) {
            if (index == width - 1 && byte > last) {
                return VARINT;
            }
            *value = (int64_t)((raw >> 1) ^ (0 - (raw & 1)));
            return OK;
        }
    }
    return VARINT;
}

#define VARINT32 5, 0x0F
#define VARINT64 10, 0x01

/* A length and as many bytes: where they start and how many they are, -1 for null. */
static inline enum fault field(struct cursor *in, const uint8_t *base, int32_t *start, int32_t *length) {
    int64_t size;
    TRY(varint(in, VARINT32, &size));
    if (size < -1) {
        return LENGTH;
    }
    if (size > in->end - in->at) {
        return OVERRUN;
    }
    *start = (int32_t)(in->at - base);
    *length = (int32_t)size;
    in->at += size > 0 ? size : 0;
    return OK;
}

static inline enum fault header(struct cursor *in, const uint8_t *base, int32_t *out) {
    TRY(field(in, base, &out[0], &out[1]));
    if (out[1] < 0) {
        return HEADER_KEY;
    }
    return field(in, base, &out[2], &out[3]);
}

/* One batch: the arrays of Regions, one element. */
struct region {
    int64_t base_offset;
    int64_t last_offset_delta;
    int64_t timestamp;
    int append_time;
};

/* The arrays of Fields. */
struct fields {
    int64_t *offset;
    int64_t *timestamp;
    int32_t *key_start;
    int32_t *key_length;
    int32_t *value_start;
    int32_t *value_length;
    int32_t *headers_start;
    int32_t *header_count;
};

/* One record, from `in` on; `previous` is the offset delta of the one before it. */
static inline enum fault record(struct cursor *in, const uint8_t *base, const struct region *region,
                                int64_t *previous, const struct fields *out, int64_t row) {
    int64_t length, timestamp_delta, offset_delta, headers;
    TRY(varint(in, VARINT32, &length));
    if (length < 0 || length > in->end - in->at) {
        return RECORD_LENGTH;
    }
    struct cursor own = {in->at, in->at + length};
    in->at = own.end;

    if (own.at >= own.end) {
        return OVERRUN;
    }
    own.at++; /* attributes, of which there are none */
    TRY(varint(&own, VARINT64, &timestamp_delta));
    TRY(varint(&own, VARINT32, &offset_delta));
    if (offset_delta <= *previous || offset_delta > region->last_offset_delta) {
        return OFFSET;
    }
    *previous = offset_delta;
    out->offset[row] = region->base_offset + offset_delta;
    if (region->append_time) {
        timestamp_delta = 0;
    }
    /* Any number is a timestamp, and the sum wraps around as in Java. */
    out->timestamp[row] = (int64_t)((uint64_t)region->timestamp + (uint64_t)timestamp_delta);
    TRY(field(&own, base, &out->key_start[row], &out->key_length[row]));
    TRY(field(&own, base, &out->value_start[row], &out->value_length[row]));
    TRY(varint(&own, VARINT32, &headers));
    if (headers < 0) {
        return LENGTH;
    }
    if (headers > (own.end - own.at) / 2) {
        return OVERRUN;
    }
    out->headers_start[row] = (int32_t)(own.at - base);
    out->header_count[row] = (int32_t)headers;
    for (int64_t index = 0; index < headers; index++) {
        int32_t ignored[4];
        TRY(header(&own, base, ignored));
    }
    return own.at == own.end ? OK : TRAILING;
}

/* Buffers */

/* The sum of counts that are not negative and do not overflow what positions can be; -1 with an exception else. */
static int64_t total(const int64_t *count, int64_t items) {
    int64_t sum = 0;
    for (int64_t index = 0; index < items; index++) {
        if (count[index] < 0 || count[index] > INT32_MAX - sum) {
            PyErr_SetString(PyExc_ValueError, "impossible counts");
            return -1;
        }
        sum += count[index];
    }
    return sum;
}

PyDoc_STRVAR(scan_doc,
             "scan(buffer, begin, end, count, base_offset, last_offset_delta, timestamp, append_time, /, *fields)\n"
             "Fill `fields` (the arrays of Fields, in order); None, or (batch, fault) of the first record that cannot "
             "be.");

enum { SCAN_IN = 8, SCAN_OUT = 8 };
static PyObject *scan(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer b[SCAN_IN + SCAN_OUT];
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*y*y*w*w*w*w*w*w*w*w*:scan", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5],
                          &b[6], &b[7], &b[8], &b[9], &b[10], &b[11], &b[12], &b[13], &b[14], &b[15])) {
        return NULL;
    }
    PyObject *result = NULL;
    const int64_t batches = (int64_t)b[1].len / (int64_t)sizeof(int64_t);
    if (!addressable(&b[0])) {
        goto done;
    }
    for (int index = 1; index < SCAN_IN - 1; index++) {
        if (!sized(&b[index], batches, sizeof(int64_t), "an array of batches")) {
            goto done;
        }
    }
    if (!sized(&b[7], batches, sizeof(uint8_t), "append_time")) {
        goto done;
    }
    const int64_t *begin = b[1].buf, *end = b[2].buf, *count = b[3].buf;
    const int64_t *base_offset = b[4].buf, *last_offset_delta = b[5].buf, *timestamps = b[6].buf;
    const uint8_t *append_time = b[7].buf;
    const int64_t rows = total(count, batches);
    if (rows < 0) {
        goto done;
    }
    for (int index = SCAN_IN; index < SCAN_IN + SCAN_OUT; index++) {
        size_t size = index < SCAN_IN + 2 ? sizeof(int64_t) : sizeof(int32_t);
        if (!sized(&b[index], rows, size, "an array of records")) {
            goto done;
        }
    }
    if (!inside(begin, end, batches, b[0].len)) {
        goto done;
    }

    const struct fields out = {b[8].buf, b[9].buf, b[10].buf, b[11].buf, b[12].buf, b[13].buf, b[14].buf, b[15].buf};
    const uint8_t *base = b[0].buf;
    enum fault fault = OK;
    int64_t batch = 0;
    Py_BEGIN_ALLOW_THREADS
    int64_t row = 0;
    for (; batch < batches; batch++) {
        const struct region region = {base_offset[batch], last_offset_delta[batch], timestamps[batch],
                                      append_time[batch]};
        struct cursor in = {base + begin[batch], base + end[batch]};
        const int64_t stop = row + count[batch];
        int64_t previous = -1;
        for (; row < stop && !fault; row++) {
            fault = record(&in, base, &region, &previous, &out, row);
        }
        if (!fault && in.at != in.end) {
            fault = RECORDS_LEFT;
        }
        if (fault) {
            break;
        }
    }
    Py_END_ALLOW_THREADS
    result = fault ? Py_BuildValue("Li", (long long)batch, (int)fault) : Py_NewRef(Py_None);
done:
    release(b, SCAN_IN + SCAN_OUT);
    return result;
}

PyDoc_STRVAR(headers_doc,
             "headers(buffer, start, count, /, key_start, key_length, value_start, value_length)\n"
             "Fill the last four with where the headers lie of records whose first header is at `start`; whether all "
             "could be read.");

static PyObject *headers(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer b[7];
    if (!PyArg_ParseTuple(args, "y*y*y*w*w*w*w*:headers", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5], &b[6])) {
        return NULL;
    }
    PyObject *result = NULL;
    const int64_t records = (int64_t)b[1].len / (int64_t)sizeof(int32_t);
    const int64_t room = (int64_t)b[3].len / (int64_t)sizeof(int32_t);
    if (!addressable(&b[0]) || !sized(&b[1], records, sizeof(int32_t), "start") ||
        !sized(&b[2], records, sizeof(int32_t), "count")) {
        goto done;
    }
    for (int index = 3; index < 7; index++) {
        if (!sized(&b[index], room, sizeof(int32_t), "an array of headers")) {
            goto done;
        }
    }
    const uint8_t *base = b[0].buf;
    const int32_t *start = b[1].buf, *count = b[2].buf;
    int32_t *out[4] = {b[3].buf, b[4].buf, b[5].buf, b[6].buf};
    int good = 1;
    Py_BEGIN_ALLOW_THREADS
    int64_t next = 0;
    for (int64_t record = 0; record < records && good; record++) {
        if (start[record] < 0 || start[record] > b[0].len) {
            good = 0;
            break;
        }
        struct cursor in = {base + start[record], base + b[0].len};
        for (int32_t index = 0; index < count[record]; index++, next++) {
            int32_t found[4];
            if (next >= room || header(&in, base, found)) {
                good = 0;
                break;
            }
            for (int column = 0; column < 4; column++) {
                out[column][next] = found[column];
            }
        }
    }
    good = good && next == room;
    Py_END_ALLOW_THREADS
    result = PyBool_FromLong(good);
done:
    release(b, 7);
    return result;
}

PyDoc_STRVAR(gather_doc,
             "gather(buffer, start, length, /, offsets, data)\n"
             "Copy the pieces `[start, start + length)` one behind the other into `data`, and fill `offsets` with where "
             "each begins and the last ends. A negative length is none. `data` must be as long as the sum.");

static PyObject *gather(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer b[5];
    if (!PyArg_ParseTuple(args, "y*y*y*w*w*:gather", &b[0], &b[1], &b[2], &b[3], &b[4])) {
        return NULL;
    }
    PyObject *result = NULL;
    const int64_t items = (int64_t)b[1].len / (int64_t)sizeof(int32_t);
    if (!addressable(&b[0]) || !addressable(&b[4]) || !sized(&b[1], items, sizeof(int32_t), "start") ||
        !sized(&b[2], items, sizeof(int32_t), "length") || !sized(&b[3], items + 1, sizeof(int32_t), "offsets")) {
        goto done;
    }
    const uint8_t *base = b[0].buf;
    const int64_t left = b[0].len, room = b[4].len;
    const int32_t *start = b[1].buf, *length = b[2].buf;
    int32_t *offsets = b[3].buf;
    uint8_t *data = b[4].buf;
    int64_t written = 0;
    int good = 1;
    Py_BEGIN_ALLOW_THREADS
    for (int64_t index = 0; index < items; index++) {
        const int64_t from = start[index], size = length[index] > 0 ? length[index] : 0;
        offsets[index] = (int32_t)written;
        if (from < 0 || from > left || size > left - from || size > room - written) {
            good = 0;
            break;
        }
        memcpy(data + written, base + from, (size_t)size);
        written += size;
    }
    offsets[items] = (int32_t)written;
    Py_END_ALLOW_THREADS
    if (!good || written != room) {
        PyErr_SetString(PyExc_ValueError, "the pieces do not fit");
        goto done;
    }
    result = Py_NewRef(Py_None);
done:
    release(b, 5);
    return result;
}

PyDoc_STRVAR(walk_doc, "walk(data, position, least, until, /)\n"
                       "The uncompressed messages of magic 0 and 1 from `position` on with offsets in `[least, until)`: "
                       "end, count, last offset.");
PyDoc_STRVAR(walk07_doc, "walk07(data, position, stop, /)\n"
                         "The uncompressed messages of Kafka 0.7 that begin in `[position, stop)`: end, count, last "
                         "position.");
PyDoc_STRVAR(count_doc, "count(buffer, begin, end, /)\n"
                        "How many messages the sets hold, or (set, position, fault) of the first that cannot be.");
PyDoc_STRVAR(messages_doc, "messages(buffer, *sets, checked, /, *messages)\n"
                           "Fill `messages`; None, or (set, position, fault) of the first message that cannot be.");
PyDoc_STRVAR(crc32_doc, "crc32(data, portable, /)\nThe CRC-32 of `data`; by tables where `portable`.");
PyDoc_STRVAR(record_sizes_doc, "record_sizes(*records, deltas, sizes, /)\n"
                               "Fill `sizes` with the bytes of each record, where its two deltas take `deltas`.");
PyDoc_STRVAR(encode_records_doc,
             "encode_records(*records, start, stop, reserve, /)\n"
             "The records `[start, stop)` behind `reserve` zeros, with deltas from the first one, and the latest "
             "timestamp. `records` are timestamps, key, value, header offsets or None, header key, header value. A column is five arguments: "
             "validity or None, offsets, data, first, width.");
PyDoc_STRVAR(message_sizes_doc, "message_sizes(*key, *value, head, sizes, /)\n"
                                "Fill `sizes` with `head` and the bytes of key and value of each message.");
PyDoc_STRVAR(encode_messages_doc,
             "encode_messages(timestamps, *key, *value, magic, start, stop, reserve, /)\n"
             "The messages `[start, stop)` of magic 0 or 1 behind `reserve` zeros, with offsets from 0 on.");
PyDoc_STRVAR(encode_messages07_doc, "encode_messages07(*value, magic, start, stop, reserve, /)\n"
                                    "The messages `[start, stop)` of Kafka 0.7 behind `reserve` zeros.");

static PyMethodDef methods[] = {
    {"scan", scan, METH_VARARGS, scan_doc},
    {"headers", headers, METH_VARARGS, headers_doc},
    {"gather", gather, METH_VARARGS, gather_doc},
    {"walk", messages_walk, METH_VARARGS, walk_doc},
    {"walk07", messages_walk07, METH_VARARGS, walk07_doc},
    {"count", messages_count, METH_VARARGS, count_doc},
    {"count07", messages_count07, METH_VARARGS, count_doc},
    {"messages", messages_scan, METH_VARARGS, messages_doc},
    {"messages07", messages_scan07, METH_VARARGS, messages_doc},
    {"crc32", messages_crc32, METH_VARARGS, crc32_doc},
    {"record_sizes", encode_record_sizes, METH_VARARGS, record_sizes_doc},
    {"encode_records", encode_records, METH_VARARGS, encode_records_doc},
    {"message_sizes", encode_message_sizes, METH_VARARGS, message_sizes_doc},
    {"encode_messages", encode_messages, METH_VARARGS, encode_messages_doc},
    {"encode_messages07", encode_messages07, METH_VARARGS, encode_messages07_doc},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};
static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_kernel",
    .m_doc = "The compiled scan and encoding of records; see kernel.py.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};
PyMODINIT_FUNC PyInit__kernel(void) {
    crc32_start();
    return PyModuleDef_Init(&definition);
}
