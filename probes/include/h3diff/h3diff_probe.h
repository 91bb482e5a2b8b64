/* h3diff_probe.h: probes for a runtime that is not h3diff's own. One file, C99 or C++, no dependency.
 *
 * A runtime calls it at each named point of the MiniMax-H3 forward with a pointer to the tensor there. It computes
 * digest, statistics and sketch in one pass and appends them to one stream file, which may be cut at any byte:
 * a run that crashes keeps every step that it finished. `h3diff import STREAM -o DUMP` makes a dump of it, and
 * `h3diff compare` names the first op that differs from another run.
 *
 * Use: in exactly one source file,
 *
 *     #define H3DIFF_PROBE_IMPLEMENTATION
 *     #include "h3diff_probe.h"
 *
 * and plain #include "h3diff_probe.h" in the others. Then:
 *
 *     static h3diff_stream stream;                                  // about 25 KB: static, or on the heap
 *     h3diff_options options = {0};
 *     options.steps_planned = 20;
 *     if (h3diff_open(&stream, "run.h3stream", &options) != H3DIFF_OK) return;
 *     h3diff_fact_text(&stream, "producer", "my runtime 1.2");      // names: docs/dump-format.md, section 3
 *     h3diff_fact_text(&stream, "pipeline", "my-runtime");
 *     h3diff_fact_text(&stream, "compute_dtype", "bfloat16");
 *     h3diff_fact_int(&stream, "num_layers", 50);
 *     h3diff_unobserved(&stream, "blocks.*.attn.q_norm", "fused into the rotary kernel");
 *
 *     // Which rows of the packed sequence are what; prepared once a run.
 *     h3diff_row_range text = {0, 77}, audio = {77, 177}, video = {177, 8177};
 *     h3diff_segment_rows packed[3] = {
 *         {H3DIFF_TEXT, &text, 1}, {H3DIFF_AUDIO, &audio, 1}, {H3DIFF_VIDEO, &video, 1}};
 *
 *     // At each op: here [rows, heads, dim] in bfloat16, heads flattened into columns.
 *     h3diff_tensor t = {0};
 *     t.probe = "blocks.3.attn.q";
 *     t.step = step;
 *     t.dtype = H3DIFF_BFLOAT16;
 *     t.data = q;
 *     t.ndim = 3;  t.row_dims = 1;
 *     t.shape[0] = 8177;       t.shape[1] = 56;    t.shape[2] = 128;
 *     t.strides[0] = 56 * 128; t.strides[1] = 128; t.strides[2] = 1;   // in elements
 *     t.segments = packed;  t.segment_count = 3;
 *     h3diff_probe(&stream, &t);
 *
 *     h3diff_end_step(&stream, step, sigma_video, sigma_audio, next_sigma_video, next_sigma_audio);
 *
 *     h3diff_dispatch(&stream, "attention", "my_flash_kernel", "flash", calls, 0);
 *     if (h3diff_close(&stream) != H3DIFF_OK) puts(h3diff_error(&stream));
 *
 * Rules
 * - Tensors are host memory, read and never written, and not kept after the call returns. On a GPU, copy first, at
 *   the hook: a tensor that the runtime later overwrites in place must be probed before that.
 * - Probe names, their order, shapes and row spaces: docs/probes.md, or `h3diff case show CASE --probes`. Call in
 *   execution order. Give only what you have: a comparison works on the probes that both sides hold.
 * - Steps count from 0. Weights are probes too, at step -1; call h3diff_end_weights before step 0.
 * - Every call returns an h3diff_status. A write error sticks: later calls return it and do nothing, so a runtime may
 *   ignore returns and look at h3diff_close's alone. A refused argument (H3DIFF_BAD_ARGUMENT, H3DIFF_BAD_ORDER)
 *   writes nothing and does not stick; h3diff_error() says what was wrong.
 * - Not thread-safe for one stream. h3diff_measure() is pure: threads may measure with a workspace each, and one
 *   thread writes the results with h3diff_write().
 * - Nothing is allocated. Measuring needs the workspace inside h3diff_stream and about 4 KB of stack. h3diff_open
 *   uses stdio; h3diff_open_callback uses no file at all.
 * - Digests are the same on every machine. Sums are in double, in a fixed order, the C++ library's, and have the same
 *   bits. gcc keeps to that order even with -ffast-math; clang does on x86 if -ffp-contract=off follows it. Other
 *   builds with -ffast-math or -ffp-contract=fast agree to 1e-12.
 *
 * Formats: docs/stream-format.md (the file), docs/dump-format.md (digest, statistics, sketch). A walk-through:
 * docs/instrumenting-your-runtime.md.
 */
#ifndef H3DIFF_PROBE_H
#define H3DIFF_PROBE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define H3DIFF_MAX_DIMS 6

typedef enum h3diff_status {
  H3DIFF_OK = 0,
  H3DIFF_BAD_ARGUMENT = 1, /* outside what this header states */
  H3DIFF_BAD_ORDER = 2,    /* a step that has ended, a stream that is not open */
  H3DIFF_EXISTS = 3,       /* h3diff_open: the file is there already */
  H3DIFF_CANNOT_OPEN = 4,
  H3DIFF_WRITE_FAILED = 5 /* sticks */
} h3diff_status;

/* Element types. H3DIFF_BOOL is one byte, 0 or not 0. */
typedef enum h3diff_dtype {
  H3DIFF_FLOAT64 = 1,
  H3DIFF_FLOAT32 = 2,
  H3DIFF_BFLOAT16 = 3,
  H3DIFF_FLOAT16 = 4,
  H3DIFF_FLOAT8_E4M3FN = 5,
  H3DIFF_FLOAT8_E5M2 = 6,
  H3DIFF_INT8 = 7,
  H3DIFF_UINT8 = 8,
  H3DIFF_INT32 = 9,
  H3DIFF_INT64 = 10,
  H3DIFF_BOOL = 11
} h3diff_dtype;

/* Kinds of rows. H3DIFF_VISION: text rows that carry the video tag. */
typedef enum h3diff_segment {
  H3DIFF_ALL = 0,
  H3DIFF_TEXT = 1,
  H3DIFF_VISION = 2,
  H3DIFF_COND_VIDEO = 3,
  H3DIFF_COND_AUDIO = 4,
  H3DIFF_AUDIO = 5,
  H3DIFF_VIDEO = 6
} h3diff_segment;

/* What is kept; each level includes the ones before it. The default (0) is H3DIFF_STATS. */
typedef enum h3diff_level {
  H3DIFF_DIGEST = 1, /* digest alone */
  H3DIFF_STATS = 2,  /* + statistics and sketch */
  H3DIFF_ROWS = 3,   /* + evenly spaced rows of the tensor */
  H3DIFF_FULL = 4    /* + the tensor */
} h3diff_level;

/* Half-open, rows of the tensor in its canonical 2-D reading. */
typedef struct h3diff_row_range {
  int64_t begin, end;
} h3diff_row_range;

/* The rows of one segment, in the segment's own order. A segment without rows is left out of the stream. */
typedef struct h3diff_segment_rows {
  int32_t segment; /* h3diff_segment; each at most once in a table */
  const h3diff_row_range* ranges;
  size_t range_count;
} h3diff_segment_rows;

/* A borrowed strided tensor and where it stands in the run. Zero-initialise it. Its leading `row_dims` dimensions
 * are flattened, first dimension outermost, into rows, the others into columns: [S, heads, dim] with row_dims = 1 is
 * [S, heads * dim]; a 1-D weight of n values is ndim = 1, row_dims = 0: [1, n]. */
typedef struct h3diff_tensor {
  const char* probe;     /* canonical name: 1 to 80 bytes of ASCII without spaces and slashes */
  int32_t step;          /* -1 for weights */
  int32_t dtype;         /* h3diff_dtype of the memory at `data` */
  int32_t compute_dtype; /* h3diff_dtype the values were computed in; 0: dtype. If it is narrower and every value of a
                            segment fits it exactly, that segment is digested in it (docs/stream-format.md, 6). */
  int32_t level;         /* h3diff_level; 0: H3DIFF_STATS */
  int32_t ndim, row_dims;
  int64_t shape[H3DIFF_MAX_DIMS];
  int64_t strides[H3DIFF_MAX_DIMS];    /* in elements, any sign, 0 allowed */
  const void* data;                    /* element [0, 0, ...]; aligned to the element or not */
  const h3diff_segment_rows* segments; /* NULL: one segment `all` with all rows */
  size_t segment_count;
  const struct h3diff_tensor* model_input; /* for pred.*: the input.* tensor of the step, of equal canonical shape and
                                              row order, or NULL. Gives the row's cosine. */
} h3diff_tensor;

/* t->strides of a contiguous tensor of t->shape, last dimension fastest. */
void h3diff_set_contiguous(h3diff_tensor* t);
/* A contiguous [rows, cols] tensor. */
h3diff_tensor h3diff_matrix(const char* probe, int32_t step, int32_t dtype, int64_t rows, int64_t cols,
                            const void* data);

/* ---- measuring ---- */

/* docs/dump-format.md, sections 7 to 9. Figures that are undefined are NaN, positions -1. */
typedef struct h3diff_measurement {
  int64_t rows, cols;
  int32_t dtype; /* of the digested bytes */
  int32_t sketch_k;
  uint64_t digest[2]; /* A, B */
  int64_t zeros, nan, inf, subnormal;
  double mean, std, l2, min, max, absmax;
  int64_t absmax_row, absmax_col;
  double cosine;
  float row_bands[16], col_groups[16];
  double sketch[256]; /* the first sketch_k buckets */
} h3diff_measurement;

/* Scratch memory of one measuring thread. Contents mean nothing between calls. */
typedef struct h3diff_workspace {
  double sketch[8][32][8];
  double total[256];
  double groups[16][8];
} h3diff_workspace;

/* Measures one entry of t->segments (or 0, if that is NULL). sketch_k: 0, 64, 128 or 256. */
h3diff_status h3diff_measure(const h3diff_tensor* t, size_t segment_index, int sketch_k, h3diff_workspace* workspace,
                             h3diff_measurement* out);

/* The digest of a plain byte matrix [rows, row_bytes]. */
void h3diff_digest_bytes(const void* data, int64_t rows, int64_t row_bytes, uint64_t digest[2]);

/* ---- the stream ---- */

typedef struct h3diff_options {
  int32_t steps_planned; /* > 0: also written as a fact */
  int32_t sketch_k;      /* 64, 128, 256; -1: none; 0: 256 at step -1, the first two and the last planned step, 64
                            between (256 throughout if steps_planned is 0) */
  int32_t sample_rows;   /* rows kept at level H3DIFF_ROWS; 0: 64 */
} h3diff_options;

/* Appends `size` bytes and returns 0; anything else is a failure. size = 0: flush to the disk now (end of a step). */
typedef int (*h3diff_write_callback)(void* user, const void* data, size_t size);

/* Members are private. */
typedef struct h3diff_stream {
  h3diff_write_callback write;
  void* user;
  void* file;
  const char* error;
  h3diff_options options;
  int32_t state; /* 1: open */
  int32_t failed;
  int32_t last_step; /* the last one that has ended */
  uint32_t crc;
  uint32_t crc_table[256];
  size_t fill;
  unsigned char buffer[2048];
  h3diff_measurement measurement;
  h3diff_workspace workspace;
} h3diff_stream;

