// The map from a program's tensors to probes: docs/importing.md. A map is a list of layers, its own first, then those
// that it inherits; what a nearer layer says about a name or a probe hides what the farther ones say.
#pragma once
#include "h3diff/probes/aliases.hpp"
#include "h3diff/probes/graph.hpp"
#include "import_source.hpp"
#include <nlohmann/json.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace h3diff::cases {

// What a transform may refer to besides the tensor.
struct TransformContext {
  const probes::ModelShape& shape;
  std::int64_t rows, cols; // of the probe
  const probes::SequenceLayout& layout;
  // Another tensor of the same step, for a row order; nullptr if there is none.
  std::function<const SourceTensor*(const std::string& name)> find;
};

// Parsed and checked once; acts on all parts until `concatenate` or `add` makes one of them.
struct Transform {
  std::string op;
  std::function<Flaw(std::vector<ImportTensor>&, const TransformContext&)> apply;
};

struct MapEntry {
  std::string where; // "tensors[3]"
  std::vector<std::string> names;
  std::string probe;
  std::optional<probes::Segment> segment; // the tensor holds the rows of that segment alone
  std::optional<probes::DType> compute_dtype;
  std::vector<Transform> transforms;
  bool optional = false, ignore = false, guess = false;
};

struct MapLayer {
  std::string source; // file, for messages
  bool inherited = false;
  bool reverse_dims = false; // every tensor's axes are reversed first (ggml)
  std::vector<std::string> strip_prefixes;
  std::vector<MapEntry> entries;
  const probes::AliasTable* aliases = nullptr;
};

struct ImportMap {
  std::string name;
  std::vector<MapLayer> layers;
  std::optional<probes::DType> compute_dtype;
  std::vector<std::pair<std::string, probes::DType>> compute_dtypes; // glob of probes; the last that matches decides
};

// A name without '/' and ".json" is a built-in map; "" is the empty map.
Result<ImportMap> load_map(const std::string& name_or_file);

// One probe of one step and the tensors that it is made of.
struct Assignment {
  const MapLayer* layer = nullptr; // nullptr: the tensor carries the probe's own name
  const MapEntry* entry = nullptr; // nullptr: by an alias or by its own name
  std::vector<const SourceTensor*> parts;
  std::string probe;
  std::optional<probes::Segment> segment;
  int step = 0;
};

struct Assignments {
  std::vector<Assignment> list; // in the order of the source
  std::vector<std::string> not_imported;
};
// bad_input for an absent tensor, two onto one, a probe that the model lacks, or a guess.
Result<Assignments> assign(const ImportMap&, const ImportSource&, const probes::Graph&);

// The digits that {n} stands for ("" without {n}), or nullopt where `name` does not match.
std::optional<std::string> match_pattern(std::string_view pattern, std::string_view name);
std::string fill_pattern(std::string pattern, const std::string& digits);

} // namespace h3diff::cases
