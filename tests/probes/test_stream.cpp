// The probe stream: what the C header writes is what the library reads, and what was cut off or damaged is told.
#include "h3diff/h3diff_probe.h"
#include "h3diff/probes/stream.hpp"
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <unistd.h>

extern std::atomic<std::size_t> largest_allocation; // test_stream_allocations.cpp

namespace {

using namespace h3diff;
using namespace h3diff::probes;
namespace fs = std::filesystem;
using Bytes = std::vector<unsigned char>;

class Folder {
public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "h3diff-stream-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

private:
  fs::path path_;
};

std::uint32_t crc32(const Bytes& bytes, std::size_t begin, std::size_t end) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (std::size_t i = begin; i < end; ++i) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; ++bit)
      crc = crc >> 1 ^ (crc & 1) * 0xEDB88320u;
  }
  return ~crc;
}

template <class T> T at(const Bytes& bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, &bytes[offset], sizeof value);
  return value;
}
template <class T> void put(Bytes& bytes, T value) {
  const auto* from = reinterpret_cast<const unsigned char*>(&value);
  bytes.insert(bytes.end(), from, from + sizeof value);
}
template <class T> void put_at(Bytes& bytes, std::size_t offset, T value) {
  std::memcpy(&bytes[offset], &value, sizeof value);
}

