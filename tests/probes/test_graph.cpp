#include "h3diff/probes/graph.hpp"

#include <gtest/gtest.h>

#include <set>

namespace h3diff::probes {
namespace {

ModelShape one_of_each(bool curve) {
  ModelShape shape;
  shape.num_layers = 1;
  shape.num_refiner_layers = 1;
  shape.hidden_size = 84;
  shape.num_attention_heads = 4;
  shape.attention_head_dim = 32;
  shape.ffn_dim = 224;
  shape.text_dim = 40;
  shape.freq_dim = 16;
  shape.time_embed_hidden_dim = 48;
  shape.time_embed_dim = 24;
  shape.rope_freq_dim = 4;
  if (curve) {
    shape.curve_grid = 65;
    shape.time_embed_dim = 8;
  }
  return shape;
}

std::string names(const Graph& graph) {
  std::string out;
  for (const ProbeInfo& info : graph.probes())
    out += info.name + "\n";
  return out;
}

std::string lines(std::initializer_list<std::string> names) {
  std::string out;
  for (const std::string& name : names)
    out += name + "\n";
  return out;
}

std::string trunk_weights(const std::string& block) {
  const std::string w = "weights." + block;
  return lines({w + ".norm1", w + ".attn.qkv_proj", w + ".attn.q_norm", w + ".attn.k_norm", w + ".attn.out_proj",
                w + ".norm2", w + ".mlp.fc1", w + ".mlp.fc2"});
}

std::string expected(bool curve) {
  return lines({"weights.video_patch_proj", "weights.video_patch_proj.bias", "weights.audio_patch_proj",
                "weights.audio_patch_proj.bias", "weights.condition_proj", "weights.condition_proj.bias"}) +
         trunk_weights("token_refiner.blocks.0") +
         lines({"weights.token_refiner.final_norm", "weights.rope.inv_freq"}) +
         (curve ? lines({"weights.adaln_t_table"})
                : lines({"weights.time_embedder.proj_in", "weights.time_embedder.proj_in.bias",
                         "weights.time_embedder.proj_out", "weights.time_embedder.proj_out.bias"})) +
         lines({"weights.blocks.0.adaln_proj", "weights.blocks.0.adaln_proj.bias"}) + trunk_weights("blocks.0") +
         lines({"weights.final_layer.adaln_proj",
                "weights.final_layer.adaln_proj.bias",
                "weights.final_layer.norm",
                "weights.final_layer.video_out",
                "weights.final_layer.video_out.bias",
                "weights.final_layer.audio_out",
                "weights.final_layer.audio_out.bias",
                "input.video",
                "input.audio",
                "input.text",
                "input.timestep",
                "input.timestep_indices",
                "input.token_tags",
                "input.position_ids",
                "rope.cos",
                "rope.sin",
                "video_patch_proj",
                "audio_patch_proj",
                "condition_proj",
                "token_refiner.blocks.0.norm1",
                "token_refiner.blocks.0.attn.q",
                "token_refiner.blocks.0.attn.k",
                "token_refiner.blocks.0.attn.v",
                "token_refiner.blocks.0.attn.q_norm",
                "token_refiner.blocks.0.attn.k_norm",
                "token_refiner.blocks.0.attn.sdpa",
                "token_refiner.blocks.0.attn.out_proj",
                "token_refiner.blocks.0.residual_msa",
                "token_refiner.blocks.0.norm2",
                "token_refiner.blocks.0.mlp.fc1",
                "token_refiner.blocks.0.mlp.act",
                "token_refiner.blocks.0.mlp.fc2",
                "token_refiner.blocks.0.out",
                "token_refiner.final_norm",
                "packed"}) +
         (curve ? "" : lines({"time_embedder.sinusoid", "time_embedder.proj_in", "time_embedder.act"})) +
         lines({"adaln.t_emb",
                "blocks.0.adaln.input",
                "blocks.0.adaln.shift_msa",
                "blocks.0.adaln.scale_msa",
                "blocks.0.adaln.gate_msa",
                "blocks.0.adaln.shift_mlp",
                "blocks.0.adaln.scale_mlp",
                "blocks.0.adaln.gate_mlp",
                "blocks.0.norm1",
                "blocks.0.mod_msa",
                "blocks.0.attn.q",
                "blocks.0.attn.k",
                "blocks.0.attn.v",
                "blocks.0.attn.q_norm",
                "blocks.0.attn.k_norm",
                "blocks.0.attn.q_rope",
                "blocks.0.attn.k_rope",
                "blocks.0.attn.sdpa",
                "blocks.0.attn.out_proj",
                "blocks.0.residual_msa",
                "blocks.0.norm2",
                "blocks.0.mod_mlp",
                "blocks.0.mlp.fc1",
                "blocks.0.mlp.act",
                "blocks.0.mlp.fc2",
                "blocks.0.out",
                "final.adaln.input",
                "final.adaln.shift",
                "final.adaln.scale",
                "final.norm",
                "final.mod",
                "pred.video",
                "pred.audio",
                "latent.video",
                "latent.audio"});
}

TEST(Graph, ListsProbesInTheDocumentedOrder) { EXPECT_EQ(names(Graph(one_of_each(false))), expected(false)); }

TEST(Graph, CurveFormHasATableInsteadOfATimeEmbedder) {
  const Graph graph(one_of_each(true));
  EXPECT_EQ(names(graph), expected(true));
  EXPECT_EQ(graph.find("adaln.t_emb")->op, "adaln_curve");
  EXPECT_EQ(graph.find("weights.adaln_t_table")->rows, 65);
  EXPECT_EQ(graph.find("weights.adaln_t_table")->cols, 8);
  EXPECT_EQ(graph.find("weights.blocks.0.adaln_proj")->cols, 8);
  EXPECT_EQ(Graph(one_of_each(false)).find("adaln.t_emb")->op, "linear");
}

TEST(Graph, EveryInputStandsBeforeItsProbe) {
  ModelShape shape = one_of_each(false);
  shape.num_layers = 3;
  shape.num_refiner_layers = 2;
  for (const bool curve : {false, true}) {
    shape.curve_grid = curve ? 65 : 0;
    const Graph graph(shape);
    std::set<std::string> seen;
    for (const ProbeInfo& info : graph.probes()) {
      EXPECT_TRUE(seen.insert(info.name).second) << info.name;
      EXPECT_FALSE(info.meaning.empty()) << info.name;
      EXPECT_GT(info.cols, 0) << info.name;
      EXPECT_LE(info.name.size(), 80U);
      for (const ProbeInput& input : info.inputs) {
        ASSERT_NE(graph.find(input.probe), nullptr) << info.name << " <- " << input.probe;
        if (input.previous_step)
          EXPECT_GT(graph.position(input.probe), graph.position(info.name));
        else
          EXPECT_LT(graph.position(input.probe), graph.position(info.name)) << info.name << " <- " << input.probe;
      }
    }
  }
}

TEST(Graph, ShapesFollowTheModel) {
  const Graph graph{ModelShape{}};
  const auto shape = [&](const char* probe) {
    const ProbeInfo* info = graph.find(probe);
    return info == nullptr ? std::pair<std::int64_t, std::int64_t>{-1, -1} : std::pair{info->rows, info->cols};
  };
  using P = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(shape("weights.blocks.49.adaln_proj"), P(96768, 2688));
  EXPECT_EQ(shape("weights.blocks.49.adaln_proj.bias"), P(1, 96768));
  EXPECT_EQ(shape("weights.final_layer.adaln_proj"), P(10752, 2688));
  EXPECT_EQ(shape("weights.blocks.0.attn.qkv_proj"), P(21504, 5376));
  EXPECT_EQ(shape("weights.blocks.0.attn.out_proj"), P(5376, 7168));
  EXPECT_EQ(shape("weights.blocks.0.mlp.fc1"), P(28672, 5376));
  EXPECT_EQ(shape("weights.token_refiner.blocks.1.mlp.fc2"), P(5376, 14336));
  EXPECT_EQ(shape("weights.blocks.0.attn.q_norm"), P(1, 128));
  EXPECT_EQ(shape("weights.rope.inv_freq"), P(1, 16));
  EXPECT_EQ(shape("weights.video_patch_proj"), P(5376, 96));
  EXPECT_EQ(shape("weights.time_embedder.proj_out"), P(2688, 5376));
  EXPECT_EQ(shape("rope.cos"), P(0, 96));
  EXPECT_EQ(shape("blocks.0.attn.sdpa"), P(0, 7168));
  EXPECT_EQ(shape("blocks.0.mlp.fc1"), P(0, 28672));
  EXPECT_EQ(shape("pred.audio"), P(0, 32));
  EXPECT_EQ(shape("input.timestep"), P(0, 1));
}

TEST(Graph, MarksBlocksWeightsAndPerColumnWeights) {
  const Graph graph(one_of_each(true));
  std::set<std::string> per_column;
  for (const ProbeInfo& info : graph.probes())
    if (info.per_column)
      per_column.insert(info.name);
  EXPECT_EQ(per_column, (std::set<std::string>{"weights.adaln_t_table", "weights.blocks.0.adaln_proj",
                                               "weights.final_layer.adaln_proj"}));
  EXPECT_EQ(graph.find("blocks.0.mlp.act")->block, 0);
  EXPECT_EQ(graph.find("weights.blocks.0.norm1")->block, 0);
  EXPECT_EQ(graph.find("token_refiner.blocks.0.out")->block, -1);
  EXPECT_EQ(graph.find("final.mod")->block, -1);
  EXPECT_TRUE(graph.find("weights.rope.inv_freq")->weight);
  EXPECT_FALSE(graph.find("rope.cos")->weight);
  EXPECT_EQ(graph.find("blocks.1.out"), nullptr);
  EXPECT_EQ(graph.position("nothing"), -1);
}

TEST(Graph, AttentionDependsOnEverySegment) {
  const Graph graph(one_of_each(false));
  for (const ProbeInfo& info : graph.probes())
    for (const ProbeInput& input : info.inputs)
      EXPECT_EQ(input.all_segments, info.op == "attention") << info.name;
}

TEST(Graph, StreamRunsThroughTheBlocks) {
  ModelShape shape = one_of_each(false);
  shape.num_layers = 2;
  const Graph graph(shape);
  EXPECT_EQ(graph.find("blocks.0.norm1")->inputs[0].probe, "packed");
  EXPECT_EQ(graph.find("blocks.1.norm1")->inputs[0].probe, "blocks.0.out");
  EXPECT_EQ(graph.find("blocks.1.residual_msa")->inputs[0].probe, "blocks.0.out");
  EXPECT_EQ(graph.find("final.norm")->inputs[0].probe, "blocks.1.out");
  EXPECT_TRUE(graph.find("input.video")->inputs[0].previous_step);
}

TEST(Graph, InputSegmentBetweenSpaces) {
  EXPECT_EQ(input_segment(Segment::vision, RowSpace::modulation), Segment::video);
  EXPECT_EQ(input_segment(Segment::cond_video, RowSpace::modulation), Segment::video);
  EXPECT_EQ(input_segment(Segment::cond_audio, RowSpace::modulation), Segment::audio);
  EXPECT_EQ(input_segment(Segment::text, RowSpace::modulation), Segment::text);
  EXPECT_EQ(input_segment(Segment::cond_video, RowSpace::packed), Segment::cond_video);
  EXPECT_EQ(input_segment(Segment::cond_video, RowSpace::video), Segment::cond_video);
  EXPECT_EQ(input_segment(Segment::video, RowSpace::text), Segment::all);
  EXPECT_EQ(input_segment(Segment::vision, RowSpace::text), Segment::vision);
  EXPECT_EQ(input_segment(Segment::video, RowSpace::timesteps), Segment::all);
  EXPECT_EQ(input_segment(Segment::video, RowSpace::other), Segment::all);
}

TEST(Graph, GlobMatch) {
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("blocks.*.out", "blocks.12.out"));
  EXPECT_TRUE(glob_match("*.q*", "blocks.0.attn.q_norm"));
  EXPECT_TRUE(glob_match("blocks.?.out", "blocks.3.out"));
  EXPECT_TRUE(glob_match("**a*b", "xaabb"));
  EXPECT_FALSE(glob_match("blocks.?.out", "blocks.12.out"));
  EXPECT_FALSE(glob_match("blocks.*.out", "blocks.12.outer"));
  EXPECT_FALSE(glob_match("", "a"));
  EXPECT_TRUE(glob_match("", ""));
  const std::string many(2000, 'a'); // no exponential time
  EXPECT_FALSE(glob_match("*a*a*a*a*a*a*a*a*b", many));
}

} // namespace
} // namespace h3diff::probes
