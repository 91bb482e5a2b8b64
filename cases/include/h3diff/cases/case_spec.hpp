// A case: one reproducible problem. JSON files in cases/data/cases/NAME.json; docs/cases.md describes every key.
#pragma once
#include "h3diff/probes/graph.hpp"
#include "h3diff/probes/result.hpp"
#include "h3diff/probes/segments.hpp"
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace h3diff::cases {

// Geometry in latents. The packed order is [text | conditioning blocks | audio | video].
struct Geometry {
  std::int64_t text_rows = 0;                // all text rows, vision tokens included
  std::vector<std::int64_t> vision_rows;     // positions among the text rows that carry the video tag
  std::vector<std::string> keyframes;        // "first", "last": conditioning blocks of one latent frame each
  std::vector<std::int64_t> reference_audio; // audio latents (per channel) of each reference soundtrack
  std::int64_t latent_frames = 1, latent_height = 2, latent_width = 2;
  std::int64_t audio_latents = 1; // per channel; two channels, channel-major
};

struct WeightStyle {
  std::string dtype = "bfloat16";    // of everything but the float32 islands; "float32" for all
  std::int64_t outlier_channels = 0; // residual channels scaled up, as trained models have
  double outlier_scale = 1.0;
  std::int64_t sink_rows = 0; // leading text rows with large norm
  double sink_scale = 1.0;
};

struct CaseSpec {
  std::string name;
  std::string description;
  probes::ModelShape shape;
  Geometry geometry;
  WeightStyle weights;
  std::uint64_t seed = 0;
  int steps = 1; // evaluations
  float shift_video = 12.0f, shift_audio = 3.0f;
  std::string capture = "stats";

  static Result<CaseSpec> parse(std::string_view json, const std::string& source);
  std::string to_json() const; // round-trips
};

std::vector<std::string> case_names();               // of the data folder, sorted
Result<CaseSpec> load_case(const std::string& name); // usage error that lists the known names

// Everything the forward needs besides weights and latents; from a case's geometry.
struct PackedSequence {
  probes::SequenceLayout layout;
  std::vector<double> position_ids; // [rows, 3]: t, h, w
};
PackedSequence pack(const Geometry&, const probes::ModelShape&);

// Distinct timesteps (ascending) and each packed row's index into them, for one step.
struct RowTimesteps {
  std::vector<float> timesteps;
  std::vector<std::int64_t> indices;
};
// Conditioning rows sit at max(video_t, 0.999) (video) and 1.0 (audio); text rows at video_t.
RowTimesteps row_timesteps(const probes::SequenceLayout&, float video_t, float audio_t);

} // namespace h3diff::cases