Bytes load(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void save(const std::string& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

// Offsets of all records and of the end, read by docs/stream-format.md alone.
std::vector<std::size_t> record_offsets(const Bytes& bytes) {
  std::vector<std::size_t> out{16};
  while (out.back() < bytes.size()) {
    const std::size_t begin = out.back(), end = begin + 8 + at<std::uint32_t>(bytes, begin + 4);
    EXPECT_LE(end + 4, bytes.size());
    EXPECT_EQ(at<std::uint32_t>(bytes, end), crc32(bytes, begin, end)) << "record at " << begin;
    out.push_back(end + 4);
  }
  return out;
}
std::string tag_at(const Bytes& bytes, std::size_t offset) {
  const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(offset);
  return {begin, begin + 4};
}

std::uint64_t next(std::uint64_t& state) { // splitmix64
  std::uint64_t z = state += 0x9E3779B97F4A7C15;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
  z = (z ^ z >> 27) * 0x94D049BB133111EB;
  return z ^ z >> 31;
}

constexpr std::int64_t rows = 90, cols = 40;
const RowRange text{0, 7}, audio{7, 20}, video_front{20, 60}, video_back{70, 90};

// The values of a probe, finite in every dtype.
Bytes content(DType dtype, int seed) {
  Bytes out(static_cast<std::size_t>(rows * cols) * item_size(dtype));
  std::uint64_t state = static_cast<std::uint64_t>(seed);
  for (std::size_t i = 0; i < out.size(); i += item_size(dtype)) {
    std::uint64_t raw = next(state);
    if (dtype == DType::float64)
      raw = (raw & 0x800FFFFFFFFFFFFF) | 0x3FE0000000000000;
    if (dtype == DType::float32)
      raw = (raw & 0x807FFFFF) | 0x3F000000;
    if (dtype == DType::bfloat16)
      raw = (raw & 0x807F) | 0x3F00;
    if (dtype == DType::float16)
      raw = (raw & 0x83FF) | 0x3800;
    if (dtype == DType::float8_e4m3fn || dtype == DType::float8_e5m2)
      raw &= 0xBB;
    if (dtype == DType::boolean)
      raw &= 1;
    std::memcpy(&out[i], &raw, item_size(dtype));
  }
  return out;
}

struct Given {
  std::string probe;
  int step;
  DType dtype;
  int level;
  bool segments;
};

const std::vector<Given>& given() {
  static const std::vector<Given> all = [] {
    std::vector<Given> out{{"weights.blocks.0.adaln_proj", -1, DType::float32, H3DIFF_STATS, false},
                           {"weights.blocks.0.norm1", -1, DType::bfloat16, H3DIFF_FULL, false}};
    for (int step = 0; step < 4; ++step)
      for (int i = 0; i < dtype_count; ++i)
        out.push_back({"blocks.0.p" + std::to_string(i), step, static_cast<DType>(i), 1 + (i + step) % 4, i % 3 != 0});
    return out;
  }();
  return all;
}

Bytes data_of(const Given& g) { return content(g.dtype, g.step * 100 + static_cast<int>(g.dtype)); }

std::string write_stream(const std::string& path) {
  const auto s = std::make_unique<h3diff_stream>();
  h3diff_options options{};
  options.steps_planned = 4;
  options.sample_rows = 9;
  EXPECT_EQ(h3diff_open(s.get(), path.c_str(), &options), H3DIFF_OK);
  h3diff_fact_text(s.get(), "producer", "test 1");
  h3diff_fact_text(s.get(), "producer", "test 2");
  h3diff_fact_text(s.get(), "profile", "");
  h3diff_fact_int(s.get(), "threads", -3);
  h3diff_fact_real(s.get(), "temperature", 0.1);
  h3diff_unobserved(s.get(), "blocks.*.attn.q_norm", "fused");
  const h3diff_row_range c_text{0, 7}, c_audio{7, 20}, c_video[2] = {{20, 60}, {70, 90}};
  const h3diff_segment_rows table[4] = {
      {H3DIFF_TEXT, &c_text, 1}, {H3DIFF_VISION, nullptr, 0}, {H3DIFF_AUDIO, &c_audio, 1}, {H3DIFF_VIDEO, c_video, 2}};
  int step = -1;
  for (const Given& g : given()) {
    if (g.step != step) {
      EXPECT_EQ(step < 0 ? h3diff_end_weights(s.get())
                         : h3diff_end_step(s.get(), step, 1.0 - step / 4.0, 0.5, 0.25, step),
                H3DIFF_OK);
      h3diff_dispatch(s.get(), "attention", "kernel", "kernel", step + 2, step + 1);
      step = g.step;
    }
    const Bytes data = data_of(g);
    h3diff_tensor t = h3diff_matrix(g.probe.c_str(), g.step, static_cast<int>(g.dtype) + 1, rows, cols, data.data());
    t.level = g.level;
    if (g.segments) {
      t.segments = table;
      t.segment_count = 4;
    }
    EXPECT_EQ(h3diff_probe(s.get(), &t), H3DIFF_OK) << h3diff_error(s.get());
    if (g.probe == "weights.blocks.0.adaln_proj") {
      EXPECT_EQ(h3diff_columns(s.get(), &t), H3DIFF_OK);
    }
  }
  h3diff_end_step(s.get(), step, 0.25, 0.5, 0.0, 0.0);
  EXPECT_EQ(h3diff_close(s.get()), H3DIFF_OK);
  return path;
}

// Written once for all tests of this program.
const Bytes& stream_bytes() {
  static const Bytes bytes = [] {
    const Folder folder;
    return load(write_stream(folder / "run.h3stream"));
  }();
  return bytes;
}

std::uint64_t bits(double x) { return std::isnan(x) ? 0x7FF8000000000000 : std::bit_cast<std::uint64_t>(x); }

void expect_same(const IndexRow& a, const IndexRow& b) {
  SCOPED_TRACE(a.probe);
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.probe, b.probe);
  EXPECT_EQ(a.segment, b.segment);
  EXPECT_EQ(a.dtype, b.dtype);
  EXPECT_EQ(a.stored_dtype, b.stored_dtype);
  EXPECT_EQ(a.rows, b.rows);
  EXPECT_EQ(a.cols, b.cols);
  EXPECT_EQ(a.digest, b.digest);
  EXPECT_EQ(a.level, b.level);
  const Statistics &s = a.statistics, &t = b.statistics;
  EXPECT_EQ(s.count, t.count);
  EXPECT_EQ(s.zeros, t.zeros);
  EXPECT_EQ(s.nan, t.nan);
  EXPECT_EQ(s.inf, t.inf);
  EXPECT_EQ(s.subnormal, t.subnormal);
  EXPECT_EQ(bits(s.mean), bits(t.mean));
  EXPECT_EQ(bits(s.std), bits(t.std));
  EXPECT_EQ(bits(s.l2), bits(t.l2));
  EXPECT_EQ(bits(s.min), bits(t.min));
  EXPECT_EQ(bits(s.max), bits(t.max));
  EXPECT_EQ(bits(s.absmax), bits(t.absmax));
  EXPECT_EQ(s.absmax_row, t.absmax_row);
  EXPECT_EQ(s.absmax_col, t.absmax_col);
  EXPECT_EQ(s.row_bands, t.row_bands);
  EXPECT_EQ(s.col_groups, t.col_groups);
  EXPECT_EQ(bits(a.cosine), bits(b.cosine));
  EXPECT_EQ(a.sketch_k, b.sketch_k);
}

// The rows that the library itself makes of the same tensors.
struct Expected {
  IndexRow row;
  std::vector<float> sketch;
  Bytes tensor; // as captured
  std::int64_t sampled_of = 0;
};

std::vector<Expected> expected_rows() {
  std::vector<Expected> out;
  for (const Given& g : given()) {
    const Bytes data = data_of(g);
    const TensorView view = TensorView::contiguous(data.data(), g.dtype, rows, cols);
    SegmentTable table{{Segment::all, {{0, rows}}, rows}};
    if (g.segments)
      table = {
          {Segment::text, {text}, 7}, {Segment::audio, {audio}, 13}, {Segment::video, {video_front, video_back}, 60}};
    for (const SegmentRows& segment : table) {
      Expected& e = out.emplace_back();
      MeasureOptions options;
      options.statistics = g.level != H3DIFF_DIGEST;
      options.sketch_k = !options.statistics ? 0 : g.step == 2 ? 64 : 256; // of steps 0 to 3, step 2 is in between
      const Measurement m = measure(view, segment.ranges, options);
      e.row.step = g.step;
      e.row.probe = g.probe;
      e.row.segment = segment.segment;
      e.row.dtype = e.row.stored_dtype = g.dtype;
      e.row.rows = m.rows;
      e.row.cols = m.cols;
      e.row.digest = m.digest;
      e.row.level = static_cast<Level>(g.level);
      if (options.statistics)
        e.row.statistics = m.statistics;
      else
        e.row.statistics.l2 = Statistics::undefined;
      e.row.sketch_k = options.sketch_k;
      for (const double bucket : m.sketch)
        e.sketch.push_back(static_cast<float>(bucket));
      if (g.level < H3DIFF_ROWS)
        continue;
      std::vector<std::int64_t> chosen;
      for (const RowRange& range : segment.ranges)
        for (std::int64_t r = range.begin; r < range.end; ++r)
          chosen.push_back(r);
      if (g.level == H3DIFF_ROWS) {
        const std::vector<std::int64_t> all = chosen;
        const auto n = std::min<std::int64_t>(9, m.rows);
        chosen.clear();
        for (std::int64_t i = 0; i < n; ++i)
          chosen.push_back(all[static_cast<std::size_t>(i * m.rows / n)]);
        e.sampled_of = m.rows;
      }
      const std::size_t row_bytes = static_cast<std::size_t>(cols) * item_size(g.dtype);
      for (const std::int64_t r : chosen)
        e.tensor.insert(e.tensor.end(), data.begin() + r * static_cast<std::ptrdiff_t>(row_bytes),
                        data.begin() + (r + 1) * static_cast<std::ptrdiff_t>(row_bytes));
    }
  }
  return out;
}

template <class Reader> void expect_everything(const Reader& reader) {
  const std::vector<Expected> expected = expected_rows();
  ASSERT_EQ(reader.index().size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const IndexRow& row = reader.index()[i];
    expect_same(row, expected[i].row);
    const auto sketch = reader.sketch(row);
    ASSERT_TRUE(sketch) << sketch.error().message;
    EXPECT_EQ(*sketch, expected[i].sketch);
    const auto tensor = reader.tensor(row);
    ASSERT_TRUE(tensor) << tensor.error().message;
    ASSERT_EQ(static_cast<bool>(*tensor), !expected[i].tensor.empty());
    if (!*tensor)
      continue;
    EXPECT_EQ((*tensor)->sampled_of, expected[i].sampled_of);
    Bytes bytes(static_cast<std::size_t>((*tensor)->rows * (*tensor)->cols) * item_size((*tensor)->dtype));
    ASSERT_TRUE((*tensor)->read_rows(0, (*tensor)->rows, bytes.data()));
    EXPECT_EQ(bytes, expected[i].tensor) << row.probe;
    EXPECT_FALSE((*tensor)->read_rows(1, (*tensor)->rows, bytes.data()));
  }
  EXPECT_EQ(reader.fact("producer"), "test 2");
  EXPECT_EQ(reader.fact("profile", "absent"), "");
  EXPECT_EQ(reader.fact("threads"), "-3");
  EXPECT_EQ(reader.fact("temperature"), "0.1");
  EXPECT_EQ(reader.fact("steps_planned"), "4");
  EXPECT_TRUE(reader.finished());
  ASSERT_EQ(reader.steps().size(), 4u);
  EXPECT_EQ(reader.steps()[1].step, 1);
  EXPECT_EQ(reader.steps()[1].sigma_video, 0.75);
  EXPECT_EQ(reader.steps()[1].sigma_audio, 0.5);
  EXPECT_EQ(reader.steps()[1].sigma_video_next, 0.25);
  EXPECT_EQ(reader.steps()[1].sigma_audio_next, 1.0);
  ASSERT_EQ(reader.dispatch().size(), 1u);
  EXPECT_EQ(reader.dispatch()[0].calls, 4);
  EXPECT_EQ(reader.dispatch()[0].fallbacks, 3);
  ASSERT_EQ(reader.unobserved().size(), 1u);
  EXPECT_EQ(reader.unobserved()[0].probe, "blocks.*.attn.q_norm");
  EXPECT_EQ(reader.unobserved()[0].reason, "fused");
  MeasureOptions options;
  options.columns = true;
  const Bytes data = data_of(given()[0]);
  const RowRange all{0, rows};
  const auto columns =
      measure(TensorView::contiguous(data.data(), DType::float32, rows, cols), {&all, 1}, options).columns;
  const auto read = reader.columns(given()[0].probe);
  ASSERT_EQ(read.size(), columns.size());
  for (std::size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(read[i].column, columns[i].column);
    EXPECT_EQ(read[i].digest, columns[i].digest);
    EXPECT_EQ(bits(read[i].mean), bits(columns[i].mean));
    EXPECT_EQ(bits(read[i].std), bits(columns[i].std));
    EXPECT_EQ(bits(read[i].l2), bits(columns[i].l2));
    EXPECT_EQ(bits(read[i].absmax), bits(columns[i].absmax));
  }
}

TEST(Stream, ReaderGivesWhatWasWritten) {
  const Folder folder;
  save(folder / "s", stream_bytes());
  const auto reader = StreamReader::open(folder / "s");
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_FALSE(reader->damage());
  EXPECT_TRUE(reader->notes().empty());
  EXPECT_EQ(reader->records(), static_cast<std::int64_t>(record_offsets(stream_bytes()).size() - 1));
  expect_everything(*reader);
  EXPECT_TRUE(is_stream(folder / "s"));
}

TEST(Stream, DumpHoldsWhatTheStreamHolds) {
  const Folder folder;
  save(folder / "s", stream_bytes());
  StreamToDumpOptions options;
  options.facts["bundle"] = std::string("tiny");
  options.facts["profile"] = std::string("");
  const auto made = stream_to_dump(folder / "s", folder / "dump.h5", options);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->steps, 4);
  EXPECT_TRUE(made->finished);
  EXPECT_TRUE(made->notes.empty());
  const auto dump = DumpReader::open(folder / "dump.h5");
  ASSERT_TRUE(dump) << dump.error().message;
  expect_everything(*dump);
  EXPECT_EQ(dump->fact("bundle"), "tiny");
  const auto again = stream_to_dump(folder / "s", folder / "dump.h5");
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, ExitCode::usage);
  options.overwrite = true;
  EXPECT_TRUE(stream_to_dump(folder / "s", folder / "dump.h5", options));
}

