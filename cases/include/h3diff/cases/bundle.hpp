// A bundle: a folder with transformer/ (a checkpoint), inputs.safetensors (the arguments of diffusers' forward,
// by its names) and optionally case.json. docs/bundle.md.
#pragma once
#include "h3diff/cases/case_spec.hpp"
#include "h3diff/cases/checkpoint.hpp"
#include "h3diff/probes/result.hpp"
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace h3diff::cases {

// Inputs as float32 / index vectors; `*_dtype` is what the file held (values are exact in float32 or refused).
struct Inputs {
  std::vector<float> video, audio, text; // [rows, width], row-major
  probes::DType video_dtype{}, audio_dtype{}, text_dtype{};
  std::int64_t video_rows = 0, audio_rows = 0, text_rows = 0;
  std::int64_t video_width = 0, audio_width = 0, text_width = 0;
  RowTimesteps timesteps; // of step 0, as given (timesteps need not be ascending)
  PackedSequence sequence;
};

struct Bundle {
  std::string path, name; // name: last component of the path
  Inputs inputs;
  Checkpoint checkpoint;
  std::string case_name;   // "" without case.json
  std::string case_digest; // SHA-256 of inputs.safetensors, hex
  std::uint64_t seed = 0;
  bool has_case = false; // without case.json: one step at the given timesteps
  int steps = 1;
  float shift_video = 12.0f, shift_audio = 3.0f;
};

// Errors: bad_input for a missing tensor, a wrong shape or dtype, an index out of range or repeated, a tag that is
// not 0, 1 or 2, a NaN or Inf in an input; each names file, tensor and fact.
Result<Bundle> open_bundle(const std::string& path, const Checkpoint::Options&);
bool is_bundle(const std::string& path);

// The same, made in memory from a case (no files): inputs, and weights by internal name.
Inputs make_inputs(const CaseSpec&);
std::string inputs_digest(const CaseSpec&); // case_digest of the bundle that export_bundle would write
struct SyntheticWeight {
  std::string name; // internal
  std::vector<std::int64_t> shape;
  probes::DType dtype;
};
std::vector<SyntheticWeight> weight_list(const CaseSpec&); // in the graph's weight order
// Values in internal form; `out` holds elements of the weight's dtype. Part [begin, end) of the flat tensor.
void fill_weight(const CaseSpec&, const SyntheticWeight&, std::int64_t begin, std::int64_t end, void* out);

struct ExportOptions {
  std::string path;
  Layout layout = Layout::diffusers;
  std::int64_t shard_bytes = 0;                // > 0: several files and an index
  std::int64_t curve_grid = 0, curve_rank = 0; // > 0: the curve form with that table
  std::int64_t pad_columns = 0;                // > curve_rank: table and projections widened to this many columns
  std::string pad = "zero";                    // projections' new columns: "zero" or "random"; the table's are random
  bool overwrite = false;
  std::function<void(std::int64_t done, std::int64_t total)> progress; // bytes
};
// Writes a folder PATH.partial and renames it. Comfy and raw curve checkpoints carry `adaln_t_table`.
// usage error: PATH exists, curve with layout diffusers (which has no such form), pad_columns too small.
Result<void> export_bundle(const CaseSpec&, const ExportOptions&);

} // namespace h3diff::cases