/* Creates `path`, which must not exist, and writes the header. options may be NULL. */
h3diff_status h3diff_open(h3diff_stream* s, const char* path, const h3diff_options* options);
/* The same without a file: `write` gets every byte of the stream in order. */
h3diff_status h3diff_open_callback(h3diff_stream* s, h3diff_write_callback write, void* user,
                                   const h3diff_options* options);

/* Facts of the run: name 1 to 64 bytes, text at most 4096. A later fact replaces an earlier one of the same name. */
h3diff_status h3diff_fact_text(h3diff_stream* s, const char* name, const char* text);
h3diff_status h3diff_fact_int(h3diff_stream* s, const char* name, int64_t value);
h3diff_status h3diff_fact_real(h3diff_stream* s, const char* name, double value);

/* Measures and writes a tensor, one row a segment. (step, probe) at most once a run. */
h3diff_status h3diff_probe(h3diff_stream* s, const h3diff_tensor* t);

/* Writes one segment that h3diff_measure() has measured. */
h3diff_status h3diff_write(h3diff_stream* s, const h3diff_tensor* t, size_t segment_index,
                           const h3diff_measurement* measured);

/* Per-column digest and statistics of an AdaLN weight (weights.blocks.N.adaln_proj, weights.final_layer.adaln_proj,
 * weights.adaln_t_table), besides h3diff_probe(). t->step must be -1; segments are ignored. */
h3diff_status h3diff_columns(h3diff_stream* s, const h3diff_tensor* t);

/* The step is complete; flushes. Sigmas that do not apply are NaN (h3diff_end_weights does that for step -1). */
h3diff_status h3diff_end_step(h3diff_stream* s, int32_t step, double sigma_video, double sigma_audio,
                              double next_sigma_video, double next_sigma_audio);
h3diff_status h3diff_end_weights(h3diff_stream* s);

/* What ran: op (1 to 32 bytes), the implementation that ran (1 to 64) and the one that was asked for (0 to 64), calls
 * so far and how many of them were fallbacks. The last call of equal names counts. */
h3diff_status h3diff_dispatch(h3diff_stream* s, const char* op, const char* implementation, const char* declared,
                              int64_t calls, int64_t fallbacks);

/* Probes (a name or a glob, 1 to 80 bytes) that this runtime cannot see, and why (1 to 160 bytes). */
h3diff_status h3diff_unobserved(h3diff_stream* s, const char* probe, const char* reason);

/* Writes the end record and closes: the run ended normally. Returns the error that stuck, if any. */
h3diff_status h3diff_close(h3diff_stream* s);
/* Closes without the end record: the run failed, and the stream says so by lacking it. */
void h3diff_abandon(h3diff_stream* s);

/* One sentence about the last call that failed on this stream; "" if none did. */
const char* h3diff_error(const h3diff_stream* s);

#ifdef __cplusplus
}
#endif

#endif /* H3DIFF_PROBE_H */

/* ==== implementation ============================================================================================== */

#ifdef H3DIFF_PROBE_IMPLEMENTATION
#ifndef H3DIFF_PROBE_IMPLEMENTED
#define H3DIFF_PROBE_IMPLEMENTED

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sums keep their order and are not contracted, whatever the runtime's own flags are. */
#if defined(__clang__) && (defined(__x86_64__) || defined(__i386__))
#define H3D_PRECISE _Pragma("float_control(precise, on)") _Pragma("clang fp contract(off)")
#elif defined(__clang__)
#define H3D_PRECISE _Pragma("clang fp contract(off) reassociate(off)")
#else
#define H3D_PRECISE
#endif
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("no-fast-math", "fp-contract=off")
#endif

/* A row or column count above this is refused, so that no product below can overflow. */
#define H3D_MAX_SIZE ((int64_t)1 << 40)
#define H3D_MAX_PAYLOAD ((size_t)1 << 24)

enum { H3D_TILE = 512, H3D_STEP = 16 }; /* columns that are summed, and read, together */

/* ---- tensors ---- */

static size_t h3d_item(int dtype) {
  switch (dtype) {
  case H3DIFF_FLOAT64:
  case H3DIFF_INT64: return 8;
  case H3DIFF_FLOAT32:
  case H3DIFF_INT32: return 4;
  case H3DIFF_BFLOAT16:
  case H3DIFF_FLOAT16: return 2;
  case H3DIFF_FLOAT8_E4M3FN:
  case H3DIFF_FLOAT8_E5M2:
  case H3DIFF_INT8:
  case H3DIFF_UINT8:
  case H3DIFF_BOOL: return 1;
  default: return 0;
  }
}

static int h3d_floating(int dtype) { return dtype >= H3DIFF_FLOAT64 && dtype <= H3DIFF_FLOAT8_E5M2; }

/* A tensor in its canonical reading, and the segment that is read. */
typedef struct h3d_source {
  const h3diff_tensor* tensor;
  const h3diff_row_range* ranges;
  size_t range_count;
  h3diff_row_range all;
  int64_t rows, cols; /* rows of the segment */
  int64_t view_rows;  /* rows of the tensor */
  int64_t col_stride; /* in elements, where all column dimensions are one */
  int one_col_stride;
  int dtype;  /* of the memory */
  int target; /* of the digested bytes */
  size_t item;
  size_t range; /* cursor: the range that holds row range_first + ... */
  int64_t range_first;
} h3d_source;

void h3diff_set_contiguous(h3diff_tensor* t) {
  int64_t stride = 1;
  int d;
  for (d = t->ndim - 1; d >= 0; --d) {
    t->strides[d] = stride;
    stride *= t->shape[d];
  }
}

h3diff_tensor h3diff_matrix(const char* probe, int32_t step, int32_t dtype, int64_t rows, int64_t cols,
                            const void* data) {
  h3diff_tensor t;
  memset(&t, 0, sizeof t);
  t.probe = probe;
  t.step = step;
  t.dtype = dtype;
  t.data = data;
  t.ndim = 2;
  t.row_dims = 1;
  t.shape[0] = rows;
  t.shape[1] = cols;
  t.strides[0] = cols;
  t.strides[1] = 1;
  return t;
}

/* Product of some dimensions, or -1 if it is out of bounds. */
static int64_t h3d_product(const h3diff_tensor* t, int begin, int end) {
  int64_t product = 1;
  int d;
  for (d = begin; d < end; ++d) {
    if (t->shape[d] < 0 || t->shape[d] > H3D_MAX_SIZE)
      return -1;
    if (t->shape[d] != 0 && product > H3D_MAX_SIZE / t->shape[d])
      return -1;
    product *= t->shape[d];
  }
  return product;
}

static size_t h3d_length(const char* text, size_t limit) {
  size_t n = 0;
  if (text == NULL)
    return limit + 1;
  while (n <= limit && text[n] != 0)
    ++n;
  return n;
}

/* What is wrong with a tensor's description; NULL if nothing is. Fills `out` for one segment of it. */
static const char* h3d_describe(const h3diff_tensor* t, size_t segment_index, h3d_source* out) {
  int64_t rows, cols;
  size_t i, probe_length;
  int d;
  memset(out, 0, sizeof *out);
  if (t == NULL)
    return "no tensor was given";
  probe_length = h3d_length(t->probe, 80);
  if (probe_length < 1 || probe_length > 80)
    return "a probe's name must have 1 to 80 bytes";
  for (i = 0; i < probe_length; ++i) {
    const char c = t->probe[i];
    const int alphanumeric = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (c <= ' ' || c > '~' || c == '/' || (i == 0 && !alphanumeric))
      return "a probe's name begins with a letter or digit and is printable ASCII without spaces and slashes";
  }
  if (t->step < -1)
    return "a step must be -1 (weights) or more";
  if (h3d_item(t->dtype) == 0)
    return "the tensor's dtype is not one of h3diff_dtype";
  if (t->compute_dtype != 0 && h3d_item(t->compute_dtype) == 0)
    return "compute_dtype is not one of h3diff_dtype";
  if (t->level < 0 || t->level > H3DIFF_FULL)
    return "the level is not one of h3diff_level";
  if (t->ndim < 0 || t->ndim > H3DIFF_MAX_DIMS || t->row_dims < 0 || t->row_dims > t->ndim)
    return "a tensor has 0 to 6 dimensions, and row_dims of them are rows";
  rows = h3d_product(t, 0, t->row_dims);
  cols = h3d_product(t, t->row_dims, t->ndim);
  if (rows < 0 || cols < 0 || (rows > 0 && cols > 0 && rows > (H3D_MAX_SIZE << 10) / cols))
    return "the tensor's shape is negative or too large";
  if (t->data == NULL && rows > 0 && cols > 0)
    return "the tensor's data is NULL";
  out->tensor = t;
  out->dtype = out->target = t->dtype;
  out->item = h3d_item(t->dtype);
  out->cols = cols;
  out->view_rows = rows;
  if (t->segments == NULL) {
    if (segment_index != 0)
      return "the segment's index is outside the segment table";
    out->all.begin = 0;
    out->all.end = rows;
    out->ranges = NULL;
    out->range_count = 1;
    out->rows = rows;
  } else {
    const h3diff_segment_rows* s;
    if (segment_index >= t->segment_count)
      return "the segment's index is outside the segment table";
    s = &t->segments[segment_index];
    if (s->segment < H3DIFF_ALL || s->segment > H3DIFF_VIDEO)
      return "a segment is not one of h3diff_segment";
    for (i = 0; i < segment_index; ++i)
      if (t->segments[i].segment == s->segment)
        return "a segment stands twice in the segment table";
    if (s->ranges == NULL && s->range_count > 0)
      return "a segment's ranges are NULL";
    out->ranges = s->ranges;
    out->range_count = s->range_count;
    for (i = 0; i < s->range_count; ++i) {
      const h3diff_row_range r = s->ranges[i];
      if (r.begin < 0 || r.end < r.begin || r.end > rows)
        return "a segment's range is outside the tensor's rows";
      out->rows += r.end - r.begin;
      if (out->rows > H3D_MAX_SIZE)
        return "a segment has too many rows";
    }
  }
  out->one_col_stride = 1;
  out->col_stride = 1;
  for (d = t->ndim - 1; d >= t->row_dims; --d) {
    if (t->shape[d] == 1)
      continue;
    out->col_stride = t->strides[d];
    break;
  }
  {
    int64_t expected = out->col_stride;
    for (; d >= t->row_dims; --d) {
      if (t->shape[d] == 1)
        continue;
      if (t->strides[d] != expected)
        out->one_col_stride = 0;
      expected = t->strides[d] * t->shape[d];
    }
  }
  return NULL;
}

/* Offset in elements of a flat index over dimensions [begin, end). */
static int64_t h3d_offset(const h3diff_tensor* t, int begin, int end, int64_t index) {
  int64_t offset = 0;
  int d;
  for (d = end - 1; d >= begin; --d) {
    offset += index % t->shape[d] * t->strides[d];
    index /= t->shape[d];
  }
  return offset;
}