TEST(Stream, FileIsNotOverwritten) {
  const Folder folder;
  save(folder / "s", {1, 2, 3});
  const auto s = std::make_unique<h3diff_stream>();
  EXPECT_EQ(h3diff_open(s.get(), (folder / "s").c_str(), nullptr), H3DIFF_EXISTS);
  EXPECT_EQ(h3diff_open(s.get(), (folder / "no/such/folder").c_str(), nullptr), H3DIFF_CANNOT_OPEN);
  EXPECT_EQ(load(folder / "s").size(), 3u);
}

// What is in the stream before `cut`: complete records, steps that ended, rows of ended steps and of weights.
struct Prefix {
  std::size_t records = 0, boundary = 16, rows = 0;
  std::vector<int> steps;
};

Prefix prefix(const Bytes& bytes, const std::vector<std::size_t>& offsets, std::size_t cut) {
  Prefix out;
  std::size_t weights = 0, in_step = 0;
  for (std::size_t i = 0; i + 1 < offsets.size() && offsets[i + 1] <= cut; ++i) {
    ++out.records;
    out.boundary = offsets[i + 1];
    const std::string tag = tag_at(bytes, offsets[i]);
    const auto step = tag == "MEAS" || tag == "STEP" ? at<std::int32_t>(bytes, offsets[i] + 8) : 0;
    if (tag == "MEAS")
      (step < 0 ? weights : in_step) += 1;
    if (tag == "STEP" && step >= 0) {
      out.steps.push_back(step);
      out.rows += in_step;
      in_step = 0;
    }
  }
  out.rows += weights;
  return out;
}

