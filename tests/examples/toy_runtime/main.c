/* A toy runtime with h3diff's probes in it: docs/instrumenting-your-runtime.md walks through this file.
 *
 *     toy_runtime STREAM [bug]
 *
 * computes three steps of one H3-like block over a sequence of 3 text, 2 audio and 6 video rows in bfloat16, and
 * writes what its probes saw to STREAM. With `bug`, head 1 of q is negated in step 1: something to find. */
#define H3DIFF_PROBE_IMPLEMENTATION
#include "h3diff/h3diff_probe.h"
#include "toy_graph.h"

enum { HIDDEN = 16, HEADS = 2, DIM = 12, FFN = 24, ROWS = 11, STEPS = 3 };

/* ---- what is particular to this runtime: its names for our probes, and its tensors in our terms ---- */

static const struct {
  const char *ours, *probe;
} names[] = {
    {"blk.0.attn_norm", "blocks.0.norm1"},      {"blk.0.q_heads", "blocks.0.attn.q"},
    {"blk.0.k_heads", "blocks.0.attn.k"},       {"blk.0.v_heads", "blocks.0.attn.v"},
    {"blk.0.attn", "blocks.0.attn.sdpa"},       {"blk.0.attn_out", "blocks.0.attn.out_proj"},
    {"blk.0.ffn_inp", "blocks.0.residual_msa"}, {"blk.0.ffn_norm", "blocks.0.norm2"},
    {"blk.0.ffn_up", "blocks.0.mlp.fc1"},       {"blk.0.ffn_act", "blocks.0.mlp.act"},
    {"blk.0.ffn_down", "blocks.0.mlp.fc2"},     {"blk.0.out", "blocks.0.out"},
};

/* The packed sequence of this run: text rows first, then audio, then video. */
static const h3diff_row_range text_rows = {0, 3}, audio_rows = {3, 5}, video_rows = {5, ROWS};
static const h3diff_segment_rows packed[3] = {
    {H3DIFF_TEXT, &text_rows, 1}, {H3DIFF_AUDIO, &audio_rows, 1}, {H3DIFF_VIDEO, &video_rows, 1}};

/* ne[] lists the innermost dimension first and nb[] counts bytes; h3diff lists the outermost first and counts elements.
 * A node [dim, rows, heads] is read as rows x (heads, dim), however it lies in memory. */
static h3diff_tensor describe(const struct toy_tensor* node, const char* probe, int32_t step) {
  static const h3diff_tensor empty;
  h3diff_tensor t = empty;
  const int64_t item = (int64_t)toy_size(node->type);
  t.probe = probe;
  t.step = step;
  t.dtype = node->type == TOY_F32 ? H3DIFF_FLOAT32 : H3DIFF_BFLOAT16;
  t.data = node->data;
  t.ndim = 3;
  t.row_dims = 1;
  t.shape[0] = node->ne[1];
  t.strides[0] = (int64_t)node->nb[1] / item;
  t.shape[1] = node->ne[2];
  t.strides[1] = (int64_t)node->nb[2] / item;
  t.shape[2] = node->ne[0];
  t.strides[2] = (int64_t)node->nb[0] / item;
  return t;
}

struct run {
  h3diff_stream* stream;
  int32_t step;
  int bug;
  int64_t attention_calls;
};

/* Called after each node: a name that is no probe of h3diff is passed over. */
static void observe(void* user, const struct toy_tensor* node) {
  struct run* run = (struct run*)user;
  size_t i;
  if (node->op == TOY_ATTENTION) ++run->attention_calls;
  if (run->bug && run->step == 1 && strcmp(node->name, "blk.0.q_heads") == 0) {
    struct toy_tensor q = *node;
    int64_t row, d;
    for (row = 0; row < q.ne[1]; ++row)
      for (d = 0; d < q.ne[0]; ++d) toy_set(&q, d, row, 1, -toy_get(&q, d, row, 1));
  }
  for (i = 0; i < sizeof names / sizeof names[0]; ++i) {
    if (strcmp(names[i].ours, node->name) == 0) {
      h3diff_tensor t = describe(node, names[i].probe, run->step);
      t.segments = packed;
      t.segment_count = 3;
      if (h3diff_probe(run->stream, &t) != H3DIFF_OK) fprintf(stderr, "%s: %s\n", node->name, h3diff_error(run->stream));
      return;
    }
  }
}

/* ---- the model ---- */

static void fill(struct toy_tensor* t, uint32_t seed, float scale) {
  int64_t row, col;
  for (row = 0; row < t->ne[1]; ++row) {
    for (col = 0; col < t->ne[0]; ++col) {
      seed = seed * 1664525u + 1013904223u;
      toy_set(t, col, row, 0, ((float)(seed >> 8) / 8388608.0f - 1.0f) * scale);
    }
  }
}

static struct toy_tensor* weight(struct run* run, const char* probe, int64_t in, int64_t out, uint32_t seed) {
  struct toy_tensor* t = toy_new(probe, TOY_BF16, in, out);
  h3diff_tensor described;
  fill(t, seed, 0.5f);
  described = describe(t, probe, -1);
  (void)h3diff_probe(run->stream, &described); /* errors that matter stick, and h3diff_close tells them */
  return t;
}