/* First element of row `row` of the segment. Rows are asked for in ascending order, mostly. */
static const unsigned char* h3d_row(h3d_source* s, int64_t row) {
  int64_t index;
  const h3diff_row_range* ranges = s->ranges != NULL ? s->ranges : &s->all;
  if (row < s->range_first) {
    s->range = 0;
    s->range_first = 0;
  }
  while (row >= s->range_first + (ranges[s->range].end - ranges[s->range].begin)) {
    s->range_first += ranges[s->range].end - ranges[s->range].begin;
    ++s->range;
  }
  index = ranges[s->range].begin + (row - s->range_first);
  return (const unsigned char*)s->tensor->data +
         h3d_offset(s->tensor, 0, s->tensor->row_dims, index) * (int64_t)s->item;
}

static uint64_t h3d_read(const unsigned char* from, size_t item) {
  uint16_t two;
  uint32_t four;
  uint64_t eight;
  switch (item) {
  case 1: return *from;
  case 2: memcpy(&two, from, 2); return two;
  case 4: memcpy(&four, from, 4); return four;
  default: memcpy(&eight, from, 8); return eight;
  }
}

/* ---- element types ---- */

/* What a value is, apart from an ordinary one. */
enum { H3D_ZERO = 1, H3D_SUBNORMAL = 2, H3D_INF = 4, H3D_NAN = 8 };

typedef struct h3d_format {
  int mantissa, bias, max_exponent; /* bits, bias, the exponent field's largest value */
  int infinity;                     /* 0: e4m3fn, whose largest exponent is an ordinary one but for one NaN */
} h3d_format;

static h3d_format h3d_float_format(int dtype) {
  h3d_format f;
  f.infinity = 1;
  switch (dtype) {
  case H3DIFF_FLOAT32:
    f.mantissa = 23;
    f.bias = 127;
    f.max_exponent = 255;
    break;
  case H3DIFF_BFLOAT16:
    f.mantissa = 7;
    f.bias = 127;
    f.max_exponent = 255;
    break;
  case H3DIFF_FLOAT16:
    f.mantissa = 10;
    f.bias = 15;
    f.max_exponent = 31;
    break;
  case H3DIFF_FLOAT8_E4M3FN:
    f.mantissa = 3;
    f.bias = 7;
    f.max_exponent = 15;
    f.infinity = 0;
    break;
  case H3DIFF_FLOAT8_E5M2:
    f.mantissa = 2;
    f.bias = 15;
    f.max_exponent = 31;
    break;
  default:
    f.mantissa = 52;
    f.bias = 1023;
    f.max_exponent = 2047;
    break;
  }
  return f;
}