TEST(Stream, CutAnywhereEveryCompleteRecordIsRead) {
  const Folder folder;
  const Bytes& whole = stream_bytes();
  const std::vector<std::size_t> offsets = record_offsets(whole);
  std::uint64_t state = 2026;
  for (int i = 0; i < 1000; ++i) {
    // Every tenth cut is at or next to a boundary.
    std::size_t cut = 16 + next(state) % (whole.size() - 16);
    if (i % 10 == 0)
      cut = std::clamp<std::size_t>(offsets[next(state) % offsets.size()] + next(state) % 3 - 1, 16, whole.size() - 1);
    SCOPED_TRACE(cut);
    save(folder / "s", Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(cut)));
    const auto reader = StreamReader::open(folder / "s");
    ASSERT_TRUE(reader) << reader.error().message;
    const Prefix there = prefix(whole, offsets, cut);
    ASSERT_EQ(reader->records(), static_cast<std::int64_t>(there.records));
    ASSERT_EQ(reader->damage().has_value(), there.boundary != cut);
    if (reader->damage()) {
      ASSERT_EQ(reader->damage()->offset, there.boundary);
      ASSERT_EQ(reader->damage()->bytes, cut - there.boundary);
    }
    ASSERT_EQ(reader->steps().size(), there.steps.size());
    ASSERT_EQ(reader->index().size(), there.rows);
    ASSERT_FALSE(reader->finished());
    ASSERT_FALSE(reader->notes().empty());
    for (const IndexRow& row : reader->index())
      ASSERT_TRUE(row.step < 0 || row.step <= there.steps.back());
    if (i % 50 == 0) {
      const auto made = stream_to_dump(folder / "s", folder / "d", {true, {}});
      ASSERT_TRUE(made) << made.error().message;
      const auto dump = DumpReader::open(folder / "d");
      ASSERT_TRUE(dump) << dump.error().message;
      ASSERT_EQ(dump->index().size(), there.rows);
      ASSERT_EQ(dump->steps().size(), there.steps.size());
      ASSERT_FALSE(dump->finished());
      ASSERT_EQ(dump->unobserved().size(), reader->unobserved().size());
    }
  }
  for (std::size_t cut = 0; cut < 16; ++cut) {
    save(folder / "s", Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(cut)));
    const auto reader = StreamReader::open(folder / "s");
    ASSERT_FALSE(reader);
    EXPECT_EQ(reader.error().code, ExitCode::bad_input);
    EXPECT_NE(reader.error().message.find("header"), std::string::npos);
  }
}

