// Round trips: what is written is what is read.
#include "dump_sample.hpp"

#include <gtest/gtest.h>

#include <bit>

namespace h3diff::probes {
namespace {

using sample::Folder;

void expect_same_bits(double a, double b, const char* what) {
  EXPECT_TRUE(std::isnan(a) ? std::isnan(b) : std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b))
      << what << ": " << a << " and " << b;
}

void expect_equal(const IndexRow& a, const IndexRow& b) {
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.probe, b.probe);
  EXPECT_EQ(a.segment, b.segment);
  EXPECT_EQ(a.dtype, b.dtype);
  EXPECT_EQ(a.stored_dtype, b.stored_dtype);
  EXPECT_EQ(a.rows, b.rows);
  EXPECT_EQ(a.cols, b.cols);
  EXPECT_EQ(a.digest, b.digest);
  EXPECT_EQ(a.level, b.level);
  const Statistics &x = a.statistics, &y = b.statistics;
  EXPECT_EQ(x.count, y.count);
  EXPECT_EQ(x.zeros, y.zeros);
  EXPECT_EQ(x.nan, y.nan);
  EXPECT_EQ(x.inf, y.inf);
  EXPECT_EQ(x.subnormal, y.subnormal);
  expect_same_bits(x.mean, y.mean, "mean");
  expect_same_bits(x.std, y.std, "std");
  expect_same_bits(x.l2, y.l2, "l2");
  expect_same_bits(x.min, y.min, "min");
  expect_same_bits(x.max, y.max, "max");
  expect_same_bits(x.absmax, y.absmax, "absmax");
  EXPECT_EQ(x.absmax_row, y.absmax_row);
  EXPECT_EQ(x.absmax_col, y.absmax_col);
  EXPECT_EQ(x.row_bands, y.row_bands);
  EXPECT_EQ(x.col_groups, y.col_groups);
  expect_same_bits(a.cosine, b.cosine, "cosine");
}