static double h3d_from_bits(uint64_t bits) {
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
static uint64_t h3d_to_bits(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* Bits to double in integer arithmetic, so that no flush-to-zero mode and no fast-math option changes it. A value
 * that is not finite comes out as 0 with its kind. */
static double h3d_decode(h3d_format f, uint64_t raw, int* kind) {
  const int width = f.mantissa == 52 ? 64 : f.mantissa == 23 ? 32 : f.mantissa == 3 || f.mantissa == 2 ? 8 : 16;
  const uint64_t fraction = raw & (((uint64_t)1 << f.mantissa) - 1);
  const int exponent = (int)(raw >> f.mantissa) & f.max_exponent;
  const uint64_t sign = (raw >> (width - 1)) << 63;
  if (exponent == 0) {
    double value;
    if (fraction == 0) {
      *kind = H3D_ZERO;
      return h3d_from_bits(sign);
    }
    *kind = H3D_SUBNORMAL;
    if (width == 64)
      return h3d_from_bits(raw);
    value = (double)(int64_t)fraction * h3d_from_bits((uint64_t)(1024 - f.bias - f.mantissa) << 52);
    return h3d_from_bits(h3d_to_bits(value) | sign);
  }
  if (exponent == f.max_exponent) {
    if (f.infinity || fraction == ((uint64_t)1 << f.mantissa) - 1) {
      *kind = f.infinity && fraction == 0 ? H3D_INF : H3D_NAN;
      return 0;
    }
  }
  *kind = 0;
  return h3d_from_bits(sign | (uint64_t)(exponent - f.bias + 1023) << 52 | fraction << (52 - f.mantissa));
}

/* The usual case without branches: all n are normal numbers. Returns 0 if that is not so. */
static int h3d_decode_normal(h3d_format f, const uint64_t* raw, int n, double* value) {
  const int width = f.mantissa == 52 ? 64 : f.mantissa == 23 ? 32 : f.mantissa == 3 || f.mantissa == 2 ? 8 : 16;
  const uint64_t mask = ((uint64_t)1 << (width - 1)) - 1, smallest = (uint64_t)1 << f.mantissa;
  const uint64_t infinity = (uint64_t)f.max_exponent << f.mantissa;
  const uint64_t largest = f.infinity ? infinity - 1 : mask - 1;
  uint64_t outside = 0;
  int i;
  for (i = 0; i < n; ++i) {
    const uint64_t magnitude = raw[i] & mask;
    const uint64_t bits =
        ((magnitude << (52 - f.mantissa)) + ((uint64_t)(1023 - f.bias) << 52)) | (raw[i] >> (width - 1) << 63);
    outside |= (magnitude - smallest) | (largest - magnitude);
    memcpy(value + i, &bits, sizeof bits);
  }
  return (outside >> 63) == 0;
}

static void h3d_decode_many(h3d_format f, const uint64_t* raw, int n, double* value, unsigned char* kind) {
  int i, k;
  if (n == H3D_STEP ? h3d_decode_normal(f, raw, H3D_STEP, value) : h3d_decode_normal(f, raw, n, value)) {
    memset(kind, 0, (size_t)n);
    return;
  }
  for (i = 0; i < n; ++i) {
    value[i] = h3d_decode(f, raw[i], &k);
    kind[i] = (unsigned char)k;
  }
}

static int64_t h3d_signed(uint64_t raw, int bits) {
  const uint64_t top = (uint64_t)1 << (bits - 1);
  const uint64_t low = raw & (top - 1);
  return (raw & top) != 0 ? -(int64_t)(top - 1 - low) - 1 : (int64_t)low;
}

/* Values and kinds of n elements of one dtype. */
static void h3d_values(int dtype, const uint64_t* raw, int n, double* value, unsigned char* kind) {
  int i;
  switch (dtype) { /* one call a format, so that the compiler may specialise it */
  case H3DIFF_FLOAT64: h3d_decode_many(h3d_float_format(H3DIFF_FLOAT64), raw, n, value, kind); return;
  case H3DIFF_FLOAT32: h3d_decode_many(h3d_float_format(H3DIFF_FLOAT32), raw, n, value, kind); return;
  case H3DIFF_BFLOAT16: h3d_decode_many(h3d_float_format(H3DIFF_BFLOAT16), raw, n, value, kind); return;
  case H3DIFF_FLOAT16: h3d_decode_many(h3d_float_format(H3DIFF_FLOAT16), raw, n, value, kind); return;
  case H3DIFF_FLOAT8_E4M3FN: h3d_decode_many(h3d_float_format(H3DIFF_FLOAT8_E4M3FN), raw, n, value, kind); return;
  case H3DIFF_FLOAT8_E5M2: h3d_decode_many(h3d_float_format(H3DIFF_FLOAT8_E5M2), raw, n, value, kind); return;
  default: break;
  }
  for (i = 0; i < n; ++i) {
    switch (dtype) {
    case H3DIFF_INT8: value[i] = (double)h3d_signed(raw[i], 8); break;
    case H3DIFF_INT32: value[i] = (double)h3d_signed(raw[i], 32); break;
    case H3DIFF_INT64: value[i] = (double)h3d_signed(raw[i], 64); break;
    case H3DIFF_UINT8: value[i] = (double)(int64_t)raw[i]; break;
    default: value[i] = raw[i] != 0 ? 1.0 : 0.0; break;
    }
    kind[i] = raw[i] == 0 ? H3D_ZERO : 0;
  }
}

/* The bits of a value in a narrower float type; returns 0 if it does not fit exactly. docs/stream-format.md, 6. */
static int h3d_narrow(int source, int target, uint64_t raw, uint64_t* out) {
  const h3d_format f = h3d_float_format(target);
  const int width = (int)h3d_item(target) * 8;
  const uint64_t sign = raw >> (h3d_item(source) * 8 - 1) << (width - 1);
  const uint64_t infinity = (uint64_t)f.max_exponent << f.mantissa;
  uint64_t bits, fraction;
  int kind, exponent, drop;
  const double value = h3d_decode(h3d_float_format(source), raw, &kind);
  if (kind == H3D_ZERO) {
    *out = sign;
    return 1;
  }
  if (kind == H3D_NAN) {
    *out = sign | infinity | (width == 8 ? ((uint64_t)1 << f.mantissa) - 1 : (uint64_t)1 << (f.mantissa - 1));
    return 1;
  }
  if (kind == H3D_INF) {
    *out = sign | infinity;
    return f.infinity;
  }
  bits = h3d_to_bits(value);
  exponent = (int)(bits >> 52 & 2047) - 1023;
  if (exponent == -1023)
    return 0; /* a float64 subnormal is below every narrower type */
  fraction = bits & (((uint64_t)1 << 52) - 1);
  drop = 52 - f.mantissa;
  if (exponent < 1 - f.bias) {
    drop += 1 - f.bias - exponent;
    if (drop > 52)
      return 0;
    fraction |= (uint64_t)1 << 52;
    if ((fraction & (((uint64_t)1 << drop) - 1)) != 0)
      return 0;
    *out = sign | fraction >> drop;
    return 1;
  }
  if (exponent + f.bias > (f.infinity ? f.max_exponent - 1 : f.max_exponent))
    return 0;
  if ((fraction & (((uint64_t)1 << drop) - 1)) != 0)
    return 0;
  *out = (uint64_t)(exponent + f.bias) << f.mantissa | fraction >> drop;
  if (!f.infinity && *out == (infinity | (((uint64_t)1 << f.mantissa) - 1)))
    return 0; /* that is its NaN */
  *out |= sign;
  return 1;
}

/* ---- reading ---- */

/* Raw bits, in the target dtype, of n elements from column `col` of the row that starts at `row`. */
static void h3d_load(const h3d_source* s, const unsigned char* row, int64_t col, int n, uint64_t* raw) {
  const size_t item = s->item;
  int i;
  if (s->one_col_stride) {
    const int64_t step = s->col_stride * (int64_t)item;
    const unsigned char* from = row + col * step;
    /* Constant sizes, and counts where it can be, so that this becomes wide loads. */
    if (n == H3D_STEP && s->col_stride == 1 && item == 2) {
      for (i = 0; i < H3D_STEP; ++i)
        raw[i] = h3d_read(from + 2 * i, 2);
    } else if (n == H3D_STEP && s->col_stride == 1 && item == 4) {
      for (i = 0; i < H3D_STEP; ++i)
        raw[i] = h3d_read(from + 4 * i, 4);
    } else if (item == 1) {
      for (i = 0; i < n; ++i)
        raw[i] = h3d_read(from + i * step, 1);
    } else if (item == 2) {
      for (i = 0; i < n; ++i)
        raw[i] = h3d_read(from + i * step, 2);
    } else if (item == 4) {
      for (i = 0; i < n; ++i)
        raw[i] = h3d_read(from + i * step, 4);
    } else {
      for (i = 0; i < n; ++i)
        raw[i] = h3d_read(from + i * step, 8);
    }
  } else {
    const h3diff_tensor* t = s->tensor;
    const int last = t->ndim - 1;
    int64_t inner = col % t->shape[last], offset = h3d_offset(t, t->row_dims, t->ndim, col);
    for (i = 0; i < n; ++i) {
      raw[i] = h3d_read(row + offset * (int64_t)item, item);
      offset += t->strides[last];
      if (++inner == t->shape[last]) {
        inner = 0;
        offset = h3d_offset(t, t->row_dims, t->ndim, col + i + 1);
      }
    }
  }
  if (s->target != s->dtype)
    for (i = 0; i < n; ++i)
      (void)h3d_narrow(s->dtype, s->target, raw[i], &raw[i]);
}

/* Decides whether the segment is digested in compute_dtype. */
static void h3d_choose_target(h3d_source* s) {
  const int target = s->tensor->compute_dtype;
  int64_t row, col;
  uint64_t raw[64], ignored;
  int i;
  if (target == 0 || !h3d_floating(s->dtype) || !h3d_floating(target) || h3d_item(target) >= s->item)
    return;
  for (row = 0; row < s->rows; ++row) {
    const unsigned char* start = h3d_row(s, row);
    for (col = 0; col < s->cols; col += 64) {
      const int n = s->cols - col < 64 ? (int)(s->cols - col) : 64;
      h3d_load(s, start, col, n, raw);
      for (i = 0; i < n; ++i)
        if (!h3d_narrow(s->dtype, target, raw[i], &ignored))
          return;
    }
  }
  s->target = target;
}

/* ---- digest: docs/dump-format.md, section 7 ---- */

static uint32_t h3d_mix(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7FEB352Du;
  x ^= x >> 15;
  x *= 0x846CA68Bu;
  return x ^ x >> 16;
}

static uint64_t h3d_finish(uint64_t h, uint64_t factor) {
  h ^= h >> 32;
  h *= factor;
  return h ^ h >> 32;
}

static const uint32_t h3d_pads[16] = {0x243F6A88u, 0x85A308D3u, 0x13198A2Eu, 0x03707344u, 0xA4093822u, 0x299F31D0u,
                                      0x082EFA98u, 0xEC4E6C89u, 0x452821E6u, 0x38D01377u, 0xBE5466CFu, 0x34E90C6Cu,
                                      0xC0AC29B7u, 0xC97C50DDu, 0x3F84D5B5u, 0xB5470917u};

static void h3d_digest_unit(const uint32_t w[16], uint32_t unit, uint64_t digest[2]) {
  const uint32_t x = h3d_mix(unit * 0x9E3779B1u + 0x243F6A88u);
  uint32_t y = x * 0x9E3779B1u + 0x85A308D3u, m[16];
  uint64_t s = 0, t = 0;
  int j;
  y ^= y >> 15;
  for (j = 0; j < 16; ++j)
    m[j] = w[j] ^ ((j & 1) != 0 ? y : x) ^ h3d_pads[j];
  for (j = 0; j < 16; j += 2) {
    s += (uint64_t)m[j] * m[j + 1];
    t += (uint64_t)m[j] * m[(j + 3) & 15];
  }
  digest[0] += h3d_finish(s, 0x9E3779B97F4A7C15u);
  digest[1] += h3d_finish(t, 0xC2B2AE3D27D4EB4Fu);
}

static void h3d_digest_shape(int64_t rows, int64_t row_bytes, uint64_t digest[2]) {
  const uint64_t r = (uint64_t)rows, b = (uint64_t)row_bytes;
  digest[0] += r * 0x165667B19E3779F9u + b * 0x27D4EB2F165667C5u;
  digest[1] += r * 0x27D4EB2F165667C5u + b * 0x165667B19E3779F9u;
}

/* Little-endian words of 16 elements; returns how many. */
static int h3d_words(size_t item, const uint64_t* raw, uint32_t* words) {
  int i;
  switch (item) {
  case 1:
    for (i = 0; i < 4; ++i)
      words[i] = (uint32_t)(raw[4 * i] | raw[4 * i + 1] << 8 | raw[4 * i + 2] << 16 | raw[4 * i + 3] << 24);
    return 4;
  case 2:
    for (i = 0; i < 8; ++i)
      words[i] = (uint32_t)(raw[2 * i] | raw[2 * i + 1] << 16);
    return 8;
  case 4:
    for (i = 0; i < 16; ++i)
      words[i] = (uint32_t)raw[i];
    return 16;
  default:
    for (i = 0; i < 16; ++i) {
      words[2 * i] = (uint32_t)(raw[i] & 0xFFFFFFFFu);
      words[2 * i + 1] = (uint32_t)(raw[i] >> 32);
    }
    return 32;
  }
}

/* ---- statistics and sketch: docs/dump-format.md, sections 8 and 9 ----
 *
 * The order of the sums is the C++ library's (probes/src/measure.cpp), so that the bits are too: a segment is cut by
 * its shape into tasks; a task goes down its rows four at a time, and along them in tiles of 512 columns and units of
 * 8; a sum has one lane for each column of a unit. */

typedef struct h3d_moments {
  int64_t count;
  double sum, mean, deviations;
} h3d_moments;

typedef struct h3d_partial {
  uint64_t digest[2];
  int64_t zeros, nan, inf, subnormal;
  double min, max, absmax;
  int64_t absmax_row, absmax_col;
  h3d_moments moments;
  double bands[16], groups[16];
} h3d_partial;

typedef struct h3d_run { /* consecutive units of one column group, or one unit that lies in several */
  int open, uniform;
  int group[8];
  double square[8];
} h3d_run;

typedef struct h3d_tile {
  double sum[8], squares[8];
  double row_squares[4][8]; /* of the tiles so far, if per_row */
  int per_row;              /* the block's rows lie in several row bands */
  int64_t finite;
  h3d_run run;
} h3d_tile;

static int64_t h3d_least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t h3d_most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t h3d_divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }
static int h3d_sixteenth(int64_t index, int64_t size) { return (int)((16 * index + 15) / size); }
static double h3d_undefined(void) { return h3d_from_bits((uint64_t)0x7FF8 << 48); }
static int h3d_is_finite(double x) { return (h3d_to_bits(x) >> 52 & 2047) != 2047; }
static double h3d_abs(double x) { return h3d_from_bits(h3d_to_bits(x) & ~((uint64_t)1 << 63)); }

static double h3d_sum_lanes(const double* v) {
  H3D_PRECISE
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

/* Chan, Golub and LeVeque: no cancellation however large the mean is against the deviation. */
static void h3d_add_moments(h3d_moments* to, const h3d_moments* from) {
  H3D_PRECISE
  double n, m, delta;
  if (from->count == 0)
    return;
  if (to->count == 0) {
    *to = *from;
    return;
  }
  n = (double)to->count;
  m = (double)from->count;
  delta = from->mean - to->mean;
  to->deviations += from->deviations + delta * delta * (n * m / (n + m));
  to->mean += delta * (m / (n + m));
  to->sum += from->sum;
  to->count += from->count;
}

/* Moments of a piece from its plain sums; returns 1 if those lost more than 10 bits, and the sum of squared
 * deviations must be computed from the mean. */
static int h3d_piece_moments(int64_t count, double sum, double squares, h3d_moments* out) {
  H3D_PRECISE
  out->count = count;
  out->sum = out->mean = out->deviations = 0;
  if (count == 0)
    return 0;
  out->sum = sum;
  out->mean = sum / (double)count;
  out->deviations = squares - sum * out->mean;
  return out->deviations < squares * (1.0 / 1024);
}

/* Adds n elements to a piece's sums about its mean. */
static void h3d_add_deviations(const double* value, const unsigned char* kind, int n, double mean, double* squares,
                               double* sum) {
  H3D_PRECISE
  int i;
  for (i = 0; i < n; ++i) {
    double d;
    if (kind[i] >= H3D_INF)
      continue;
    d = value[i] - mean;
    *squares += d * d;
    *sum += d;
  }
}

static double h3d_corrected(double squares, double sum, int64_t count) {
  H3D_PRECISE
  double corrected;
  if (count == 0)
    return 0;
  corrected = squares - sum * sum / (double)count;
  return corrected > 0 ? corrected : 0;
}

static void h3d_end_run(h3d_tile* tile, double groups[16][8]) {
  H3D_PRECISE
  h3d_run* run = &tile->run;
  int l;
  if (!run->open)
    return;
  for (l = 0; l < 8; ++l) {
    tile->squares[l] += run->square[l];
    groups[run->group[l]][l] += run->square[l];
  }
  run->open = 0;
}

/* Enters 4 rows x 8 columns from column `col` of the segment. */
static void h3d_add_unit(h3d_tile* tile, double groups[16][8], int64_t col, int64_t cols,
                         const double* const value[4]) {
  H3D_PRECISE
  const int first = h3d_sixteenth(col, cols), last = h3d_sixteenth(h3d_least(col + 7, cols - 1), cols);
  h3d_run* run = &tile->run;
  double sum[8], square[8];
  int r, l;
  if (!(run->open && run->uniform && first == last && run->group[0] == first)) {
    h3d_end_run(tile, groups);
    memset(run, 0, sizeof *run);
    run->open = 1;
    run->uniform = first == last;
    for (l = 0; l < 8; ++l)
      run->group[l] = first == last ? first : h3d_sixteenth(h3d_least(col + l, cols - 1), cols);
  }
  memcpy(sum, tile->sum, sizeof sum); /* locals, which no pointer of the loop can lead into */
  memcpy(square, run->square, sizeof square);
  for (r = 0; r < 4; ++r) {
    for (l = 0; l < 8; ++l) {
      sum[l] += value[r][l];
      square[l] += value[r][l] * value[r][l];
    }
  }
  memcpy(tile->sum, sum, sizeof sum);
  memcpy(run->square, square, sizeof square);
  if (!tile->per_row)
    return;
  for (r = 0; r < 4; ++r)
    for (l = 0; l < 8; ++l)
      tile->row_squares[r][l] += value[r][l] * value[r][l];
}

static uint32_t h3d_turn(int64_t row_group, int64_t panel) {
  return h3d_mix((uint32_t)((uint64_t)row_group & 0xFFFFFFFFu) * 0x9E3779B1u +
                 (uint32_t)((uint64_t)panel & 0xFFFFFFFFu) * 0x85EBCA6Bu + 0x3C6EF372u) >>
         27;
}

/* Signs of four columns by four bits. */
static const double h3d_signs[16][4] = {{1, 1, 1, 1},   {-1, 1, 1, 1},   {1, -1, 1, 1},   {-1, -1, 1, 1},
                                        {1, 1, -1, 1},  {-1, 1, -1, 1},  {1, -1, -1, 1},  {-1, -1, -1, 1},
                                        {1, 1, 1, -1},  {-1, 1, 1, -1},  {1, -1, 1, -1},  {-1, -1, 1, -1},
                                        {1, 1, -1, -1}, {-1, 1, -1, -1}, {1, -1, -1, -1}, {-1, -1, -1, -1}};

static void h3d_sketch_unit(double sums[8][32][8], int64_t row, int64_t col, int64_t rows, uint32_t row_key,
                            const double* const value[4]) {
  H3D_PRECISE
  const uint32_t unit = (uint32_t)((uint64_t)(col / 8) & 0xFFFFFFFFu);
  const uint32_t signs = h3d_mix(row_key ^ (unit * 0x85EBCA6Bu + 0x13198A2Eu));
  const int64_t turn_rows = rows >= 512 ? 8 : 1;
  int r, l;
  for (r = 0; r < 4; ++r) {
    const uint32_t bucket = (unit & 31u) ^ h3d_turn((row + r) / turn_rows, col / 256);
    double* to = sums[(row + r) & 7][bucket];
    const double* low = h3d_signs[signs >> (8 * r) & 15u];
    const double* high = h3d_signs[signs >> (8 * r + 4) & 15u];
    double sum[8];
    for (l = 0; l < 4; ++l)
      sum[l] = to[l] + value[r][l] * low[l];
    for (l = 0; l < 4; ++l)
      sum[4 + l] = to[4 + l] + value[r][4 + l] * high[l];
    memcpy(to, sum, sizeof sum);
  }
}

static void h3d_offer_absmax(h3d_partial* p, double value, int64_t row, int64_t col) {
  const int earlier = row < p->absmax_row || (row == p->absmax_row && col < p->absmax_col);
  if (value < p->absmax || (value == p->absmax && !earlier))
    return;
  p->absmax = value;
  p->absmax_row = row;
  p->absmax_col = col;
}

/* Counts, minimum and maximum of n elements of one row. */
static void h3d_scan(h3d_partial* p, int64_t row, int64_t col, int n, const double* value, const unsigned char* kind) {
  double low = DBL_MAX, high = -DBL_MAX, largest;
  int i, kinds = 0;
  if (n == H3D_STEP)
    for (i = 0; i < H3D_STEP; ++i)
      kinds |= kind[i];
  else
    for (i = 0; i < n; ++i)
      kinds |= kind[i];
  if (kinds == 0 && n == H3D_STEP) {
    double lows[8], highs[8];
    for (i = 0; i < 8; ++i)
      lows[i] = value[i] < value[i + 8] ? value[i] : value[i + 8];
    for (i = 0; i < 8; ++i)
      highs[i] = value[i] > value[i + 8] ? value[i] : value[i + 8];
    for (i = 0; i < 4; ++i)
      lows[i] = lows[i] < lows[i + 4] ? lows[i] : lows[i + 4];
    for (i = 0; i < 4; ++i)
      highs[i] = highs[i] > highs[i + 4] ? highs[i] : highs[i + 4];
    for (i = 0; i < 4; ++i)
      low = lows[i] < low ? lows[i] : low;
    for (i = 0; i < 4; ++i)
      high = highs[i] > high ? highs[i] : high;
  } else {
    int finite = 0;
    for (i = 0; i < n; ++i) {
      p->zeros += kind[i] == H3D_ZERO;
      p->subnormal += kind[i] == H3D_SUBNORMAL;
      p->inf += kind[i] == H3D_INF;
      p->nan += kind[i] == H3D_NAN;
      if (kind[i] >= H3D_INF)
        continue;
      ++finite;
      if (value[i] < low)
        low = value[i];
      if (value[i] > high)
        high = value[i];
    }
    if (finite == 0)
      return;
  }
  if (low < p->min)
    p->min = low;
  if (high > p->max)
    p->max = high;
  largest = h3d_abs(low) > h3d_abs(high) ? h3d_abs(low) : h3d_abs(high);
  /* An equal one in an earlier row of a block of four may come later. */
  if (largest < p->absmax || (largest == p->absmax && p->absmax_row <= row))
    return;
  for (i = 0; i < n; ++i)
    if (kind[i] < H3D_INF && h3d_abs(value[i]) == largest) {
      h3d_offer_absmax(p, largest, row, col + i);
      return;
    }
}

/* Sum of squared deviations of a tile that cancelled; reads it again. */
static double h3d_tile_deviations(const h3d_source* s, const unsigned char* const start[4], int rows, int64_t col,
                                  int cols, double mean, int64_t count) {
  double squares = 0, sum = 0, value[H3D_STEP];
  unsigned char kind[H3D_STEP];
  uint64_t raw[H3D_STEP];
  int r, c;
  for (r = 0; r < rows; ++r) {
    for (c = 0; c < cols; c += H3D_STEP) {
      const int n = cols - c < H3D_STEP ? cols - c : H3D_STEP;
      h3d_load(s, start[r], col + c, n, raw);
      h3d_values(s->target, raw, n, value, kind);
      h3d_add_deviations(value, kind, n, mean, &squares, &sum);
    }
  }
  return h3d_corrected(squares, sum, count);
}

/* Rows [row_begin, row_end), columns [col_begin, col_end) of the segment. `sketch`: 256 buckets, or NULL. */
static void h3d_task(h3d_source* s, int64_t row_begin, int64_t row_end, int64_t col_begin, int64_t col_end,
                     int statistics, double* sketch, h3diff_workspace* work, h3d_partial* out) {
  H3D_PRECISE
  const size_t item = h3d_item(s->target);
  const int64_t unit_cols = h3d_divide_up(s->cols * (int64_t)item, 16);
  int64_t row, col;
  int r, c, i, l;
  if (statistics)
    memset(work->groups, 0, sizeof work->groups);
  if (sketch != NULL)
    memset(work->sketch, 0, sizeof work->sketch);
  for (row = row_begin; row < row_end; row += 4) {
    const int rows = (int)h3d_least(4, row_end - row);
    const uint32_t row_key = h3d_mix((uint32_t)((uint64_t)(row / 4) & 0xFFFFFFFFu) * 0x9E3779B1u + 0x243F6A88u);
    const unsigned char* start[4] = {NULL, NULL, NULL, NULL};
    h3d_tile tile;
    const int first_band = h3d_sixteenth(row, s->rows), last_band = h3d_sixteenth(row + rows - 1, s->rows);
    memset(tile.row_squares, 0, sizeof tile.row_squares);
    tile.per_row = first_band != last_band;
    for (r = 0; r < rows; ++r)
      start[r] = h3d_row(s, row + r);
    for (col = col_begin; col < col_end; col += H3D_TILE) {
      const int cols = (int)h3d_least(H3D_TILE, col_end - col);
      h3d_moments moments;
      double squares;
      memset(tile.sum, 0, sizeof tile.sum);
      memset(tile.squares, 0, sizeof tile.squares);
      tile.finite = (int64_t)rows * cols + out->nan + out->inf;
      tile.run.open = 0;
      for (c = 0; c < cols; c += H3D_STEP) {
        const int n = cols - c < H3D_STEP ? cols - c : H3D_STEP;
        const int chunks = (int)h3d_divide_up(n * (int64_t)item, 16);
        const int64_t unit = row / 4 * unit_cols + (col + c) * (int64_t)item / 16;
        uint64_t raw[H3D_STEP];
        uint32_t words[4][2 * H3D_STEP];
        double value[4][H3D_STEP];
        unsigned char kind[H3D_STEP];
        if (rows < 4 || n < H3D_STEP)
          memset(words, 0, sizeof words);
        if (rows < 4 || n < H3D_STEP)
          memset(value, 0, sizeof value);
        for (r = 0; r < rows; ++r) {
          if (n < H3D_STEP)
            memset(raw, 0, sizeof raw);
          h3d_load(s, start[r], col + c, n, raw);
          (void)h3d_words(item, raw, words[r]);
          if (!statistics)
            continue;
          h3d_values(s->target, raw, n, value[r], kind);
          h3d_scan(out, row + r, col + c, n, value[r], kind);
        }
        for (i = 0; i < chunks; ++i) {
          uint32_t w[16];
          for (r = 0; r < 4; ++r)
            memcpy(w + 4 * r, words[r] + 4 * i, 16);
          h3d_digest_unit(w, (uint32_t)((uint64_t)(unit + i) & 0xFFFFFFFFu), out->digest);
        }
        if (!statistics)
          continue;
        for (i = 0; i < n; i += 8) {
          const double* const eight[4] = {value[0] + i, value[1] + i, value[2] + i, value[3] + i};
          h3d_add_unit(&tile, work->groups, col + c + i, s->cols, eight);
          if (sketch != NULL)
            h3d_sketch_unit(work->sketch, row, col + c + i, s->rows, row_key, eight);
        }
      }
      if (!statistics)
        continue;
      h3d_end_run(&tile, work->groups);
      tile.finite -= out->nan + out->inf;
      squares = h3d_sum_lanes(tile.squares);
      if (!tile.per_row)
        out->bands[first_band] += squares;
      if (h3d_piece_moments(tile.finite, h3d_sum_lanes(tile.sum), squares, &moments))
        moments.deviations = h3d_tile_deviations(s, start, rows, col, cols, moments.mean, moments.count);
      h3d_add_moments(&out->moments, &moments);
    }
    if (statistics && tile.per_row)
      for (r = 0; r < rows; ++r)
        out->bands[h3d_sixteenth(row + r, s->rows)] += h3d_sum_lanes(tile.row_squares[r]);
  }
  if (!statistics)
    return;
  for (i = 0; i < 16; ++i)
    out->groups[i] = h3d_sum_lanes(work->groups[i]);
  if (sketch == NULL)
    return;
  memset(work->total, 0, sizeof work->total);
  for (r = 0; r < 8; ++r)
    for (i = 0; i < 32; ++i)
      for (l = 0; l < 8; ++l)
        work->total[i + 32 * ((r + l) & 7)] += work->sketch[r][i][l];
  for (i = 0; i < 256; ++i)
    sketch[i] += work->total[i];
}

static void h3d_partial_clear(h3d_partial* p) {
  memset(p, 0, sizeof *p);
  p->min = DBL_MAX;
  p->max = -DBL_MAX;
  p->absmax = -1;
  p->absmax_row = p->absmax_col = -1;
}

static void h3d_add_partial(h3d_partial* to, const h3d_partial* from) {
  H3D_PRECISE
  int i;
  to->digest[0] += from->digest[0];
  to->digest[1] += from->digest[1];
  to->zeros += from->zeros;
  to->nan += from->nan;
  to->inf += from->inf;
  to->subnormal += from->subnormal;
  if (from->min < to->min)
    to->min = from->min;
  if (from->max > to->max)
    to->max = from->max;
  if (from->absmax_row >= 0)
    h3d_offer_absmax(to, from->absmax, from->absmax_row, from->absmax_col);
  h3d_add_moments(&to->moments, &from->moments);
  for (i = 0; i < 16; ++i) {
    to->bands[i] += from->bands[i];
    to->groups[i] += from->groups[i];
  }
}

/* The whole segment, task by task. */
static void h3d_measure_segment(h3d_source* s, int statistics, double* sketch, h3diff_workspace* work,
                                h3d_partial* total) {
  int64_t task_cols, task_rows, row, col;
  h3d_partial_clear(total);
  if (sketch != NULL)
    memset(sketch, 0, 256 * sizeof *sketch);
  if (s->rows == 0 || s->cols == 0)
    return;
  task_cols = h3d_most(h3d_least(s->cols, 65536), h3d_divide_up(s->cols, 256));
  task_cols = h3d_divide_up(task_cols, H3D_TILE) * H3D_TILE;
  task_rows = h3d_divide_up(131072, h3d_least(s->cols, task_cols));
  task_rows = h3d_divide_up(h3d_most(task_rows, h3d_divide_up(s->rows, 256)), 8) * 8;
  for (row = 0; row < s->rows; row += task_rows) {
    for (col = 0; col < s->cols; col += task_cols) {
      h3d_partial part;
      h3d_partial_clear(&part);
      h3d_task(s, row, h3d_least(row + task_rows, s->rows), col, h3d_least(col + task_cols, s->cols), statistics,
               sketch, work, &part);
      h3d_add_partial(total, &part);
    }
  }
}

/* dot / (norm * norm) over the pairs that are finite on both sides. */
static double h3d_cosine(h3d_source* a, h3d_source* b) {
  H3D_PRECISE
  double dot = 0, norm_a = 0, norm_b = 0, x[H3D_STEP], y[H3D_STEP];
  unsigned char kind_x[H3D_STEP], kind_y[H3D_STEP];
  uint64_t raw[H3D_STEP];
  int64_t row, tile, col;
  int i;
  for (row = 0; row < a->rows; ++row) {
    const unsigned char *start_a = h3d_row(a, row), *start_b = h3d_row(b, row);
    for (tile = 0; tile < a->cols; tile += H3D_TILE) {
      const int64_t end = h3d_least(tile + H3D_TILE, a->cols);
      double xy = 0, xx = 0, yy = 0;
      for (col = tile; col < end; col += H3D_STEP) {
        const int n = (int)h3d_least(H3D_STEP, end - col);
        h3d_load(a, start_a, col, n, raw);
        h3d_values(a->target, raw, n, x, kind_x);
        h3d_load(b, start_b, col, n, raw);
        h3d_values(b->target, raw, n, y, kind_y);
        for (i = 0; i < n; ++i) {
          if (kind_x[i] >= H3D_INF || kind_y[i] >= H3D_INF)
            continue;
          xy += x[i] * y[i];
          xx += x[i] * x[i];
          yy += y[i] * y[i];
        }
      }
      dot += xy;
      norm_a += xx;
      norm_b += yy;
    }
  }
  if (norm_a == 0 || norm_b == 0)
    return h3d_undefined();
  return dot / (sqrt(norm_a) * sqrt(norm_b));
}

static void h3d_result(const h3d_source* s, const h3d_partial* p, int statistics, h3diff_measurement* out) {
  H3D_PRECISE
  double squares = 0;
  int i;
  out->rows = s->rows;
  out->cols = s->cols;
  out->dtype = s->target;
  out->digest[0] = p->digest[0];
  out->digest[1] = p->digest[1];
  h3d_digest_shape(s->rows, s->cols * (int64_t)h3d_item(s->target), out->digest);
  out->zeros = p->zeros;
  out->nan = p->nan;
  out->inf = p->inf;
  out->subnormal = p->subnormal;
  out->mean = out->std = out->l2 = out->min = out->max = out->absmax = out->cosine = h3d_undefined();
  out->absmax_row = out->absmax_col = -1;
  for (i = 0; i < 16; ++i) {
    squares += p->bands[i];
    out->row_bands[i] = (float)sqrt(p->bands[i]);
    out->col_groups[i] = (float)sqrt(p->groups[i]);
  }
  if (!statistics)
    return;
  out->l2 = sqrt(squares);
  if (p->moments.count == 0)
    return;
  out->mean = p->moments.sum / (double)p->moments.count;
  out->std = h3d_is_finite(squares) ? sqrt(p->moments.deviations / (double)p->moments.count) : out->l2;
  out->min = p->min == 0 ? 0.0 : p->min; /* one zero, not two */
  out->max = p->max == 0 ? 0.0 : p->max;
  out->absmax = p->absmax;
  out->absmax_row = p->absmax_row;
  out->absmax_col = p->absmax_col;
}

/* NULL, or what is wrong. */
static const char* h3d_measure(const h3diff_tensor* t, size_t segment_index, int level, int sketch_k,
                               h3diff_workspace* work, h3diff_measurement* out, h3d_source* s) {
  const char* wrong = h3d_describe(t, segment_index, s);
  const int statistics = level != H3DIFF_DIGEST;
  h3d_partial total;
  h3d_source input;
  int b;
  if (wrong != NULL)
    return wrong;
  if (sketch_k != 0 && sketch_k != 64 && sketch_k != 128 && sketch_k != 256)
    return "a sketch has 0, 64, 128 or 256 buckets";
  if (t->model_input != NULL) {
    h3diff_tensor as_this = *t->model_input; /* its own segment table does not matter */
    as_this.segments = t->segments;
    as_this.segment_count = t->segment_count;
    as_this.model_input = NULL;
    wrong = h3d_describe(&as_this, segment_index, &input);
    if (wrong != NULL)
      return wrong;
    if (input.view_rows != s->view_rows || input.cols != s->cols)
      return "model_input has another canonical shape than the tensor";
    input.tensor = t->model_input;
  }
  memset(out, 0, sizeof *out);
  if (!statistics)
    sketch_k = 0;
  h3d_choose_target(s);
  h3d_measure_segment(s, statistics, sketch_k > 0 ? out->sketch : NULL, work, &total);
  h3d_result(s, &total, statistics, out);
  out->sketch_k = sketch_k;
  if (sketch_k > 0)
    for (b = sketch_k; b < 256; ++b)
      out->sketch[b % sketch_k] += out->sketch[b];
  if (t->model_input != NULL && statistics)
    out->cosine = h3d_cosine(s, &input);
  return NULL;
}

h3diff_status h3diff_measure(const h3diff_tensor* t, size_t segment_index, int sketch_k, h3diff_workspace* workspace,
                             h3diff_measurement* out) {
  h3d_source s;
  if (workspace == NULL || out == NULL || t == NULL)
    return H3DIFF_BAD_ARGUMENT;
  return h3d_measure(t, segment_index, t->level, sketch_k, workspace, out, &s) == NULL ? H3DIFF_OK
                                                                                       : H3DIFF_BAD_ARGUMENT;
}

void h3diff_digest_bytes(const void* data, int64_t rows, int64_t row_bytes, uint64_t digest[2]) {
  const h3diff_tensor t = h3diff_matrix("bytes", 0, H3DIFF_UINT8, rows, row_bytes, data);
  h3d_partial total;
  h3d_source s;
  digest[0] = digest[1] = 0;
  if (h3d_describe(&t, 0, &s) != NULL)
    return;
  h3d_measure_segment(&s, 0, NULL, NULL, &total);
  digest[0] = total.digest[0];
  digest[1] = total.digest[1];
  h3d_digest_shape(rows, row_bytes, digest);
}

/* ---- columns: docs/dump-format.md, section 5 ---- */

typedef struct h3d_column {
  uint64_t digest[2];
  int64_t zeros, nan, inf;
  h3d_moments moments;
  double squares, min, max;
  double piece_sum, piece_squares; /* of 64 rows */
  int64_t piece_count;
} h3d_column;

static double h3d_column_deviations(h3d_source* s, int64_t row, int64_t row_end, int64_t col, double mean,
                                    int64_t count) {
  double squares = 0, sum = 0, value;
  unsigned char kind;
  uint64_t raw;
  for (; row < row_end; ++row) {
    h3d_load(s, h3d_row(s, row), col, 1, &raw);
    h3d_values(s->target, &raw, 1, &value, &kind);
    h3d_add_deviations(&value, &kind, 1, mean, &squares, &sum);
  }
  return h3d_corrected(squares, sum, count);
}

/* n <= 16 columns from `col`, each as a [rows, 1] tensor. */
static void h3d_columns(h3d_source* s, int64_t col, int n, h3d_column* columns) {
  H3D_PRECISE
  const size_t item = h3d_item(s->target);
  int64_t piece, row;
  int r, i;
  memset(columns, 0, (size_t)n * sizeof *columns);
  for (i = 0; i < n; ++i) {
    columns[i].min = DBL_MAX;
    columns[i].max = -DBL_MAX;
  }
  for (piece = 0; piece < s->rows; piece += 64) {
    const int64_t piece_end = h3d_least(piece + 64, s->rows);
    for (i = 0; i < n; ++i) {
      columns[i].piece_sum = columns[i].piece_squares = 0;
      columns[i].piece_count = 0;
    }
    for (row = piece; row < piece_end; row += 4) {
      uint64_t raw[4][H3D_STEP];
      memset(raw, 0, sizeof raw);
      for (r = 0; r < 4 && row + r < piece_end; ++r) {
        double value[H3D_STEP];
        unsigned char kind[H3D_STEP];
        h3d_load(s, h3d_row(s, row + r), col, n, raw[r]);
        h3d_values(s->target, raw[r], n, value, kind);
        for (i = 0; i < n; ++i) {
          h3d_column* c = &columns[i];
          c->zeros += kind[i] == H3D_ZERO;
          c->nan += kind[i] == H3D_NAN;
          c->inf += kind[i] == H3D_INF;
          if (kind[i] >= H3D_INF)
            continue;
          ++c->piece_count;
          c->piece_sum += value[i];
          c->piece_squares += value[i] * value[i];
          if (value[i] < c->min)
            c->min = value[i];
          if (value[i] > c->max)
            c->max = value[i];
        }
      }
      for (i = 0; i < n; ++i) {
        uint32_t w[16];
        memset(w, 0, sizeof w);
        for (r = 0; r < 4; ++r) {
          w[4 * r] = (uint32_t)(raw[r][i] & 0xFFFFFFFFu);
          w[4 * r + 1] = (uint32_t)(raw[r][i] >> 32);
        }
        h3d_digest_unit(w, (uint32_t)((uint64_t)(row / 4) & 0xFFFFFFFFu), columns[i].digest);
      }
    }
    for (i = 0; i < n; ++i) {
      h3d_column* c = &columns[i];
      h3d_moments moments;
      c->squares += c->piece_squares;
      if (h3d_piece_moments(c->piece_count, c->piece_sum, c->piece_squares, &moments))
        moments.deviations = h3d_column_deviations(s, piece, piece_end, col + i, moments.mean, moments.count);
      h3d_add_moments(&c->moments, &moments);
    }
  }
  for (i = 0; i < n; ++i)
    h3d_digest_shape(s->rows, (int64_t)item, columns[i].digest);
}

/* ---- the file: docs/stream-format.md ---- */

static h3diff_status h3d_fail(h3diff_stream* s, h3diff_status status, const char* why) {
  s->error = why;
  if (status == H3DIFF_WRITE_FAILED)
    s->failed = 1;
  return status;
}

static const char h3d_write_failed[] = "the stream cannot be written (is the disk full?)";

static h3diff_status h3d_flush(h3diff_stream* s) {
  if (s->failed)
    return H3DIFF_WRITE_FAILED;
  if (s->fill > 0 && s->write(s->user, s->buffer, s->fill) != 0)
    return h3d_fail(s, H3DIFF_WRITE_FAILED, h3d_write_failed);
  s->fill = 0;
  return H3DIFF_OK;
}

static void h3d_put(h3diff_stream* s, const void* data, size_t size) {
  const unsigned char* from = (const unsigned char*)data;
  size_t i;
  for (i = 0; i < size; ++i) {
    s->crc = s->crc_table[(s->crc ^ from[i]) & 0xFFu] ^ s->crc >> 8;
    s->buffer[s->fill++] = from[i];
    if (s->fill == sizeof s->buffer && h3d_flush(s) != H3DIFF_OK)
      s->fill = 0;
  }
}

static void h3d_put_uint(h3diff_stream* s, uint64_t value, int bytes) {
  unsigned char little[8];
  int i;
  for (i = 0; i < bytes; ++i)
    little[i] = (unsigned char)(value >> (8 * i) & 0xFFu);
  h3d_put(s, little, (size_t)bytes);
}
static void h3d_put_i64(h3diff_stream* s, int64_t value) { h3d_put_uint(s, (uint64_t)value, 8); }
static void h3d_put_f64(h3diff_stream* s, double value) { h3d_put_uint(s, h3d_to_bits(value), 8); }
static void h3d_put_f32(h3diff_stream* s, float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  h3d_put_uint(s, bits, 4);
}

static void h3d_begin(h3diff_stream* s, const char* tag, size_t length) {
  s->crc = 0xFFFFFFFFu;
  h3d_put(s, tag, 4);
  h3d_put_uint(s, length, 4);
}

static h3diff_status h3d_end(h3diff_stream* s) {
  h3d_put_uint(s, s->crc ^ 0xFFFFFFFFu, 4);
  return s->failed ? H3DIFF_WRITE_FAILED : H3DIFF_OK;
}

/* H3DIFF_OK if the stream may be written to. */
static h3diff_status h3d_ready(h3diff_stream* s) {
  if (s == NULL)
    return H3DIFF_BAD_ARGUMENT;
  if (s->state != 1)
    return h3d_fail(s, H3DIFF_BAD_ORDER, "the stream is not open");
  return s->failed ? H3DIFF_WRITE_FAILED : H3DIFF_OK;
}

static int h3d_file_write(void* user, const void* data, size_t size) {
  FILE* file = (FILE*)user;
  if (size == 0)
    return fflush(file);
  return fwrite(data, 1, size, file) == size ? 0 : 1;
}

static h3diff_status h3d_fact(h3diff_stream* s, int type, const char* name, const void* value, size_t size) {
  const size_t length = h3d_length(name, 64);
  h3diff_status status = h3d_ready(s);
  if (status != H3DIFF_OK)
    return status;
  if (length < 1 || length > 64)
    return h3d_fail(s, H3DIFF_BAD_ARGUMENT, "a fact's name must have 1 to 64 bytes");
  if (size > 4096)
    return h3d_fail(s, H3DIFF_BAD_ARGUMENT, "a fact's text must be given, with at most 4096 bytes");
  h3d_begin(s, "FACT", 4 + length + size);
  h3d_put_uint(s, (uint64_t)type, 1);
  h3d_put_uint(s, 0, 1);
  h3d_put_uint(s, length, 2);
  h3d_put(s, name, length);
  if (type == 0)
    h3d_put(s, value, size);
  else
    h3d_put_uint(s, *(const uint64_t*)value, 8);
  return h3d_end(s);
}

h3diff_status h3diff_fact_text(h3diff_stream* s, const char* name, const char* text) {
  return h3d_fact(s, 0, name, text, h3d_length(text, 4096));
}
h3diff_status h3diff_fact_int(h3diff_stream* s, const char* name, int64_t value) {
  const uint64_t bits = (uint64_t)value;
  return h3d_fact(s, 1, name, &bits, 8);
}
h3diff_status h3diff_fact_real(h3diff_stream* s, const char* name, double value) {
  const uint64_t bits = h3d_to_bits(value);
  return h3d_fact(s, 2, name, &bits, 8);
}

h3diff_status h3diff_open_callback(h3diff_stream* s, h3diff_write_callback write, void* user,
                                   const h3diff_options* options) {
  static const unsigned char magic[8] = {0x89, 0x48, 0x33, 0x53, 0x54, 0x52, 0x0D, 0x0A};
  uint32_t i, bit;
  if (s == NULL)
    return H3DIFF_BAD_ARGUMENT;
  memset(s, 0, sizeof *s);
  if (write == NULL)
    return h3d_fail(s, H3DIFF_BAD_ARGUMENT, "no write callback was given");
  if (options != NULL)
    s->options = *options;
  if (s->options.steps_planned < 0 || s->options.sample_rows < 0)
    return h3d_fail(s, H3DIFF_BAD_ARGUMENT, "steps_planned and sample_rows cannot be negative");
  switch (s->options.sketch_k) {
  case -1:
  case 0:
  case 64:
  case 128:
  case 256: break;
  default: return h3d_fail(s, H3DIFF_BAD_ARGUMENT, "sketch_k must be -1, 0, 64, 128 or 256");
  }
  s->write = write;
  s->user = user;
  s->last_step = -2;
  for (i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (bit = 0; bit < 8; ++bit)
      crc = (crc & 1u) != 0 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
    s->crc_table[i] = crc;
  }
  s->state = 1;
  h3d_put(s, magic, sizeof magic);
  h3d_put_uint(s, 1, 4);
  h3d_put_uint(s, 0, 4);
  if (s->options.steps_planned > 0)
    (void)h3diff_fact_int(s, "steps_planned", s->options.steps_planned);
  return h3d_flush(s);
}

h3diff_status h3diff_open(h3diff_stream* s, const char* path, const h3diff_options* options) {
  FILE* file;
  h3diff_status status;
  if (s == NULL)
    return H3DIFF_BAD_ARGUMENT;
  memset(s, 0, sizeof *s);
  if (path == NULL)
    return h3d_fail(s, H3DIFF_BAD_ARGUMENT, "no path was given");
  file = fopen(path, "rb");
  if (file != NULL) {
    fclose(file);
    return h3d_fail(s, H3DIFF_EXISTS, "the file exists already");
  }
  file = fopen(path, "wb");
  if (file == NULL)
    return h3d_fail(s, H3DIFF_CANNOT_OPEN, "the file cannot be created");
  status = h3diff_open_callback(s, h3d_file_write, file, options);
  s->file = file;
  if (status != H3DIFF_OK) {
    fclose(file);
    s->file = NULL;
    s->state = 0;
  }
  return status;
}

/* Rows of the segment: all of them, or `count` evenly spaced ones. */
static h3diff_status h3d_write_rows(h3diff_stream* s, h3d_source* source, int32_t segment, int64_t count,
                                    int64_t sampled_of) {
  const h3diff_tensor* t = source->tensor;
  const size_t item = h3d_item(source->target), length = h3d_length(t->probe, 80);
  const int64_t row_bytes = source->cols * (int64_t)item;
  const int64_t at_once = h3d_most(1, ((int64_t)1 << 20) / row_bytes);
  int64_t first, row, col;
  uint64_t raw[64];
  int i;
  for (first = 0; first < count; first += at_once) {
    const int64_t n = h3d_least(at_once, count - first);
    h3d_begin(s, "TENS", 48 + length + (size_t)(n * row_bytes));
    h3d_put_uint(s, (uint64_t)t->step, 4);
    h3d_put_uint(s, (uint64_t)segment, 1);
    h3d_put_uint(s, (uint64_t)source->target, 1);
    h3d_put_uint(s, length, 2);
    h3d_put_i64(s, count);
    h3d_put_i64(s, source->cols);
    h3d_put_i64(s, sampled_of);
    h3d_put_i64(s, first);
    h3d_put_i64(s, n);
    h3d_put(s, t->probe, length);
    for (row = first; row < first + n; ++row) {
      /* floor(row * rows / count), without overflow */
      const int64_t whole = source->rows / count, rest = source->rows % count;
      const unsigned char* start = h3d_row(source, row * whole + row * rest / count);
      for (col = 0; col < source->cols; col += 64) {
        const int part = (int)h3d_least(64, source->cols - col);
        h3d_load(source, start, col, part, raw);
        for (i = 0; i < part; ++i)
          h3d_put_uint(s, raw[i], (int)item);
      }
    }
    if (h3d_end(s) != H3DIFF_OK)
      return H3DIFF_WRITE_FAILED;
  }
  return H3DIFF_OK;
}

static h3diff_status h3d_check_step(h3diff_stream* s, int32_t step) {
  if (step <= s->last_step)
    return h3d_fail(s, H3DIFF_BAD_ORDER, "this step, or a later one, has ended already");
  return H3DIFF_OK;
}

static int h3d_sketch_k(const h3diff_stream* s, int32_t step) {
  const h3diff_options* o = &s->options;
  if (o->sketch_k != 0)
    return o->sketch_k < 0 ? 0 : o->sketch_k;
  return o->steps_planned == 0 || step < 2 || step == o->steps_planned - 1 ? 256 : 64;
}

static int64_t h3d_kept_rows(const h3diff_stream* s, const h3d_source* source, int level) {
  if (level == H3DIFF_FULL)
    return source->rows;
  return h3d_least(source->rows, s->options.sample_rows > 0 ? s->options.sample_rows : 64);
}

static h3diff_status h3d_write(h3diff_stream* s, h3d_source* source, int32_t segment, const h3diff_measurement* m) {
  const h3diff_tensor* t = source->tensor;
  const size_t length = h3d_length(t->probe, 80);
  int level = t->level == 0 ? H3DIFF_STATS : t->level;
  int i;
  if (level > H3DIFF_STATS && (m->rows == 0 || m->cols == 0))
    level = H3DIFF_STATS; /* nothing to keep */
  h3d_begin(s, "MEAS", 276 + length + 4 * (size_t)m->sketch_k);
  h3d_put_uint(s, (uint64_t)t->step, 4);
  h3d_put_uint(s, (uint64_t)segment, 1);
  h3d_put_uint(s, (uint64_t)m->dtype, 1);
  h3d_put_uint(s, (uint64_t)t->dtype, 1);
  h3d_put_uint(s, (uint64_t)level, 1);
  h3d_put_i64(s, m->rows);
  h3d_put_i64(s, m->cols);
  h3d_put_uint(s, m->digest[0], 8);
  h3d_put_uint(s, m->digest[1], 8);
  h3d_put_i64(s, m->zeros);
  h3d_put_i64(s, m->nan);
  h3d_put_i64(s, m->inf);
  h3d_put_i64(s, m->subnormal);
  h3d_put_f64(s, m->mean);
  h3d_put_f64(s, m->std);
  h3d_put_f64(s, m->l2);
  h3d_put_f64(s, m->min);
  h3d_put_f64(s, m->max);
  h3d_put_f64(s, m->absmax);
  h3d_put_i64(s, m->absmax_row);
  h3d_put_i64(s, m->absmax_col);
  h3d_put_f64(s, m->cosine);
  for (i = 0; i < 16; ++i)
    h3d_put_f32(s, m->row_bands[i]);
  for (i = 0; i < 16; ++i)
    h3d_put_f32(s, m->col_groups[i]);
  h3d_put_uint(s, (uint64_t)m->sketch_k, 2);
  h3d_put_uint(s, length, 2);
  h3d_put(s, t->probe, length);
  for (i = 0; i < m->sketch_k; ++i)
    h3d_put_f32(s, (float)m->sketch[i]);
  if (h3d_end(s) != H3DIFF_OK)
    return H3DIFF_WRITE_FAILED;
  if (level >= H3DIFF_ROWS) {
    source->target = m->dtype;
    return h3d_write_rows(s, source, segment, h3d_kept_rows(s, source, level), level == H3DIFF_ROWS ? source->rows : 0);
  }
  return H3DIFF_OK;
}

static const char* h3d_too_wide(const h3d_source* source) {
  if (source->tensor->level >= H3DIFF_ROWS && source->cols * (int64_t)source->item > (int64_t)(H3D_MAX_PAYLOAD - 256))
    return "a row of more than 16 MiB cannot be kept; use H3DIFF_STATS";
  if (source->tensor->level >= H3DIFF_ROWS && source->rows > (int64_t)1 << 31)
    return "of more than 2^31 rows none can be kept; use H3DIFF_STATS";
  return NULL;
}

static int32_t h3d_segment(const h3diff_tensor* t, size_t index) {
  return t->segments != NULL ? t->segments[index].segment : (int32_t)H3DIFF_ALL;
}

h3diff_status h3diff_write(h3diff_stream* s, const h3diff_tensor* t, size_t segment_index,
                           const h3diff_measurement* measured) {
  h3diff_status status = h3d_ready(s);
  h3d_source source;
  const char* wrong;
  if (status != H3DIFF_OK)
    return status;
  wrong = h3d_describe(t, segment_index, &source);
  if (wrong == NULL)
    wrong = h3d_too_wide(&source);
  if (wrong == NULL && (measured == NULL || measured->rows != source.rows || measured->cols != source.cols))
    wrong = "the measurement is of another shape than the segment";
  if (wrong != NULL)
    return h3d_fail(s, H3DIFF_BAD_ARGUMENT, wrong);
  if ((status = h3d_check_step(s, t->step)) != H3DIFF_OK)
    return status;
  return h3d_write(s, &source, h3d_segment(t, segment_index), measured);
}

h3diff_status h3diff_probe(h3diff_stream* s, const h3diff_tensor* t) {
  h3diff_status status = h3d_ready(s);
  const char* wrong;
  size_t i, count;
  h3d_source source;
  if (status != H3DIFF_OK)
    return status;
  if (t == NULL)
    return h3d_fail(s, H3DIFF_BAD_ARGUMENT, "no tensor was given");
  if (t->segments != NULL && t->segment_count == 0)
    return h3d_fail(s, H3DIFF_BAD_ARGUMENT, "the segment table is empty; NULL stands for one segment `all`");
  count = t->segments != NULL ? t->segment_count : 1;
  /* All of it is checked before any of it is written. */
  for (i = 0; i < count; ++i) {
    wrong = h3d_describe(t, i, &source);
    if (wrong == NULL)
      wrong = h3d_too_wide(&source);
    if (wrong != NULL)
      return h3d_fail(s, H3DIFF_BAD_ARGUMENT, wrong);
  }
  if ((status = h3d_check_step(s, t->step)) != H3DIFF_OK)
    return status;
  for (i = 0; i < count; ++i) {
    wrong = h3d_measure(t, i, t->level, h3d_sketch_k(s, t->step), &s->workspace, &s->measurement, &source);
    if (wrong != NULL)
      return h3d_fail(s, H3DIFF_BAD_ARGUMENT, wrong);
    if (source.rows == 0 && t->segments != NULL)
      continue;
    if (h3d_write(s, &source, h3d_segment(t, i), &s->measurement) != H3DIFF_OK)
      return H3DIFF_WRITE_FAILED;
  }
  return H3DIFF_OK;
}

h3diff_status h3diff_columns(h3diff_stream* s, const h3diff_tensor* t) {
  H3D_PRECISE
  h3diff_status status = h3d_ready(s);
  h3diff_tensor whole;
  h3d_column columns[H3D_STEP];
  h3d_source source;
  const char* wrong;
  size_t length;
  int64_t col;
  int i;
  if (status != H3DIFF_OK)
    return status;
  if (t == NULL)
    return h3d_fail(s, H3DIFF_BAD_ARGUMENT, "no tensor was given");
  whole = *t;
  whole.segments = NULL;
  wrong = h3d_describe(&whole, 0, &source);
  if (wrong == NULL && t->step != -1)
    wrong = "columns belong to weights, at step -1";
  if (wrong == NULL && source.cols > (int64_t)1 << 24)
    wrong = "a weight has at most 2^24 columns";
  if (wrong != NULL)
    return h3d_fail(s, H3DIFF_BAD_ARGUMENT, wrong);
  if ((status = h3d_check_step(s, t->step)) != H3DIFF_OK)
    return status;
  h3d_choose_target(&source);
  length = h3d_length(t->probe, 80);
  for (col = 0; col < source.cols; col += H3D_STEP) {
    const int n = (int)h3d_least(H3D_STEP, source.cols - col);
    h3d_columns(&source, col, n, columns);
    h3d_begin(s, "COLS", 14 + length + 88 * (size_t)n);
    h3d_put_uint(s, (uint64_t)col, 4);
    h3d_put_uint(s, (uint64_t)n, 4);
    h3d_put_uint(s, (uint64_t)source.cols, 4);
    h3d_put_uint(s, length, 2);
    h3d_put(s, t->probe, length);
    for (i = 0; i < n; ++i) {
      const h3d_column* c = &columns[i];
      const double undefined = h3d_undefined(), l2 = sqrt(c->squares), count = (double)c->moments.count;
      const double low = c->min == 0 ? 0.0 : c->min, high = c->max == 0 ? 0.0 : c->max;
      const int any = c->moments.count > 0;
      h3d_put_uint(s, c->digest[0], 8);
      h3d_put_uint(s, c->digest[1], 8);
      h3d_put_i64(s, c->zeros);
      h3d_put_i64(s, c->nan);
      h3d_put_i64(s, c->inf);
      h3d_put_f64(s, any ? c->moments.sum / count : undefined);
      h3d_put_f64(s, !any ? undefined : h3d_is_finite(c->squares) ? sqrt(c->moments.deviations / count) : l2);
      h3d_put_f64(s, l2);
      h3d_put_f64(s, any ? low : undefined);
      h3d_put_f64(s, any ? high : undefined);
      h3d_put_f64(s, !any ? undefined : h3d_abs(low) > h3d_abs(high) ? h3d_abs(low) : h3d_abs(high));
    }
    if (h3d_end(s) != H3DIFF_OK)
      return H3DIFF_WRITE_FAILED;
  }
  return H3DIFF_OK;
}

h3diff_status h3diff_end_step(h3diff_stream* s, int32_t step, double sigma_video, double sigma_audio,
                              double next_sigma_video, double next_sigma_audio) {
  h3diff_status status = h3d_ready(s);
  if (status != H3DIFF_OK)
    return status;
  if (step < -1)
    return h3d_fail(s, H3DIFF_BAD_ARGUMENT, "a step must be -1 (weights) or more");
  if ((status = h3d_check_step(s, step)) != H3DIFF_OK)
    return status;
  h3d_begin(s, "STEP", 36);
  h3d_put_uint(s, (uint64_t)step, 4);
  h3d_put_f64(s, sigma_video);
  h3d_put_f64(s, sigma_audio);
  h3d_put_f64(s, next_sigma_video);
  h3d_put_f64(s, next_sigma_audio);
  if (h3d_end(s) != H3DIFF_OK || h3d_flush(s) != H3DIFF_OK)
    return H3DIFF_WRITE_FAILED;
  s->last_step = step;
  return s->write(s->user, NULL, 0) == 0 ? H3DIFF_OK : h3d_fail(s, H3DIFF_WRITE_FAILED, h3d_write_failed);
}

h3diff_status h3diff_end_weights(h3diff_stream* s) {
  const double none = h3d_undefined();
  return h3diff_end_step(s, -1, none, none, none, none);
}

h3diff_status h3diff_dispatch(h3diff_stream* s, const char* op, const char* implementation, const char* declared,
                              int64_t calls, int64_t fallbacks) {
  const size_t a = h3d_length(op, 32), b = h3d_length(implementation, 64), c = h3d_length(declared, 64);
  h3diff_status status = h3d_ready(s);
  if (status != H3DIFF_OK)
    return status;
  if (a < 1 || a > 32 || b < 1 || b > 64 || c > 64)
    return h3d_fail(s, H3DIFF_BAD_ARGUMENT, "op has 1 to 32 bytes, implementation 1 to 64, declared 0 to 64");
  if (calls < 0 || fallbacks < 0 || fallbacks > calls)
    return h3d_fail(s, H3DIFF_BAD_ARGUMENT, "calls and fallbacks cannot be negative, nor fallbacks above calls");
  h3d_begin(s, "DISP", 22 + a + b + c);
  h3d_put_i64(s, calls);
  h3d_put_i64(s, fallbacks);
  h3d_put_uint(s, a, 2);
  h3d_put_uint(s, b, 2);
  h3d_put_uint(s, c, 2);
  h3d_put(s, op, a);
  h3d_put(s, implementation, b);
  h3d_put(s, declared, c);
  return h3d_end(s);
}

h3diff_status h3diff_unobserved(h3diff_stream* s, const char* probe, const char* reason) {
  const size_t a = h3d_length(probe, 80), b = h3d_length(reason, 160);
  h3diff_status status = h3d_ready(s);
  if (status != H3DIFF_OK)
    return status;
  if (a < 1 || a > 80 || b < 1 || b > 160)
    return h3d_fail(s, H3DIFF_BAD_ARGUMENT, "probe has 1 to 80 bytes, reason 1 to 160");
  h3d_begin(s, "UNOB", 4 + a + b);
  h3d_put_uint(s, a, 2);
  h3d_put_uint(s, b, 2);
  h3d_put(s, probe, a);
  h3d_put(s, reason, b);
  return h3d_end(s);
}

static h3diff_status h3d_shut(h3diff_stream* s) {
  h3diff_status status = s->failed ? H3DIFF_WRITE_FAILED : h3d_flush(s);
  if (status == H3DIFF_OK && s->write(s->user, NULL, 0) != 0)
    status = h3d_fail(s, H3DIFF_WRITE_FAILED, h3d_write_failed);
  if (s->file != NULL && fclose((FILE*)s->file) != 0 && status == H3DIFF_OK)
    status = h3d_fail(s, H3DIFF_WRITE_FAILED, h3d_write_failed);
  s->file = NULL;
  s->state = 0;
  return status;
}

h3diff_status h3diff_close(h3diff_stream* s) {
  h3diff_status status = h3d_ready(s);
  if (status == H3DIFF_BAD_ARGUMENT || status == H3DIFF_BAD_ORDER)
    return status;
  if (status == H3DIFF_OK) {
    h3d_begin(s, "END ", 0);
    (void)h3d_end(s);
  }
  return h3d_shut(s);
}

void h3diff_abandon(h3diff_stream* s) {
  if (s != NULL && s->state == 1)
    (void)h3d_shut(s);
}

const char* h3diff_error(const h3diff_stream* s) { return s != NULL && s->error != NULL ? s->error : ""; }

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

#ifdef __cplusplus
}
#endif

#endif /* H3DIFF_PROBE_IMPLEMENTED */
#endif /* H3DIFF_PROBE_IMPLEMENTATION */
