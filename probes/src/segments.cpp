#include "h3diff/probes/segments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

namespace h3diff::probes {
namespace {

constexpr std::array<std::string_view, 7> segment_names = {"all",        "text",  "vision", "cond_video",
                                                           "cond_audio", "audio", "video"};

// Row of the tensor at hand and its place in the packed sequence.
struct Placed {
  std::int64_t row = 0, position = 0;
  Segment segment = Segment::all;
};

std::vector<Placed> place_text(const SequenceLayout& layout) {
  std::vector<Placed> rows;
  for (std::size_t i = 0; i < layout.text_indices.size(); ++i) {
    const std::int64_t position = layout.text_indices[i];
    const bool vision = layout.token_tags[static_cast<std::size_t>(position)] == 0;
    rows.push_back({static_cast<std::int64_t>(i), position, vision ? Segment::vision : Segment::text});
  }
  return rows;
}

std::vector<Placed> place_media(const std::vector<std::int64_t>& indices, std::int64_t conditioning,
                                Segment conditioned, Segment target) {
  std::vector<Placed> rows;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    rows.push_back({row, indices[i], row < conditioning ? conditioned : target});
  }
  return rows;
}

std::vector<Placed> place_video(const SequenceLayout& layout) {
  return place_media(layout.video_indices, layout.cond_video_rows, Segment::cond_video, Segment::video);
}

std::vector<Placed> place_audio(const SequenceLayout& layout) {
  return place_media(layout.audio_indices, layout.cond_audio_rows, Segment::cond_audio, Segment::audio);
}

void append_row(SegmentRows& segment, std::int64_t row) {
  if (!segment.ranges.empty() && segment.ranges.back().end == row)
    segment.ranges.back().end = row + 1;
  else
    segment.ranges.push_back({row, row + 1});
  ++segment.rows;
}

SegmentTable collect(std::vector<Placed> rows) {
  std::sort(rows.begin(), rows.end(), [](const Placed& a, const Placed& b) { return a.position < b.position; });
  std::array<SegmentRows, segment_names.size()> segments;
  for (const Placed& placed : rows)
    append_row(segments[static_cast<std::size_t>(placed.segment)], placed.row);
  SegmentTable table;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    segments[i].segment = static_cast<Segment>(i);
    if (segments[i].rows > 0)
      table.push_back(std::move(segments[i]));
  }
  return table;
}

std::vector<std::int64_t> ascending(std::span<const float> timesteps) {
  std::vector<std::int64_t> order(timesteps.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  // NaN goes last: std::sort needs a strict weak order, and a bad timestep must still be shown.
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    const float x = timesteps[static_cast<std::size_t>(a)], y = timesteps[static_cast<std::size_t>(b)];
    return std::isnan(y) ? !std::isnan(x) : x < y;
  });
  return order;
}

SegmentTable modulation_table(std::span<const float> timesteps) {
  SegmentTable table;
  if (timesteps.empty())
    return table;
  constexpr std::pair<Segment, std::int64_t> tags[] = {{Segment::text, 1}, {Segment::audio, 2}, {Segment::video, 0}};
  for (const auto& [segment, tag] : tags) {
    SegmentRows& rows = table.emplace_back();
    rows.segment = segment;
    for (const std::int64_t t : ascending(timesteps))
      append_row(rows, t * 3 + tag);
  }
  return table;
}

SegmentTable whole(SegmentRows rows) {
  SegmentTable table;
  if (rows.rows > 0)
    table.push_back(std::move(rows));
  return table;
}

} // namespace

std::string_view name(Segment segment) { return segment_names[static_cast<std::size_t>(segment)]; }

std::optional<Segment> parse_segment(std::string_view text) {
  for (std::size_t i = 0; i < segment_names.size(); ++i)
    if (segment_names[i] == text)
      return static_cast<Segment>(i);
  return std::nullopt;
}

Result<void> check(const SequenceLayout& layout) {
  if (layout.rows < 0 || static_cast<std::size_t>(layout.rows) != layout.token_tags.size())
    return bad_input(
        fmt::format("token_tags has {} entries for a sequence of {} rows", layout.token_tags.size(), layout.rows));
  for (std::size_t i = 0; i < layout.token_tags.size(); ++i)
    if (layout.token_tags[i] < 0 || layout.token_tags[i] > 2)
      return bad_input(
          fmt::format("token_tags[{}] is {}; tags are 0 (video), 1 (text) and 2 (audio)", i, layout.token_tags[i]));

  std::vector<const char*> owner(static_cast<std::size_t>(layout.rows), nullptr);
  const std::pair<const char*, const std::vector<std::int64_t>*> lists[] = {{"video_indices", &layout.video_indices},
                                                                            {"audio_indices", &layout.audio_indices},
                                                                            {"text_indices", &layout.text_indices}};
  for (const auto& [list, indices] : lists) {
    for (std::size_t i = 0; i < indices->size(); ++i) {
      const std::int64_t at = (*indices)[i];
      if (at < 0 || at >= layout.rows)
        return bad_input(fmt::format("{}[{}] is {}, outside a sequence of {} rows", list, i, at, layout.rows));
      const char*& taken = owner[static_cast<std::size_t>(at)];
      if (taken == list)
        return bad_input(fmt::format("{}[{}] repeats row {}", list, i, at));
      if (taken != nullptr)
        return bad_input(fmt::format("{}[{}] is row {}, which {} has already", list, i, at, taken));
      taken = list;
    }
  }
  for (std::size_t i = 0; i < owner.size(); ++i)
    if (owner[i] == nullptr)
      return bad_input(
          fmt::format("row {} of the sequence is in none of video_indices, audio_indices, text_indices", i));

  const auto cond = [](const char* what, std::int64_t rows, const char* list, std::size_t size) -> Result<void> {
    if (rows < 0 || rows > static_cast<std::int64_t>(size))
      return bad_input(fmt::format("{} is {}, but {} has {} entries", what, rows, list, size));
    return {};
  };
  if (auto ok = cond("cond_video_rows", layout.cond_video_rows, "video_indices", layout.video_indices.size()); !ok)
    return ok;
  return cond("cond_audio_rows", layout.cond_audio_rows, "audio_indices", layout.audio_indices.size());
}

SegmentTable segment_table(const SequenceLayout& layout, RowSpace space, std::span<const float> timesteps,
                           std::int64_t other_rows) {
  switch (space) {
  case RowSpace::text: return collect(place_text(layout));
  case RowSpace::video: return collect(place_video(layout));
  case RowSpace::audio: return collect(place_audio(layout));
  case RowSpace::packed: {
    std::vector<Placed> rows = place_text(layout);
    for (const auto& part : {place_video(layout), place_audio(layout)})
      rows.insert(rows.end(), part.begin(), part.end());
    for (Placed& placed : rows)
      placed.row = placed.position;
    return collect(std::move(rows));
  }
  case RowSpace::modulation: return modulation_table(timesteps);
  case RowSpace::timesteps: {
    SegmentRows rows;
    for (const std::int64_t t : ascending(timesteps))
      append_row(rows, t);
    return whole(std::move(rows));
  }
  case RowSpace::other: break;
  }
  SegmentRows rows;
  rows.ranges = {{0, other_rows}};
  rows.rows = other_rows;
  return whole(std::move(rows));
}

} // namespace h3diff::probes
