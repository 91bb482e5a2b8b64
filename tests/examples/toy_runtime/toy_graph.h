/* A runtime in the manner of ggml, small enough to read: tensors with up to four dimensions, ne[0] the innermost, and
 * byte strides nb[]; a list of named nodes that is built once and computed once a step. Everything lies in one arena.
 */
#ifndef TOY_GRAPH_H
#define TOY_GRAPH_H

#include <stddef.h>
#include <stdint.h>

enum toy_type { TOY_F32, TOY_BF16 };

enum toy_op { TOY_NONE, TOY_MUL_MAT, TOY_RMS_NORM, TOY_SILU_MUL, TOY_ADD, TOY_PERMUTE, TOY_ATTENTION };

struct toy_tensor {
  const char* name;
  enum toy_type type;
  int64_t ne[4]; /* elements; ne[0] innermost */
  size_t nb[4];  /* bytes from one to the next */
  enum toy_op op;
  struct toy_tensor* src[3];
  void* data;
};

#define TOY_MAX_NODES 64

struct toy_graph {
  struct toy_tensor* nodes[TOY_MAX_NODES]; /* in execution order */
  int count;
};

/* Called after each node of a graph has been computed; its data is overwritten by the next step. */
typedef void (*toy_observer)(void* user, const struct toy_tensor* node);

struct toy_tensor* toy_new(const char* name, enum toy_type type, int64_t ne0, int64_t ne1);
/* A view of `count` rows of x from row `first`. */
struct toy_tensor* toy_rows(const char* name, struct toy_tensor* x, int64_t first, int64_t count);
struct toy_tensor* toy_mul_mat(struct toy_graph*, const char* name, struct toy_tensor* weight, struct toy_tensor* x);
struct toy_tensor* toy_rms_norm(struct toy_graph*, const char* name, struct toy_tensor* x, struct toy_tensor* weight);
struct toy_tensor* toy_silu_mul(struct toy_graph*, const char* name, struct toy_tensor* gate_value);
struct toy_tensor* toy_add(struct toy_graph*, const char* name, struct toy_tensor* a, struct toy_tensor* b);
/* [rows, heads * dim] as a view [heads, rows, dim]: nothing moves, only ne and nb change. */
struct toy_tensor* toy_split_heads(struct toy_graph*, const char* name, struct toy_tensor* x, int64_t heads);
struct toy_tensor* toy_attention(struct toy_graph*, const char* name, struct toy_tensor* q, struct toy_tensor* k,
                                 struct toy_tensor* v);
void toy_compute(struct toy_graph*, toy_observer, void* user);

float toy_get(const struct toy_tensor*, int64_t i0, int64_t i1, int64_t i2);
void toy_set(struct toy_tensor*, int64_t i0, int64_t i1, int64_t i2, float value);
size_t toy_size(enum toy_type); /* bytes of an element */

#endif
