#include "h3diff/probes/segments.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace h3diff::probes {
namespace {

// Packed order: text, vision, text | cond video, video (not ascending) | cond audio, audio.
SequenceLayout layout() {
  SequenceLayout out;
  out.rows = 10;
  out.text_indices = {0, 1, 2};
  out.video_indices = {3, 9, 8, 4};
  out.audio_indices = {5, 6, 7};
  out.token_tags = {1, 0, 1, 0, 0, 2, 2, 2, 0, 0};
  out.cond_video_rows = 1;
  out.cond_audio_rows = 2;
  return out;
}

std::vector<std::int64_t> rows(const SegmentTable& table, Segment segment) {
  std::vector<std::int64_t> out;
  for (const SegmentRows& part : table)
    if (part.segment == segment) {
      for (const RowRange& range : part.ranges)
        for (std::int64_t row = range.begin; row < range.end; ++row)
          out.push_back(row);
      EXPECT_EQ(static_cast<std::int64_t>(out.size()), part.rows);
    }
  return out;
}

using Rows = std::vector<std::int64_t>;

TEST(Segments, PackedRowsAreInSequenceOrder) {
  ASSERT_TRUE(check(layout()));
  const SegmentTable table = segment_table(layout(), RowSpace::packed, {});
  EXPECT_EQ(rows(table, Segment::text), (Rows{0, 2}));
  EXPECT_EQ(rows(table, Segment::vision), (Rows{1}));
  EXPECT_EQ(rows(table, Segment::cond_video), (Rows{3}));
  EXPECT_EQ(rows(table, Segment::cond_audio), (Rows{5, 6}));
  EXPECT_EQ(rows(table, Segment::audio), (Rows{7}));
  EXPECT_EQ(rows(table, Segment::video), (Rows{4, 8, 9}));
  ASSERT_EQ(table.size(), 6U);
  for (std::size_t i = 1; i < table.size(); ++i)
    EXPECT_LT(table[i - 1].segment, table[i].segment);
  EXPECT_EQ(table.back().ranges.size(), 2U); // 4 and 8..9
}

TEST(Segments, RowsOfAModalityFollowTheSequenceNotTheTensor) {
  const SegmentTable video = segment_table(layout(), RowSpace::video, {});
  EXPECT_EQ(rows(video, Segment::cond_video), (Rows{0}));
  EXPECT_EQ(rows(video, Segment::video), (Rows{3, 2, 1}));
  EXPECT_EQ(rows(segment_table(layout(), RowSpace::audio, {}), Segment::cond_audio), (Rows{0, 1}));
  const SegmentTable text = segment_table(layout(), RowSpace::text, {});
  EXPECT_EQ(rows(text, Segment::text), (Rows{0, 2}));
  EXPECT_EQ(rows(text, Segment::vision), (Rows{1}));
}

TEST(Segments, EmptySegmentsAreLeftOutAndContiguousRowsMerged) {
  SequenceLayout plain = layout();
  plain.token_tags[1] = 1;
  plain.cond_video_rows = plain.cond_audio_rows = 0;
  plain.video_indices = {3, 4, 8, 9};
  const SegmentTable table = segment_table(plain, RowSpace::video, {});
  ASSERT_EQ(table.size(), 1U);
  ASSERT_EQ(table[0].ranges.size(), 1U);
  EXPECT_EQ(table[0].ranges[0].end, 4);
}

TEST(Segments, ModulationsAreTagsInAscendingTimestep) {
  const std::vector<float> timesteps = {0.9F, 0.1F, 1.0F};
  const SegmentTable table = segment_table(layout(), RowSpace::modulation, timesteps);
  EXPECT_EQ(rows(table, Segment::text), (Rows{4, 1, 7}));
  EXPECT_EQ(rows(table, Segment::audio), (Rows{5, 2, 8}));
  EXPECT_EQ(rows(table, Segment::video), (Rows{3, 0, 6}));
  EXPECT_EQ(rows(segment_table(layout(), RowSpace::timesteps, timesteps), Segment::all), (Rows{1, 0, 2}));
  EXPECT_EQ(rows(segment_table(layout(), RowSpace::other, {}, 5), Segment::all), (Rows{0, 1, 2, 3, 4}));
  EXPECT_TRUE(segment_table(layout(), RowSpace::other, {}, 0).empty());
}

TEST(Segments, NanTimestepsGoLast) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> timesteps = {nan, 0.5F, nan, 0.1F};
  EXPECT_EQ(rows(segment_table(layout(), RowSpace::timesteps, timesteps), Segment::all), (Rows{3, 1, 0, 2}));
}

TEST(Segments, NamesRoundTrip) {
  for (const char* text : {"all", "text", "vision", "cond_video", "cond_audio", "audio", "video"})
    EXPECT_EQ(name(*parse_segment(text)), text);
  EXPECT_FALSE(parse_segment("Video"));
}

struct BadLayout {
  const char* fact;
  void (*break_it)(SequenceLayout&);
};

TEST(Segments, CheckNamesTheFact) {
  const BadLayout cases[] = {
      {"video_indices[1] is 10, outside a sequence of 10 rows", [](SequenceLayout& l) { l.video_indices[1] = 10; }},
      {"audio_indices[0] is -1, outside", [](SequenceLayout& l) { l.audio_indices[0] = -1; }},
      {"video_indices[1] repeats row 3", [](SequenceLayout& l) { l.video_indices[1] = 3; }},
      {"text_indices[0] is row 3, which video_indices has", [](SequenceLayout& l) { l.text_indices[0] = 3; }},
      {"row 2 of the sequence is in none", [](SequenceLayout& l) { l.text_indices.pop_back(); }},
      {"token_tags[4] is 3", [](SequenceLayout& l) { l.token_tags[4] = 3; }},
      {"token_tags has 9 entries for a sequence of 10", [](SequenceLayout& l) { l.token_tags.pop_back(); }},
      {"cond_video_rows is 5, but video_indices has 4", [](SequenceLayout& l) { l.cond_video_rows = 5; }},
      {"cond_audio_rows is -1", [](SequenceLayout& l) { l.cond_audio_rows = -1; }},
  };
  for (const BadLayout& bad : cases) {
    SequenceLayout broken = layout();
    bad.break_it(broken);
    const auto result = check(broken);
    ASSERT_FALSE(result) << bad.fact;
    EXPECT_EQ(result.error().code, ExitCode::bad_input);
    EXPECT_NE(result.error().message.find(bad.fact), std::string::npos) << result.error().message;
  }
}

} // namespace
} // namespace h3diff::probes