TEST(Stream, ABitFlipEndsTheReadingThere) {
  const Folder folder;
  const Bytes& whole = stream_bytes();
  const std::vector<std::size_t> offsets = record_offsets(whole);
  std::uint64_t state = 77;
  for (int i = 0; i < 1000; ++i) {
    // Half of them in the records' frames, where lengths are.
    std::size_t byte = next(state) % whole.size();
    if (i % 2 == 0)
      byte = offsets[next(state) % (offsets.size() - 1)] + next(state) % 8;
    SCOPED_TRACE(byte);
    Bytes flipped = whole;
    flipped[byte] = static_cast<unsigned char>(flipped[byte] ^ 1u << next(state) % 8);
    save(folder / "s", flipped);
    const auto reader = StreamReader::open(folder / "s");
    if (byte < 16) {
      ASSERT_FALSE(reader);
      continue;
    }
    ASSERT_TRUE(reader) << reader.error().message;
    const auto hit =
        static_cast<std::size_t>(std::upper_bound(offsets.begin(), offsets.end(), byte) - offsets.begin()) - 1;
    ASSERT_EQ(reader->records(), static_cast<std::int64_t>(hit));
    ASSERT_TRUE(reader->damage());
    ASSERT_EQ(reader->damage()->offset, offsets[hit]);
    ASSERT_EQ(reader->damage()->bytes, whole.size() - offsets[hit]);
  }
}

Bytes header() { return {stream_bytes().begin(), stream_bytes().begin() + 16}; }

void add_record(Bytes& to, const std::string& tag, const Bytes& payload) {
  const std::size_t begin = to.size();
  to.insert(to.end(), tag.begin(), tag.end());
  put(to, static_cast<std::uint32_t>(payload.size()));
  to.insert(to.end(), payload.begin(), payload.end());
  put(to, crc32(to, begin, to.size()));
}

