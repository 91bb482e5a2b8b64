#include "toy_graph.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static union {
  double align;
  unsigned char bytes[1 << 20];
} arena;
static size_t arena_used;

static void* toy_alloc(size_t size) {
  void* at = arena.bytes + arena_used;
  arena_used += (size + 15) / 16 * 16;
  if (arena_used > sizeof arena.bytes) {
    fputs("the toy's arena is full\n", stderr);
    exit(1);
  }
  return at;
}

size_t toy_size(enum toy_type type) { return type == TOY_F32 ? 4 : 2; }

static unsigned char* toy_at(const struct toy_tensor* t, int64_t i0, int64_t i1, int64_t i2) {
  return (unsigned char*)t->data + (size_t)i0 * t->nb[0] + (size_t)i1 * t->nb[1] + (size_t)i2 * t->nb[2];
}

float toy_get(const struct toy_tensor* t, int64_t i0, int64_t i1, int64_t i2) {
  uint32_t bits = 0;
  float value;
  if (t->type == TOY_F32) {
    memcpy(&bits, toy_at(t, i0, i1, i2), 4);
  } else {
    uint16_t half;
    memcpy(&half, toy_at(t, i0, i1, i2), 2);
    bits = (uint32_t)half << 16;
  }
  memcpy(&value, &bits, 4);
  return value;
}