TEST(Dump, EveryColumnComesBack) {
  const Folder folder;
  const std::string path = folder.file("a.h5");
  std::vector<IndexRow> rows;
  std::vector<std::vector<double>> sketches;
  {
    auto writer = DumpWriter::create({path}, sample::facts());
    ASSERT_TRUE(writer) << writer.error().message;
    EXPECT_EQ(writer->partial_path(), path + ".partial");
    int number = 0;
    for (const int step : {-1, 0, 1, 2}) {
      for (const Segment segment : {Segment::all, Segment::text, Segment::vision, Segment::cond_video,
                                    Segment::cond_audio, Segment::audio, Segment::video}) {
        IndexRow row = sample::row(step, number, number % 2 ? "pred.video" : std::string(80, 'x'), segment, 5, 7);
        row.dtype = static_cast<DType>(number % dtype_count);
        row.stored_dtype = static_cast<DType>((number + 3) % dtype_count);
        if (number == 4) { // what an all-NaN tensor has
          row.statistics = Statistics{};
          row.statistics.count = 35;
          row.statistics.nan = 35;
        }
        rows.push_back(row);
        sketches.push_back(sample::sketch_of(step, number, number % 4 == 3 ? 0 : 64 << (number % 3)));
        writer->add(row, sketches.back());
        ++number;
      }
      if (step < 0)
        writer->add_columns("weights.adaln_t_table", sample::columns(7));
      ASSERT_TRUE(writer->end_step({step, 0.25 * step, 0.5, 0.75, 1.5}));
    }
    writer->set_fact("tensors_over_budget", std::int64_t{3});
    writer->set_fact("case", std::string("another name, longer than before"));
    const DispatchRow dispatch[] = {{"linear", "aten", "aten", 12, 0}, {"attention", "math", "flash", 5, 4}};
    const Unobserved unobserved[] = {{"blocks.*.attn.q_rope", std::string(200, 'r')}};
    ASSERT_TRUE(writer->finish(dispatch, unobserved));
  }
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));

  const auto dump = DumpReader::open(path);
  ASSERT_TRUE(dump) << dump.error().message;
  EXPECT_EQ(dump->path(), path);
  EXPECT_TRUE(dump->finished());
  ASSERT_EQ(dump->index().size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    expect_equal(dump->index()[i], rows[i]);
    const auto sketch = dump->sketch(dump->index()[i]);
    ASSERT_TRUE(sketch);
    ASSERT_EQ(sketch->size(), sketches[i].size());
    for (std::size_t b = 0; b < sketch->size(); ++b)
      EXPECT_EQ((*sketch)[b], static_cast<float>(sketches[i][b]));
    const auto tensor = dump->tensor(dump->index()[i]);
    ASSERT_TRUE(tensor);
    EXPECT_FALSE(*tensor);
  }
  ASSERT_EQ(dump->steps().size(), 3U); // weights are no step
  EXPECT_EQ(dump->steps()[2].step, 2);
  EXPECT_EQ(dump->steps()[2].sigma_video, 0.5);
  EXPECT_EQ(dump->steps()[2].sigma_audio, 0.5);
  EXPECT_EQ(dump->steps()[2].sigma_video_next, 0.75);
  EXPECT_EQ(dump->steps()[2].sigma_audio_next, 1.5);
  ASSERT_EQ(dump->dispatch().size(), 2U);
  EXPECT_EQ(dump->dispatch()[1].op, "attention");
  EXPECT_EQ(dump->dispatch()[1].implementation, "math");
  EXPECT_EQ(dump->dispatch()[1].declared, "flash");
  EXPECT_EQ(dump->dispatch()[1].calls, 5);
  EXPECT_EQ(dump->dispatch()[1].fallbacks, 4);
  ASSERT_EQ(dump->unobserved().size(), 1U);
  EXPECT_EQ(dump->unobserved()[0].probe, "blocks.*.attn.q_rope");
  EXPECT_EQ(dump->unobserved()[0].reason, std::string(160, 'r'));
  const auto columns = dump->columns("weights.adaln_t_table"), expected = sample::columns(7);
  ASSERT_EQ(columns.size(), expected.size());
  for (std::size_t i = 0; i < columns.size(); ++i) {
    EXPECT_EQ(columns[i].column, expected[i].column);
    EXPECT_EQ(columns[i].digest, expected[i].digest);
    EXPECT_EQ(columns[i].zeros, expected[i].zeros);
    expect_same_bits(columns[i].mean, expected[i].mean, "mean");
    expect_same_bits(columns[i].std, expected[i].std, "std");
  }
  EXPECT_TRUE(dump->columns("weights.blocks.0.adaln_proj").empty());
  EXPECT_EQ(dump->fact("producer"), "h3diff test");
  EXPECT_EQ(dump->fact("case"), "another name, longer than before");
  EXPECT_EQ(dump->fact("tensors_over_budget"), "3");
  EXPECT_EQ(dump->fact("mkl_cbwr", "unset"), "");
  EXPECT_EQ(dump->fact("cuda", "none"), "none");
}

TEST(Dump, StatisticsAreUndefinedAtLevelDigest) {
  const Folder folder;
  auto writer = DumpWriter::create({folder.file("a.h5")}, {});
  IndexRow row = sample::row(0, 1, "packed", Segment::text, 5, 7);
  row.level = Level::digest;
  writer->add(row, {});
  ASSERT_TRUE(writer->end_step({0}));
  ASSERT_TRUE(writer->finish({}));
  const auto dump = DumpReader::open(folder.file("a.h5"));
  ASSERT_TRUE(dump) << dump.error().message;
  const IndexRow& got = dump->index().at(0);
  EXPECT_EQ(got.level, Level::digest);
  EXPECT_EQ(got.digest, row.digest);
  EXPECT_TRUE(std::isnan(got.statistics.l2));
  EXPECT_TRUE(std::isnan(got.statistics.mean));
  EXPECT_EQ(got.statistics.absmax_row, -1);
  EXPECT_EQ(got.statistics.zeros, 0);
  EXPECT_TRUE(dump->dispatch().empty());
  EXPECT_TRUE(dump->sketch(got)->empty());
}