TEST(Stream, AHugeLengthAllocatesNothing) {
  const Folder folder;
  for (const std::uint32_t length : {0xFFFFFFFFu, 0x80000000u, (1u << 24) + 1, 1u << 24, 1u << 20, 100u}) {
    Bytes bytes = header();
    for (const char c : {'M', 'E', 'A', 'S'})
      bytes.push_back(static_cast<unsigned char>(c));
    put(bytes, length);
    bytes.resize(bytes.size() + 90);
    save(folder / "s", bytes);
    largest_allocation = 0;
    const auto reader = StreamReader::open(folder / "s");
    const std::size_t allocated = largest_allocation;
    ASSERT_TRUE(reader) << reader.error().message;
    EXPECT_LE(allocated, std::size_t{1} << 20) << length;
    ASSERT_TRUE(reader->damage());
    EXPECT_EQ(reader->damage()->offset, 16u);
    EXPECT_EQ(reader->damage()->bytes, 98u);
    EXPECT_EQ(reader->records(), 0);
  }
}

TEST(Stream, UnknownRecordsAndWhatFollowsTheEndAreTold) {
  const Folder folder;
  Bytes bytes = header();
  add_record(bytes, "NEWS", {1, 2, 3});
  Bytes step;
  put(step, std::int32_t{0});
  step.resize(36);
  add_record(bytes, "STEP", step);
  add_record(bytes, "END ", {});
  const std::size_t end = bytes.size();
  add_record(bytes, "STEP", step);
  save(folder / "s", bytes);
  const auto reader = StreamReader::open(folder / "s");
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_EQ(reader->unknown_records(), 1);
  EXPECT_TRUE(reader->finished());
  ASSERT_TRUE(reader->damage());
  EXPECT_EQ(reader->damage()->offset, end);
  EXPECT_EQ(reader->notes().size(), 2u);
}

TEST(Stream, OtherFilesAreRefused) {
  const Folder folder;
  Bytes other = header();
  other[8] = 2;
  save(folder / "version", other);
  save(folder / "text", Bytes(64, 'x'));
  save(folder / "empty", {});
  const auto message = [&](const char* file) {
    const auto reader = StreamReader::open(folder / file);
    EXPECT_FALSE(reader);
    EXPECT_EQ(reader.error().code, ExitCode::bad_input);
    return reader.error().message;
  };
  EXPECT_NE(message("version").find("version 2"), std::string::npos);
  EXPECT_NE(message("text").find("not a probe stream"), std::string::npos);
  EXPECT_NE(message("empty").find("header"), std::string::npos);
  EXPECT_NE(message("absent").find("cannot be opened"), std::string::npos);
  EXPECT_NE(message(".").find("is not a file"), std::string::npos);
  EXPECT_FALSE(is_stream(folder / "text"));
  EXPECT_FALSE(is_stream(folder / "empty"));
}

Bytes payload(const Bytes& bytes, std::size_t offset) {
  const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(offset) + 8;
  return {begin, begin + at<std::uint32_t>(bytes, offset + 4)};
}