int main(int argc, char** argv) {
  static h3diff_stream stream;
  static struct toy_graph graph;
  static const float sigmas[STEPS + 1] = {1.0f, 0.75f, 0.5f, 0.0f};
  h3diff_options options = {0};
  struct run run = {0};
  struct toy_tensor *x, *h, *q, *k, *v, *residual;
  int step;
  if (argc < 2) {
    fputs("usage: toy_runtime STREAM [bug]\n", stderr);
    return 2;
  }
  run.stream = &stream;
  run.bug = argc > 2 && strcmp(argv[2], "bug") == 0;

  /* 1. Open, and say what this run is. */
  options.steps_planned = STEPS;
  if (h3diff_open(&stream, argv[1], &options) != H3DIFF_OK) {
    fprintf(stderr, "%s: %s\n", argv[1], h3diff_error(&stream));
    return 1;
  }
  h3diff_fact_text(&stream, "producer", "toy_runtime 1");
  h3diff_fact_text(&stream, "pipeline", "toy");
  h3diff_fact_text(&stream, "compute_dtype", "bfloat16");
  h3diff_fact_text(&stream, "device", "cpu");
  h3diff_fact_int(&stream, "threads", 1);
  h3diff_fact_int(&stream, "num_layers", 1);
  h3diff_fact_int(&stream, "hidden_size", HIDDEN);
  h3diff_unobserved(&stream, "blocks.*.adaln.*", "the toy has no modulation");

  /* 2. Weights, at step -1. */
  x = toy_new("inp", TOY_BF16, HIDDEN, ROWS);
  run.step = -1;
  {
    struct toy_tensor* norm1 = weight(&run, "weights.blocks.0.norm1", HIDDEN, 1, 1);
    struct toy_tensor* qkv = weight(&run, "weights.blocks.0.attn.qkv_proj", HIDDEN, 3 * HEADS * DIM, 2);
    struct toy_tensor* wq = toy_rows("wq", qkv, 0, HEADS * DIM);
    struct toy_tensor* wk = toy_rows("wk", qkv, HEADS * DIM, HEADS * DIM);
    struct toy_tensor* wv = toy_rows("wv", qkv, 2 * HEADS * DIM, HEADS * DIM);
    struct toy_tensor* wo = weight(&run, "weights.blocks.0.attn.out_proj", HEADS * DIM, HIDDEN, 5);
    struct toy_tensor* norm2 = weight(&run, "weights.blocks.0.norm2", HIDDEN, 1, 6);
    struct toy_tensor* fc1 = weight(&run, "weights.blocks.0.mlp.fc1", HIDDEN, 2 * FFN, 7);
    struct toy_tensor* fc2 = weight(&run, "weights.blocks.0.mlp.fc2", FFN, HIDDEN, 8);
    h3diff_tensor columns = describe(fc2, "weights.blocks.0.mlp.fc2", -1);
    h3diff_columns(&stream, &columns); /* a real runtime does this for its AdaLN weights */
    h3diff_end_weights(&stream);

    h = toy_rms_norm(&graph, "blk.0.attn_norm", x, norm1);
    q = toy_split_heads(&graph, "blk.0.q_heads", toy_mul_mat(&graph, "blk.0.q", wq, h), HEADS);
    k = toy_split_heads(&graph, "blk.0.k_heads", toy_mul_mat(&graph, "blk.0.k", wk, h), HEADS);
    v = toy_split_heads(&graph, "blk.0.v_heads", toy_mul_mat(&graph, "blk.0.v", wv, h), HEADS);
    h = toy_mul_mat(&graph, "blk.0.attn_out", wo, toy_attention(&graph, "blk.0.attn", q, k, v));
    residual = toy_add(&graph, "blk.0.ffn_inp", x, h);
    h = toy_rms_norm(&graph, "blk.0.ffn_norm", residual, norm2);
    h = toy_silu_mul(&graph, "blk.0.ffn_act", toy_mul_mat(&graph, "blk.0.ffn_up", fc1, h));
    (void)toy_add(&graph, "blk.0.out", residual, toy_mul_mat(&graph, "blk.0.ffn_down", fc2, h));
  }

  /* 3. The steps. Everything is probed from the observer; the step ends once all of it has run. */
  for (step = 0; step < STEPS; ++step) {
    const double now = sigmas[step], next = sigmas[step + 1];
    run.step = step;
    fill(x, 100u + (uint32_t)step, 1.0f);
    toy_compute(&graph, observe, &run);
    h3diff_end_step(&stream, step, now, now, next, next);
  }

  /* 4. What ran, and the end. */
  h3diff_dispatch(&stream, "attention", "toy_attend", "toy_attend", run.attention_calls, 0);
  if (h3diff_close(&stream) != H3DIFF_OK) {
    fprintf(stderr, "%s: %s\n", argv[1], h3diff_error(&stream));
    return 1;
  }
  return 0;
}