TEST(Dump, TensorsOfEveryDtypeAndAnyStride) {
  const Folder folder;
  const std::string path = folder.file("a.h5");
  std::vector<unsigned char> memory(4096);
  std::iota(memory.begin(), memory.end(), static_cast<unsigned char>(1));
  // [2, 3 rows | 2, 5 columns] out of a larger buffer, rows backwards.
  TensorView strided;
  strided.dims = 4;
  strided.row_dims = 2;
  strided.sizes = {2, 3, 2, 5};
  strided.strides = {90, -20, 1, 3};
  const RowRange ranges[] = {{4, 6}, {0, 1}};
  const std::int64_t chosen[] = {4, 5, 0};
  auto writer = DumpWriter::create({path}, {});
  for (int d = 0; d < dtype_count; ++d) {
    strided.dtype = static_cast<DType>(d);
    strided.data = memory.data() + 60 * item_size(strided.dtype);
    IndexRow row = sample::row(0, 0, "probe." + std::to_string(d), Segment::audio, 3, 10);
    row.dtype = row.stored_dtype = strided.dtype;
    row.level = Level::full;
    writer->add(row, {});
    ASSERT_TRUE(writer->add_tensor(0, row.probe, row.segment, strided, ranges));
  }
  ASSERT_TRUE(writer->end_step({0}));
  ASSERT_TRUE(writer->finish({}));

  const auto dump = DumpReader::open(path);
  ASSERT_TRUE(dump) << dump.error().message;
  ASSERT_EQ(dump->index().size(), static_cast<std::size_t>(dtype_count));
  for (const IndexRow& row : dump->index()) {
    const auto tensor = dump->tensor(row);
    ASSERT_TRUE(tensor && *tensor);
    EXPECT_EQ((*tensor)->dtype, row.dtype);
    EXPECT_EQ((*tensor)->rows, 3);
    EXPECT_EQ((*tensor)->cols, 10);
    EXPECT_EQ((*tensor)->sampled_of, 0);
    const std::size_t item = item_size(row.dtype);
    std::vector<unsigned char> got(3 * 10 * item);
    ASSERT_TRUE((*tensor)->read_rows(0, 1, got.data()));
    ASSERT_TRUE((*tensor)->read_rows(1, 2, got.data() + 10 * item));
    for (std::int64_t r = 0; r < 3; ++r)
      for (std::int64_t c = 0; c < 10; ++c) {
        const std::int64_t from = 60 + chosen[r] / 3 * 90 - chosen[r] % 3 * 20 + c / 5 + c % 5 * 3;
        EXPECT_EQ(std::memcmp(got.data() + static_cast<std::size_t>(r * 10 + c) * item,
                              memory.data() + static_cast<std::size_t>(from) * item, item),
                  0)
            << name(row.dtype) << " " << r << " " << c;
      }
    EXPECT_FALSE((*tensor)->read_rows(2, 2, got.data()));
    EXPECT_FALSE((*tensor)->read_rows(-1, 1, got.data()));
    EXPECT_FALSE((*tensor)->read_rows(4, 0, got.data()));
    EXPECT_TRUE((*tensor)->read_rows(3, 0, got.data()));
  }
}

TEST(Dump, SampledRowsAreSpreadEvenly) {
  const Folder folder;
  const std::vector<float> data = sample::elements(0, 23, 4);
  const TensorView view = TensorView::contiguous(data.data(), DType::float32, 23, 4);
  const RowRange ranges[] = {{13, 20}, {1, 5}}; // 11 rows
  auto writer = DumpWriter::create({folder.file("a.h5")}, {});
  for (const std::int64_t sample : {1, 4, 11, 64}) {
    IndexRow row = sample::row(0, 0, "probe." + std::to_string(sample), Segment::text, 11, 4);
    row.level = Level::rows;
    writer->add(row, {});
    ASSERT_TRUE(writer->add_tensor(0, row.probe, row.segment, view, ranges, sample));
  }
  ASSERT_TRUE(writer->end_step({0}));
  ASSERT_TRUE(writer->finish({}));
  const auto dump = DumpReader::open(folder.file("a.h5"));
  ASSERT_TRUE(dump) << dump.error().message;
  for (const IndexRow& row : dump->index()) {
    const std::int64_t n = std::min<std::int64_t>(std::stoi(row.probe.substr(6)), 11);
    const auto tensor = *dump->tensor(row);
    ASSERT_TRUE(tensor);
    EXPECT_EQ(tensor->rows, n);
    EXPECT_EQ(tensor->sampled_of, 11);
    for (std::int64_t i = 0; i < n; ++i) {
      float got[4];
      ASSERT_TRUE(tensor->read_rows(i, 1, got));
      const std::int64_t of_segment = i * 11 / n, of_tensor = of_segment < 7 ? 13 + of_segment : of_segment - 6;
      EXPECT_EQ(got[0], data[static_cast<std::size_t>(of_tensor * 4)]) << row.probe << " " << i;
    }
  }
}