// A producer's mistakes come with a right CRC: refused with the record's offset and the fact.
TEST(Stream, WrongContentIsRefused) {
  const Folder folder;
  const Bytes& whole = stream_bytes();
  const std::vector<std::size_t> offsets = record_offsets(whole);
  const auto check = [&](const std::string& tag, std::size_t which, const std::function<void(Bytes&)>& change,
                         const std::string& part) {
    Bytes bytes = header();
    std::size_t seen = 0, hit = 0;
    for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
      Bytes p = payload(whole, offsets[i]);
      if (tag_at(whole, offsets[i]) == tag && seen++ == which) {
        hit = bytes.size();
        change(p);
      }
      add_record(bytes, tag_at(whole, offsets[i]), p);
    }
    ASSERT_NE(hit, 0u);
    save(folder / "s", bytes);
    const auto reader = StreamReader::open(folder / "s");
    ASSERT_FALSE(reader) << tag << ", expected: " << part;
    EXPECT_EQ(reader.error().code, ExitCode::bad_input);
    EXPECT_NE(reader.error().message.find(part), std::string::npos) << reader.error().message;
    EXPECT_NE(reader.error().message.find(folder / "s"), std::string::npos) << reader.error().message;
    EXPECT_FALSE(stream_to_dump(folder / "s", folder / "d"));
    EXPECT_FALSE(fs::exists(folder / "d"));
    EXPECT_FALSE(fs::exists(folder / "d.partial"));
  };
  check(
      "FACT", 0, [](Bytes& p) { p[0] = 3; }, "type");
  check(
      "FACT", 0, [](Bytes& p) { p.resize(3); }, "name");
  check(
      "FACT", 0, [](Bytes& p) { p.push_back(0); }, "type"); // an integer of 9 bytes
  check(
      "FACT", 1, [](Bytes& p) { p.resize(6000, 'x'); }, "bytes");
  check(
      "FACT", 1, [](Bytes& p) { put_at<std::uint16_t>(p, 2, 0); }, "name");
  check(
      "MEAS", 2, [](Bytes& p) { put_at<std::int32_t>(p, 0, -2); }, "step");
  check(
      "MEAS", 2, [](Bytes& p) { p[4] = 7; }, "segment code");
  check(
      "MEAS", 2, [](Bytes& p) { p[5] = 12; }, "dtype codes");
  check(
      "MEAS", 2, [](Bytes& p) { p[6] = 0; }, "dtype codes");
  check(
      "MEAS", 2, [](Bytes& p) { p[7] = 5; }, "level");
  check(
      "MEAS", 2, [](Bytes& p) { put_at<std::int64_t>(p, 8, -1); }, "shape");
  check(
      "MEAS", 2, [](Bytes& p) { put_at<std::int64_t>(p, 8, INT64_MAX); }, "shape");
  check(
      "MEAS", 2, [](Bytes& p) { put_at<std::int64_t>(p, 40, -1); }, "counts");
  check(
      "MEAS", 2, [](Bytes& p) { put_at<std::int64_t>(p, 120, 1 << 20); }, "absmax");
  check(
      "MEAS", 3, [](Bytes& p) { put_at<std::uint16_t>(p, 272, 65535); }, "length");
  check(
      "MEAS", 3, [](Bytes& p) { p[276] = '/'; }, "names the probe");
  check(
      "MEAS", 3, [](Bytes& p) { p[277] = '\n'; }, "\\x0");
  check(
      "MEAS", 3, [](Bytes& p) { p.resize(100); }, "length");
  check(
      "COLS", 0, [](Bytes& p) { put_at<std::uint32_t>(p, 4, 0); }, "length");
  check(
      "COLS", 0, [](Bytes& p) { put_at<std::uint32_t>(p, 0, 1); }, "columns");
  check(
      "COLS", 1, [](Bytes& p) { put_at<std::uint32_t>(p, 8, 50); }, "columns");
  check(
      "COLS", 0, [](Bytes& p) { put_at<std::uint32_t>(p, 8, 0xFFFFFFFF); }, "columns");
  check(
      "TENS", 0, [](Bytes& p) { p[48] = 'x'; }, "not been measured");
  check(
      "TENS", 0, [](Bytes& p) { put_at<std::int64_t>(p, 8, 1 << 30); }, "tensor");
  check(
      "TENS", 0, [](Bytes& p) { put_at<std::int64_t>(p, 24, 1); }, "sampled of");
  check(
      "TENS", 0, [](Bytes& p) { put_at<std::int64_t>(p, 32, 1); }, "follow");
  check(
      "TENS", 0, [](Bytes& p) { put_at<std::int64_t>(p, 40, 1); }, "length");
  check(
      "TENS", 0, [](Bytes& p) { p.pop_back(); }, "length");
  check(
      "TENS", 0, [](Bytes& p) { p[5] = 1; }, "float64");
  check(
      "STEP", 2, [](Bytes& p) { put_at<std::int32_t>(p, 0, 0); }, "ended");
  check(
      "STEP", 1, [](Bytes& p) { p.resize(35); }, "length");
  check(
      "STEP", 1, [](Bytes& p) { put_at<std::int32_t>(p, 0, 3); }, "ended"); // rows of steps 1 to 3 then follow
  check(
      "DISP", 0, [](Bytes& p) { put_at<std::int64_t>(p, 0, -1); }, "calls");
  check(
      "DISP", 0, [](Bytes& p) { put_at<std::uint16_t>(p, 16, 500); }, "length");
  check(
      "UNOB", 0, [](Bytes& p) { p.push_back('x'); }, "length");
  check(
      "END ", 0, [](Bytes& p) { p.push_back('x'); }, "payload");
  // A row twice, and a captured tensor that is missing from a complete step.
  const auto second = [&](const std::string& tag, std::size_t copies, const std::string& part) {
    Bytes bytes = header();
    std::size_t seen = 0;
    for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
      const std::size_t times = tag_at(whole, offsets[i]) == tag && seen++ == 2 ? copies : 1;
      for (std::size_t n = 0; n < times; ++n)
        add_record(bytes, tag_at(whole, offsets[i]), payload(whole, offsets[i]));
    }
    save(folder / "s", bytes);
    const auto reader = StreamReader::open(folder / "s");
    ASSERT_FALSE(reader);
    EXPECT_NE(reader.error().message.find(part), std::string::npos) << reader.error().message;
  };
  second("MEAS", 2, "repeats");
  second("TENS", 0, "not all there");
}

