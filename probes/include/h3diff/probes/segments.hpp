// Which rows of a tensor belong to which kind of token. See docs/probes.md.
#pragma once
#include "h3diff/probes/result.hpp"
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace h3diff::probes {

// In the order in which index rows of one probe are written.
enum class Segment : std::uint8_t { all, text, vision, cond_video, cond_audio, audio, video };
std::string_view name(Segment);
std::optional<Segment> parse_segment(std::string_view);

enum class RowSpace : std::uint8_t { packed, text, video, audio, modulation, timesteps, other };

struct RowRange {
  std::int64_t begin = 0, end = 0; // half-open, rows of the tensor at hand
};

struct SegmentRows {
  Segment segment = Segment::all;
  std::vector<RowRange> ranges; // in the segment's own row order
  std::int64_t rows = 0;
};

// Empty segments are left out; order is the enum's.
using SegmentTable = std::vector<SegmentRows>;

// What the index tensors of one bundle say. Indices are positions in the packed sequence, in the order of
// the rows of input.video / input.audio / input.text. The first `cond_*_rows` of video_indices and
// audio_indices are conditioning.
struct SequenceLayout {
  std::int64_t rows = 0;
  std::vector<std::int64_t> video_indices, audio_indices, text_indices;
  std::vector<std::int32_t> token_tags; // per packed row: 0 video, 1 text, 2 audio
  std::int64_t cond_video_rows = 0, cond_audio_rows = 0;
};

// Checks index ranges, duplicates, overlaps and tag values; bad_input with the fact otherwise (no file name).
Result<void> check(const SequenceLayout&);

// Segment table of a tensor that lives in `space`. `timesteps` are the distinct timesteps as the model got
// them (any order); modulation and timestep rows are listed in ascending timestep. `other_rows` is the number
// of rows for RowSpace::other.
SegmentTable segment_table(const SequenceLayout&, RowSpace space, std::span<const float> timesteps,
                           std::int64_t other_rows = 0);

} // namespace h3diff::probes