TEST(Dump, TheSameDataGivesTheSameFile) {
  const Folder folder;
  ASSERT_TRUE(sample::write(folder.file("a.h5")));
  ASSERT_TRUE(sample::write(folder.file("b.h5")));
  const std::string a = sample::bytes_of(folder.file("a.h5"));
  EXPECT_GT(a.size(), 1000U);
  EXPECT_EQ(a, sample::bytes_of(folder.file("b.h5")));
  const auto dump = DumpReader::open(folder.file("b.h5"));
  ASSERT_TRUE(dump) << dump.error().message;
  EXPECT_EQ(sample::difference(*dump, 2), "");
}

TEST(Dump, TablesLongerThanAChunk) {
  const Folder folder;
  auto writer = DumpWriter::create({folder.file("a.h5")}, {});
  for (int step = 0; step < 4; ++step)
    ASSERT_TRUE(sample::add_step(*writer, step, 700, 64));
  ASSERT_TRUE(writer->finish({}));
  const auto dump = DumpReader::open(folder.file("a.h5"));
  ASSERT_TRUE(dump) << dump.error().message;
  EXPECT_EQ(sample::difference(*dump, 4, 700), "");
}

TEST(Dump, AnExistingFileIsKeptUnlessAskedFor) {
  const Folder folder;
  const std::string path = folder.file("a.h5");
  sample::put_bytes(path, "precious");
  const auto refused = DumpWriter::create({path, false}, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ExitCode::usage);
  EXPECT_NE(refused.error().message.find(path), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
  EXPECT_EQ(sample::bytes_of(path), "precious");
  ASSERT_TRUE(sample::write(path)); // overwrites
  EXPECT_TRUE(DumpReader::open(path));
}

TEST(Dump, AFileThatAppearsDuringTheRunIsKept) {
  const Folder folder;
  const std::string path = folder.file("a.h5");
  auto writer = DumpWriter::create({path, false}, {});
  ASSERT_TRUE(sample::add_step(*writer, 0));
  sample::put_bytes(path, "precious");
  const auto done = writer->finish({});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ExitCode::usage);
  EXPECT_EQ(sample::bytes_of(path), "precious");
  EXPECT_TRUE(DumpReader::open(path + ".partial"));
}

TEST(Dump, OneWriterAtATime) {
  const Folder folder;
  const std::string path = folder.file("a.h5");
  auto first = DumpWriter::create({path, true}, {});
  ASSERT_TRUE(sample::add_step(*first, 0));
  const auto second = DumpWriter::create({path, true}, {});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ExitCode::usage);
  ASSERT_TRUE(sample::add_step(*first, 1)); // unharmed
  ASSERT_TRUE(first->finish({}));
  EXPECT_EQ(sample::difference(*DumpReader::open(path), 2), "");
}

TEST(Dump, AStalePartialFileIsReplaced) {
  const Folder folder;
  sample::put_bytes(folder.file("a.h5.partial"), std::string(1 << 20, 'z'));
  ASSERT_TRUE(sample::write(folder.file("a.h5")));
  EXPECT_EQ(sample::difference(*DumpReader::open(folder.file("a.h5")), 2), "");
}

TEST(Dump, AnUnwritablePlaceIsAnEnvironmentError) {
  const Folder folder;
  const auto writer = DumpWriter::create({folder.file("none/a.h5")}, {});
  ASSERT_FALSE(writer);
  EXPECT_EQ(writer.error().code, ExitCode::environment);
  EXPECT_NE(writer.error().message.find("none/a.h5.partial"), std::string::npos);
}