void toy_set(struct toy_tensor* t, int64_t i0, int64_t i1, int64_t i2, float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  if (t->type == TOY_F32) {
    memcpy(toy_at(t, i0, i1, i2), &bits, 4);
  } else { /* round to nearest even */
    const uint16_t half = (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
    memcpy(toy_at(t, i0, i1, i2), &half, 2);
  }
}

struct toy_tensor* toy_new(const char* name, enum toy_type type, int64_t ne0, int64_t ne1) {
  struct toy_tensor* t = (struct toy_tensor*)toy_alloc(sizeof *t);
  memset(t, 0, sizeof *t);
  t->name = name;
  t->type = type;
  t->ne[0] = ne0;
  t->ne[1] = ne1;
  t->ne[2] = t->ne[3] = 1;
  t->nb[0] = toy_size(type);
  t->nb[1] = t->nb[0] * (size_t)ne0;
  t->nb[2] = t->nb[3] = t->nb[1] * (size_t)ne1;
  t->data = toy_alloc(t->nb[2]);
  memset(t->data, 0, t->nb[2]);
  return t;
}

struct toy_tensor* toy_rows(const char* name, struct toy_tensor* x, int64_t first, int64_t count) {
  struct toy_tensor* t = (struct toy_tensor*)toy_alloc(sizeof *t);
  *t = *x;
  t->name = name;
  t->ne[1] = count;
  t->data = (unsigned char*)x->data + (size_t)first * x->nb[1];
  return t;
}

static struct toy_tensor* toy_node(struct toy_graph* graph, struct toy_tensor* t, enum toy_op op, struct toy_tensor* a,
                                   struct toy_tensor* b, struct toy_tensor* c) {
  t->op = op;
  t->src[0] = a;
  t->src[1] = b;
  t->src[2] = c;
  graph->nodes[graph->count++] = t;
  return t;
}

struct toy_tensor* toy_mul_mat(struct toy_graph* g, const char* name, struct toy_tensor* w, struct toy_tensor* x) {
  return toy_node(g, toy_new(name, x->type, w->ne[1], x->ne[1]), TOY_MUL_MAT, w, x, NULL);
}
struct toy_tensor* toy_rms_norm(struct toy_graph* g, const char* name, struct toy_tensor* x, struct toy_tensor* w) {
  return toy_node(g, toy_new(name, x->type, x->ne[0], x->ne[1]), TOY_RMS_NORM, x, w, NULL);
}
struct toy_tensor* toy_silu_mul(struct toy_graph* g, const char* name, struct toy_tensor* x) {
  return toy_node(g, toy_new(name, x->type, x->ne[0] / 2, x->ne[1]), TOY_SILU_MUL, x, NULL, NULL);
}
struct toy_tensor* toy_add(struct toy_graph* g, const char* name, struct toy_tensor* a, struct toy_tensor* b) {
  return toy_node(g, toy_new(name, a->type, a->ne[0], a->ne[1]), TOY_ADD, a, b, NULL);
}
struct toy_tensor* toy_split_heads(struct toy_graph* g, const char* name, struct toy_tensor* x, int64_t heads) {
  struct toy_tensor* t = (struct toy_tensor*)toy_alloc(sizeof *t);
  *t = *x;
  t->name = name;
  t->ne[0] = x->ne[0] / heads;
  t->ne[1] = x->ne[1];
  t->ne[2] = heads;
  t->nb[2] = x->nb[0] * (size_t)t->ne[0];
  return toy_node(g, t, TOY_PERMUTE, x, NULL, NULL);
}
struct toy_tensor* toy_attention(struct toy_graph* g, const char* name, struct toy_tensor* q, struct toy_tensor* k,
                                 struct toy_tensor* v) {
  return toy_node(g, toy_new(name, q->type, q->ne[0] * q->ne[2], q->ne[1]), TOY_ATTENTION, q, k, v);
}

static void toy_attend(struct toy_tensor* out) {
  const struct toy_tensor *q = out->src[0], *k = out->src[1], *v = out->src[2];
  const int64_t dim = q->ne[0], rows = q->ne[1];
  int64_t head, row, other, d;
  float weight[64];
  for (head = 0; head < q->ne[2]; ++head) {
    for (row = 0; row < rows; ++row) {
      float total = 0;
      for (other = 0; other < rows; ++other) {
        float dot = 0;
        for (d = 0; d < dim; ++d) dot += toy_get(q, d, row, head) * toy_get(k, d, other, head);
        weight[other] = expf(dot / sqrtf((float)dim));
        total += weight[other];
      }
      for (d = 0; d < dim; ++d) {
        float sum = 0;
        for (other = 0; other < rows; ++other) sum += weight[other] * toy_get(v, d, other, head);
        toy_set(out, head * dim + d, row, 0, sum / total);
      }
    }
  }
}

static void toy_compute_node(struct toy_tensor* t) {
  const struct toy_tensor *a = t->src[0], *b = t->src[1];
  int64_t row, col, i;
  if (t->op == TOY_PERMUTE) return; /* a view */
  if (t->op == TOY_ATTENTION) {
    toy_attend(t);
    return;
  }
  for (row = 0; row < t->ne[1]; ++row) {
    float scale = 0;
    if (t->op == TOY_RMS_NORM) {
      for (i = 0; i < a->ne[0]; ++i) scale += toy_get(a, i, row, 0) * toy_get(a, i, row, 0);
      scale = 1.0f / sqrtf(scale / (float)a->ne[0] + 1e-5f);
    }
    for (col = 0; col < t->ne[0]; ++col) {
      float value = 0;
      if (t->op == TOY_MUL_MAT)
        for (i = 0; i < a->ne[0]; ++i) value += toy_get(a, i, col, 0) * toy_get(b, i, row, 0);
      if (t->op == TOY_RMS_NORM) value = toy_get(a, col, row, 0) * scale * toy_get(b, col, 0, 0);
      if (t->op == TOY_ADD) value = toy_get(a, col, row, 0) + toy_get(b, col, row, 0);
      if (t->op == TOY_SILU_MUL) {
        const float gate = toy_get(a, col, row, 0);
        value = gate / (1.0f + expf(-gate)) * toy_get(a, t->ne[0] + col, row, 0);
      }
      toy_set(t, col, row, 0, value);
    }
  }
}

void toy_compute(struct toy_graph* graph, toy_observer observer, void* user) {
  int i;
  for (i = 0; i < graph->count; ++i) {
    toy_compute_node(graph->nodes[i]);
    if (observer != NULL) observer(user, graph->nodes[i]);
  }
}
