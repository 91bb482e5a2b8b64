#include "h3diff/probes/aliases.hpp"
#include "h3diff/probes/graph.hpp"

#include <gtest/gtest.h>

#include <fstream>

namespace h3diff::probes {
namespace {

const AliasTable& table(const std::string& port) {
  for (const AliasTable& candidate : builtin_aliases())
    if (candidate.port() == port)
      return candidate;
  throw std::logic_error("no table for " + port);
}

TEST(Aliases, BuiltinTables) {
  ASSERT_EQ(builtin_aliases().size(), 2U);
  const AliasTable& diffusers = table("diffusers");
  EXPECT_EQ(diffusers.canonical("transformer_blocks.12.attn.to_q"), "blocks.12.attn.q");
  EXPECT_EQ(diffusers.canonical("transformer_blocks.0.attn.to_out.0"), "blocks.0.attn.out_proj");
  EXPECT_EQ(diffusers.canonical("transformer_blocks.0.attn.to_out.0.weight"), "weights.blocks.0.attn.out_proj");
  EXPECT_EQ(diffusers.canonical("transformer_blocks.7"), "blocks.7.out");
  EXPECT_EQ(diffusers.canonical("transformer_blocks.7.ff"), "blocks.7.mlp.fc2");
  EXPECT_EQ(diffusers.canonical("token_refiner.refiner_blocks.1.ff.net.0.proj"), "token_refiner.blocks.1.mlp.fc1");
  EXPECT_EQ(diffusers.canonical("time_embedder"), "adaln.t_emb");
  EXPECT_EQ(diffusers.canonical("norm_out.linear.bias"), "weights.final_layer.adaln_proj.bias");
  const AliasTable& diffsynth = table("diffsynth");
  EXPECT_EQ(diffsynth.canonical("blocks.3.mlp"), "blocks.3.mlp.fc2");
  EXPECT_EQ(diffsynth.canonical("adaln_t_table"), "weights.adaln_t_table");
}

TEST(Aliases, ACanonicalNameIsAcceptedOnlyIfTheTableSaysSo) {
  EXPECT_EQ(table("diffsynth").canonical("blocks.3.attn.q_norm"), "blocks.3.attn.q_norm");
  EXPECT_EQ(table("diffusers").canonical("blocks.3.attn.q_norm"), std::nullopt);
}

TEST(Aliases, NumbersAreDecimalWithoutLeadingZeros) {
  for (const char* name : {"transformer_blocks..attn", "transformer_blocks.x.attn", "transformer_blocks.01.attn",
                           "transformer_blocks.1.2.attn", "transformer_blocks.-1.attn", "transformer_blocks.1.attn.",
                           "", "transformer_blocks"})
    EXPECT_EQ(table("diffusers").canonical(name), std::nullopt) << name;
  EXPECT_EQ(table("diffusers").canonical("transformer_blocks.0.attn"), "blocks.0.attn.out_proj");
}

std::string with_number(std::string text) {
  if (const auto at = text.find("{n}"); at != std::string::npos)
    text.replace(at, 3, "0");
  return text;
}

// All names of a table as the file lists them, {n} replaced by 0.
std::vector<std::string> foreign_names(const std::string& file) {
  std::ifstream in(std::string(H3DIFF_ALIASES) + "/" + file);
  std::vector<std::string> names;
  const std::string key = "\"name\": \"";
  for (std::string line; std::getline(in, line);)
    if (const auto at = line.find(key); at != std::string::npos)
      names.push_back(with_number(line.substr(at + key.size(), line.find('"', at + key.size()) - at - key.size())));
  return names;
}

TEST(Aliases, EveryNameLeadsToAProbe) {
  ModelShape shape;
  shape.num_layers = shape.num_refiner_layers = 1;
  const Graph mlp(shape);
  shape.curve_grid = 5;
  const Graph curve(shape);
  for (const char* port : {"diffusers", "diffsynth"}) {
    const std::vector<std::string> names = foreign_names(std::string(port) + ".json");
    EXPECT_GT(names.size(), 60U);
    for (const std::string& name : names) {
      const auto probe = table(port).canonical(name);
      ASSERT_TRUE(probe) << name;
      EXPECT_TRUE(mlp.find(*probe) != nullptr || curve.find(*probe) != nullptr) << name << " -> " << *probe;
    }
  }
}

TEST(Aliases, MalformedTablesNameTheFact) {
  const std::pair<const char*, const char*> cases[] = {
      {"{", "not JSON"},
      {"[]", "string 'port'"},
      {R"({"port": 3, "names": []})", "string 'port'"},
      {R"({"port": "x"})", "array 'names'"},
      {R"({"port": "x", "names": [{"name": "a"}]})", "names[0] needs"},
      {R"({"port": "x", "names": [{"name": "", "probe": "b"}]})", "empty"},
      {R"({"port": "x", "names": [{"name": "a.{n}", "probe": "b"}]})", "{n}"},
      {R"({"port": "x", "names": [{"name": "{n}{n}", "probe": "{n}{n}"}]})", "{n}"},
      {R"({"port": "x", "names": [{"name": "a", "probe": "b"}, {"name": "a", "probe": "c"}]})", "repeats 'a'"},
  };
  for (const auto& [json, fact] : cases) {
    const auto parsed = AliasTable::parse(json, "port.json");
    ASSERT_FALSE(parsed) << json;
    EXPECT_EQ(parsed.error().code, ExitCode::bad_input);
    EXPECT_NE(parsed.error().message.find("port.json"), std::string::npos);
    EXPECT_NE(parsed.error().message.find(fact), std::string::npos) << parsed.error().message;
  }
  EXPECT_FALSE(AliasTable::load("no-such-file.json"));
}

} // namespace
} // namespace h3diff::probes