TEST(Dump, AnUnfinishedFileHoldsItsCompleteSteps) {
  const Folder folder;
  {
    auto writer = DumpWriter::create({folder.file("a.h5")}, sample::facts());
    ASSERT_TRUE(sample::add_step(*writer, 0));
    ASSERT_TRUE(sample::add_step(*writer, 1));
    writer->add(sample::row(2, 0, "probe.0", Segment::video, 4, 6), {});
  } // never finished
  EXPECT_FALSE(std::filesystem::exists(folder.file("a.h5")));
  const auto dump = DumpReader::open(folder.file("a.h5.partial"));
  ASSERT_TRUE(dump) << dump.error().message;
  EXPECT_FALSE(dump->finished());
  EXPECT_EQ(dump->steps().size(), 2U);
  EXPECT_EQ(sample::difference(*dump, 2), "");
}

TEST(Dump, AFileBeingWrittenCanBeRead) {
  const Folder folder;
  auto writer = DumpWriter::create({folder.file("a.h5")}, sample::facts());
  for (int step = 0; step < 3; ++step) {
    ASSERT_TRUE(sample::add_step(*writer, step));
    const auto dump = DumpReader::open(writer->partial_path());
    ASSERT_TRUE(dump) << dump.error().message;
    EXPECT_EQ(sample::difference(*dump, step + 1), "");
  }
}

TEST(Dump, AProbeNameThatDoesNotFitIsTold) {
  const Folder folder;
  auto writer = DumpWriter::create({folder.file("a.h5")}, {});
  writer->add(sample::row(0, 0, std::string(81, 'x'), Segment::all, 1, 1), {});
  const auto ended = writer->end_step({0});
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, ExitCode::internal);
}

TEST(Dump, ShapeFactsRoundTrip) {
  ModelShape shape;
  shape.hidden_size = 84;
  shape.num_layers = 6;
  EXPECT_EQ(*shape_from_facts(shape_facts(shape)), shape);
  shape.curve_grid = 1025;
  shape.time_embed_dim = 8;
  EXPECT_EQ(*shape_from_facts(shape_facts(shape)), shape);

  RunFacts facts = shape_facts(shape);
  facts.erase("ffn_dim");
  ASSERT_FALSE(shape_from_facts(facts));
  EXPECT_NE(shape_from_facts(facts).error().message.find("ffn_dim"), std::string::npos);
  facts["ffn_dim"] = std::int64_t{-4};
  EXPECT_FALSE(shape_from_facts(facts));
  facts["ffn_dim"] = std::string("many");
  EXPECT_FALSE(shape_from_facts(facts));
  facts["ffn_dim"] = std::int64_t{4};
  facts["adaln_form"] = std::string("spline");
  EXPECT_FALSE(shape_from_facts(facts));
  EXPECT_FALSE(shape_from_facts({}));
}

TEST(Dump, PrintableEscapes) {
  EXPECT_EQ(printable("blocks.0.out"), "blocks.0.out");
  EXPECT_EQ(printable(std::string_view("a\0b\n\x1b[31m\xff", 10)), "a\\x00b\\x0a\\x1b[31m\\xff");
  EXPECT_EQ(printable(std::string(200, 'a')).size(), 123U);
  EXPECT_EQ(printable("aaaa\n", 6), "aaaa...");
}

TEST(Dump, IsHdf5) {
  const Folder folder;
  ASSERT_TRUE(sample::write(folder.file("a.h5")));
  EXPECT_TRUE(is_hdf5(folder.file("a.h5")));
  sample::put_bytes(folder.file("user_block"), std::string(512, ' ') + sample::bytes_of(folder.file("a.h5")));
  EXPECT_TRUE(is_hdf5(folder.file("user_block")));
  sample::put_bytes(folder.file("text"), "HDF5? no");
  EXPECT_FALSE(is_hdf5(folder.file("text")));
  EXPECT_FALSE(is_hdf5(folder.file("none")));
}

} // namespace
} // namespace h3diff::probes