// A stranger's stream: any payload, with a right CRC. Refused, or read and made a dump of; nothing else.
TEST(Stream, ARightCrcOnRandomContentNeverCrashes) {
  const Folder folder;
  const Bytes& whole = stream_bytes();
  const std::vector<std::size_t> offsets = record_offsets(whole);
  std::uint64_t state = 99;
  int read = 0, refused = 0;
  for (int i = 0; i < 300; ++i) {
    Bytes bytes = whole;
    const std::size_t record = next(state) % (offsets.size() - 1), begin = offsets[record],
                      end = offsets[record + 1] - 4;
    if (end == begin + 8)
      continue;
    for (int flips = 0; flips < 3; ++flips) {
      const std::size_t fixed = std::min<std::size_t>(end - begin - 8, 300); // where the numbers are
      const std::size_t byte = begin + 8 + next(state) % fixed;
      bytes[byte] = static_cast<unsigned char>(next(state));
    }
    put_at(bytes, end, crc32(bytes, begin, end));
    save(folder / "s", bytes);
    const auto reader = StreamReader::open(folder / "s");
    (reader ? read : refused) += 1;
    if (!reader) {
      ASSERT_EQ(reader.error().code, ExitCode::bad_input);
      continue;
    }
    if (i % 10 != 0)
      continue;
    const auto made = stream_to_dump(folder / "s", folder / "d", {true, {}});
    if (made) {
      ASSERT_TRUE(DumpReader::open(folder / "d"));
    } else {
      ASSERT_EQ(made.error().code, ExitCode::bad_input) << made.error().message;
    }
  }
  EXPECT_GT(read, 50);
  EXPECT_GT(refused, 50);
}

// Content that is right by the stream's rules, and that a dump does not take.
TEST(Stream, FactsOfTheWrongTypeMakeNoDump) {
  const Folder folder;
  const auto s = std::make_unique<h3diff_stream>();
  ASSERT_EQ(h3diff_open(s.get(), (folder / "s").c_str(), nullptr), H3DIFF_OK);
  h3diff_fact_text(s.get(), "num_layers", "fifty");
  ASSERT_EQ(h3diff_close(s.get()), H3DIFF_OK);
  const auto made = stream_to_dump(folder / "s", folder / "d");
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ExitCode::bad_input);
  EXPECT_NE(made.error().message.find("num_layers"), std::string::npos) << made.error().message;
  EXPECT_FALSE(fs::exists(folder / "d"));
  EXPECT_FALSE(fs::exists(folder / "d.partial"));
}

TEST(Stream, ARunThatIsAbandonedKeepsItsSteps) {
  const Folder folder;
  const auto s = std::make_unique<h3diff_stream>();
  ASSERT_EQ(h3diff_open(s.get(), (folder / "s").c_str(), nullptr), H3DIFF_OK);
  const Bytes data = content(DType::bfloat16, 1);
  for (int step = 0; step < 2; ++step) {
    const h3diff_tensor t = h3diff_matrix("blocks.0.out", step, H3DIFF_BFLOAT16, rows, cols, data.data());
    ASSERT_EQ(h3diff_probe(s.get(), &t), H3DIFF_OK);
    if (step == 0) {
      ASSERT_EQ(h3diff_end_step(s.get(), 0, 1, 1, 0, 0), H3DIFF_OK);
    }
  }
  { // what is on the disk at this point, as if the process had died
    const auto reader = StreamReader::open(folder / "s");
    ASSERT_TRUE(reader) << reader.error().message;
    EXPECT_EQ(reader->index().size(), 1u);
  }
  h3diff_abandon(s.get());
  const auto made = stream_to_dump(folder / "s", folder / "d");
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->rows, 1);
  EXPECT_FALSE(made->finished);
  ASSERT_EQ(made->notes.size(), 2u);
  EXPECT_NE(made->notes[0].find("step 1 was cut off"), std::string::npos);
}

} // namespace
