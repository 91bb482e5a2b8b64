// Dumps that a stranger might hand in: each is refused with a sentence that names the file and the fact.
#include "dump_sample.hpp"
#include "dump_tables.hpp"

#include <gtest/gtest.h>

namespace h3diff::probes {
namespace {

using sample::Folder;

// Opens a good dump for HDF5 calls that spoil it.
class Spoiled {
public:
  explicit Spoiled(const std::string& path) {
    start_hdf5();
    if (!sample::write(path))
      throw std::runtime_error("no sample");
    file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    if (file < 0)
      throw std::runtime_error("HDF5 cannot open the sample");
  }
  ~Spoiled() { H5Fclose(file); }
  Spoiled(const Spoiled&) = delete;
  Spoiled& operator=(const Spoiled&) = delete;

  void remove(const char* path) const { ASSERT_GE(H5Ldelete(file, path, H5P_DEFAULT), 0) << hdf5_message(); }

  // Overwrites one column of one row of a table.
  void put(const TableLayout& table, const char* column, hsize_t row, const void* value) const {
    for (const TableColumn& candidate : table.columns) {
      if (std::string(candidate.name) != column)
        continue;
      const Handle record = table_type(table, false);
      const Handle member = type_handle(
          H5Tget_member_type(record.get(), static_cast<unsigned>(H5Tget_member_index(record.get(), column))));
      const Handle alone = type_handle(H5Tcreate(H5T_COMPOUND, candidate.size));
      H5Tinsert(alone.get(), column, 0, member.get());
      const Handle dataset = dataset_handle(H5Dopen2(file, table.path, H5P_DEFAULT));
      const Handle space = space_handle(H5Dget_space(dataset.get()));
      const hsize_t one = 1;
      const Handle memory = space_handle(H5Screate_simple(1, &one, nullptr));
      H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, &row, nullptr, &one, nullptr);
      ASSERT_GE(H5Dwrite(dataset.get(), alone.get(), memory.get(), space.get(), H5P_DEFAULT, value), 0)
          << hdf5_message();
      return;
    }
    FAIL() << column;
  }
  void put_text(const TableLayout& table, const char* column, hsize_t row, const std::string& text) const {
    char field[256] = {};
    set_field(field, text);
    put(table, column, row, field);
  }
  void put_int64(const char* column, hsize_t row, std::int64_t value) const { put(index_table, column, row, &value); }

  // A new dataset; negative if HDF5 refuses.
  Handle dataset(const char* path, hid_t type, const std::vector<hsize_t>& dims, hid_t creation,
                 bool unlimited = true) const {
    std::vector<hsize_t> limit = dims;
    if (unlimited)
      limit[0] = H5S_UNLIMITED;
    const Handle space = space_handle(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), limit.data()));
    return dataset_handle(H5Dcreate2(file, path, type, space.get(), H5P_DEFAULT, creation, H5P_DEFAULT));
  }
  static Handle chunked(const std::vector<hsize_t>& chunk) {
    Handle list = list_handle(H5Pcreate(H5P_DATASET_CREATE));
    H5Pset_chunk(list.get(), static_cast<int>(chunk.size()), chunk.data());
    return list;
  }

  hid_t file = -1;
};

struct Case {
  const char* what;
  const char* fact; // part of the sentence
  std::function<void(const Spoiled&)> spoil;
};

void replace_string_attribute(hid_t object, const char* name, hid_t type, const void* value) {
  H5Adelete(object, name);
  const Handle space = space_handle(H5Screate(H5S_SCALAR));
  const Handle made = attribute_handle(H5Acreate2(object, name, type, space.get(), H5P_DEFAULT, H5P_DEFAULT));
  ASSERT_GE(H5Awrite(made.get(), type, value), 0) << hdf5_message();
}

void without_column(const Spoiled& dump, const char* dropped) {
  const Handle full = table_type(index_table, true);
  const Handle type = type_handle(H5Tcreate(H5T_COMPOUND, sizeof(IndexRecord)));
  for (const TableColumn& column : index_table.columns)
    if (std::string(column.name) != dropped) {
      const Handle member = type_handle(
          H5Tget_member_type(full.get(), static_cast<unsigned>(H5Tget_member_index(full.get(), column.name))));
      H5Tinsert(type.get(), column.name, column.offset, member.get());
    }
  dump.remove("/index");
  ASSERT_TRUE(dump.dataset("/index", type.get(), {0}, Spoiled::chunked({16}).get()));
}

void replaced(const Spoiled& dump, const TableLayout& table, hsize_t rows, const Handle& list) {
  dump.remove(table.path);
  const Handle type = table_type(table, true);
  ASSERT_TRUE(dump.dataset(table.path, type.get(), {rows}, list.get())) << hdf5_message();
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"soft_link", "soft, external or user-defined link (alias)",
       [](const Spoiled& d) { H5Lcreate_soft("/run", d.file, "alias", H5P_DEFAULT, H5P_DEFAULT); }},
      {"external_link", "soft, external or user-defined link (audio)",
       [](const Spoiled& d) {
         H5Lcreate_external("/etc/other.h5", "/x", d.file, "/tensors/0/probe.0/audio", H5P_DEFAULT, H5P_DEFAULT);
       }},
      {"steps_is_a_soft_link", "soft, external",
       [](const Spoiled& d) {
         d.remove("/steps");
         H5Lcreate_soft("/index", d.file, "steps", H5P_DEFAULT, H5P_DEFAULT);
       }},
      {"link_cycle", "linked from two places",
       [](const Spoiled& d) { H5Lcreate_hard(d.file, "/tensors", d.file, "/tensors/7", H5P_DEFAULT, H5P_DEFAULT); }},
      {"external_storage", "stored in another file",
       [](const Spoiled& d) {
         d.remove("/steps");
         const Handle list = list_handle(H5Pcreate(H5P_DATASET_CREATE));
         H5Pset_external(list.get(), "/etc/passwd", 0, 80);
         const Handle type = table_type(step_table, true);
         ASSERT_TRUE(d.dataset("/steps", type.get(), {2}, list.get(), false)) << hdf5_message();
       }},
      {"virtual_dataset", "virtual dataset",
       [](const Spoiled& d) {
         d.remove("/sketches/k64");
         const hsize_t dims[] = {6, 64};
         const Handle space = space_handle(H5Screate_simple(2, dims, nullptr));
         const Handle list = list_handle(H5Pcreate(H5P_DATASET_CREATE));
         H5Pset_virtual(list.get(), space.get(), "/etc/other.h5", "/x", space.get());
         ASSERT_TRUE(d.dataset("/sketches/k64", H5T_IEEE_F32LE, {6, 64}, list.get(), false)) << hdf5_message();
       }},
      {"other_filter", "uses the filter 3",
       [](const Spoiled& d) {
         const Handle list = Spoiled::chunked({8});
         H5Pset_fletcher32(list.get());
         replaced(d, step_table, 0, list);
       }},
      {"compact_table", "neither contiguous nor chunked",
       [](const Spoiled& d) {
         d.remove("/steps");
         const Handle list = list_handle(H5Pcreate(H5P_DATASET_CREATE));
         H5Pset_layout(list.get(), H5D_COMPACT);
         const Handle type = table_type(step_table, true);
         ASSERT_TRUE(d.dataset("/steps", type.get(), {2}, list.get(), false)) << hdf5_message();
       }},
      {"absurd_length", "/steps claims",
       [](const Spoiled& d) { replaced(d, step_table, hsize_t{1} << 40, Spoiled::chunked({64})); }},
      {"rows_without_storage", "of which 0 are stored",
       [](const Spoiled& d) { replaced(d, step_table, 3000, Spoiled::chunked({64})); }},
      {"absurd_chunk", "has chunks of more than",
       [](const Spoiled& d) { replaced(d, step_table, 0, Spoiled::chunked({hsize_t{1} << 24})); }},
      {"two_dimensional_table", "/steps does not have 1 dimension",
       [](const Spoiled& d) {
         d.remove("/steps");
         const Handle type = table_type(step_table, true);
         ASSERT_TRUE(d.dataset("/steps", type.get(), {1, 1}, Spoiled::chunked({1, 1}).get()));
       }},
      {"no_steps", "/steps is missing", [](const Spoiled& d) { d.remove("/steps"); }},
      {"no_index", "/index is missing", [](const Spoiled& d) { d.remove("/index"); }},
      {"no_run", "/run is missing", [](const Spoiled& d) { d.remove("/run"); }},
      {"missing_column", "/index has no column l2", [](const Spoiled& d) { without_column(d, "l2"); }},
      {"table_is_numbers", "/steps is not a table",
       [](const Spoiled& d) {
         d.remove("/steps");
         ASSERT_TRUE(d.dataset("/steps", H5T_IEEE_F64LE, {0}, Spoiled::chunked({4}).get()));
       }},
      {"table_is_a_group", "/steps cannot be opened as a dataset",
       [](const Spoiled& d) {
         d.remove("/steps");
         const Handle made = group_handle(H5Gcreate2(d.file, "steps", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
       }},
      {"longer_string", "column op of /dispatch has the wrong type",
       [](const Spoiled& d) {
         d.remove("/dispatch");
         const Handle text = string_type(33);
         const Handle type = type_handle(H5Tcreate(H5T_COMPOUND, 33 + 128 + 16));
         H5Tinsert(type.get(), "op", 0, text.get());
         ASSERT_TRUE(d.dataset("/dispatch", type.get(), {0}, Spoiled::chunked({4}).get()));
       }},
      {"wrong_format", "not a dump",
       [](const Spoiled& d) {
         const Handle root = group_handle(H5Gopen2(d.file, "/", H5P_DEFAULT));
         replace_string_attribute(root.get(), "format", string_type(5).get(), "other");
       }},
      {"later_version", "format version 2; this program reads version 1",
       [](const Spoiled& d) {
         const std::int64_t two = 2;
         const Handle version = attribute_handle(H5Aopen_by_name(d.file, "/", "version", H5P_DEFAULT, H5P_DEFAULT));
         H5Awrite(version.get(), H5T_NATIVE_INT64, &two);
       }},
      {"no_version", "version is missing",
       [](const Spoiled& d) { H5Adelete_by_name(d.file, "/", "version", H5P_DEFAULT); }},
      {"variable_length_fact", "attribute case of /run is neither a fixed-length string",
       [](const Spoiled& d) {
         const Handle type = type_handle(H5Tcopy(H5T_C_S1));
         H5Tset_size(type.get(), H5T_VARIABLE);
         const Handle run = group_handle(H5Gopen2(d.file, "/run", H5P_DEFAULT));
         const char* text = "tiny";
         replace_string_attribute(run.get(), "case", type.get(), &text);
       }},
      {"fact_of_another_type", "the run fact finished is not an integer",
       [](const Spoiled& d) {
         const Handle run = group_handle(H5Gopen2(d.file, "/run", H5P_DEFAULT));
         replace_string_attribute(run.get(), "finished", string_type(3).get(), "yes");
       }},
      {"unknown_dtype", "dtype 'float12'", [](const Spoiled& d) { d.put_text(index_table, "dtype", 1, "float12"); }},
      {"unknown_segment", "segment 'speech\\x1b'",
       [](const Spoiled& d) { d.put_text(index_table, "segment", 1, "speech\x1b"); }},
      {"unknown_level", "level 'off'", [](const Spoiled& d) { d.put_text(index_table, "level", 1, "off"); }},
      {"short_digest", "not 32 lower-case hex digits",
       [](const Spoiled& d) { d.put_text(index_table, "digest", 1, "0123456789abcdef"); }},
      {"capital_digest", "not 32 lower-case hex digits",
       [](const Spoiled& d) { d.put_text(index_table, "digest", 1, std::string(32, 'A')); }},
      {"no_probe", "row 1 of /index names no probe", [](const Spoiled& d) { d.put_text(index_table, "probe", 1, ""); }},
      {"repeated_row", "row 3 of /index repeats step 0, probe probe.1",
       [](const Spoiled& d) { d.put_text(index_table, "probe", 3, "probe.1"); }},
      {"negative_rows", "the shape -1 x 6", [](const Spoiled& d) { d.put_int64("rows", 2, -1); }},
      {"overflowing_shape", "the shape 4 x", [](const Spoiled& d) { d.put_int64("cols", 2, std::int64_t{1} << 60); }},
      {"negative_count", "counts -5", [](const Spoiled& d) { d.put_int64("nan", 2, -5); }},
      {"absmax_outside", "absmax at (1, 6)", [](const Spoiled& d) { d.put_int64("absmax_col", 2, 6); }},
      {"sketch_row_outside", "sketch_row 6, but /sketches/k64 has 6 rows",
       [](const Spoiled& d) { d.put_int64("sketch_row", 2, 6); }},
      {"sketch_of_no_kind", "sketch_k 65",
       [](const Spoiled& d) {
         const std::int32_t k = 65;
         d.put(index_table, "sketch_k", 2, &k);
       }},
      {"sketches_missing", "/sketches/k64 has 0 rows", [](const Spoiled& d) { d.remove("/sketches/k64"); }},
      {"sketches_of_another_width", "/sketches/k64 is not float32 [n, 64]",
       [](const Spoiled& d) {
         d.remove("/sketches/k64");
         ASSERT_TRUE(d.dataset("/sketches/k64", H5T_IEEE_F32LE, {0, 32}, Spoiled::chunked({4, 32}).get()));
       }},
      {"index_cut_short", "/sketches/k64 has 6 rows, and /index names 5",
       [](const Spoiled& d) {
         const Handle index = dataset_handle(H5Dopen2(d.file, "/index", H5P_DEFAULT));
         const hsize_t fewer = 6;
         H5Dset_extent(index.get(), &fewer);
       }},
      {"steps_cut_short", "is of step 1, which /steps does not have",
       [](const Spoiled& d) {
         const Handle steps = dataset_handle(H5Dopen2(d.file, "/steps", H5P_DEFAULT));
         const hsize_t fewer = 1;
         H5Dset_extent(steps.get(), &fewer);
       }},
      {"repeated_step", "row 1 of /steps repeats step 0",
       [](const Spoiled& d) {
         const std::int32_t zero = 0;
         d.put(step_table, "step", 1, &zero);
       }},
      {"negative_step", "row 1 of /steps is step -3",
       [](const Spoiled& d) {
         const std::int32_t step = -3;
         d.put(step_table, "step", 1, &step);
       }},
      {"columns_out_of_order", "is column 9 of weights.adaln_t_table",
       [](const Spoiled& d) {
         const std::int32_t column = 9;
         d.put(column_table, "column", 2, &column);
       }},
      {"more_fallbacks_than_calls", "counts 12 calls and 13 fallbacks",
       [](const Spoiled& d) {
         const std::int64_t fallbacks = 13;
         d.put(dispatch_table, "fallbacks", 0, &fallbacks);
       }},
      {"tensor_missing", "/tensors/1/probe.0/video is missing, whose level is full",
       [](const Spoiled& d) { d.remove("/tensors/1/probe.0"); }},
      {"tensor_of_another_shape", "/tensors/1/probe.0/video is 4 x 6, and /index says 4 x 7",
       [](const Spoiled& d) { d.put_int64("cols", 4, 7); }},
      {"tensor_of_another_dtype", "/tensors/1/probe.0/video is float32, and /index says float16",
       [](const Spoiled& d) {
         d.put_text(index_table, "dtype", 4, "float16");
         d.put_text(index_table, "stored_dtype", 4, "float16");
       }},
      {"tensor_stored_as_another_type", "is not stored as its dtype",
       [](const Spoiled& d) {
         const Handle tensor = dataset_handle(H5Dopen2(d.file, "/tensors/1/probe.0/video", H5P_DEFAULT));
         replace_string_attribute(tensor.get(), "dtype", string_type(8).get(), "bfloat16");
       }},
      {"tensor_chunked", "is not contiguous",
       [](const Spoiled& d) {
         d.remove("/tensors/1/probe.0/video");
         const Handle list = Spoiled::chunked({2, 6});
         H5Pset_alloc_time(list.get(), H5D_ALLOC_TIME_EARLY);
         const Handle made = d.dataset("/tensors/1/probe.0/video", H5T_IEEE_F32LE, {4, 6}, list.get(), false);
         replace_string_attribute(made.get(), "dtype", string_type(7).get(), "float32");
       }},
      {"tensor_never_written", "of which 0 are stored",
       [](const Spoiled& d) {
         d.remove("/tensors/1/probe.0/video");
         const Handle made = d.dataset("/tensors/1/probe.0/video", H5T_IEEE_F32LE, {4, 6}, H5P_DEFAULT, false);
         replace_string_attribute(made.get(), "dtype", string_type(7).get(), "float32");
       }},
      {"tensor_of_absurd_shape", "elements in a file of",
       [](const Spoiled& d) {
         d.remove("/tensors/1/probe.0/video");
         const Handle made = d.dataset("/tensors/1/probe.0/video", H5T_IEEE_F32LE, {hsize_t{1} << 30, hsize_t{1} << 30},
                                       H5P_DEFAULT, false);
         replace_string_attribute(made.get(), "dtype", string_type(7).get(), "float32");
       }},
      {"tensor_of_no_step", "/tensors holds first, which is no step",
       [](const Spoiled& d) {
         const Handle made = group_handle(H5Gcreate2(d.file, "/tensors/first", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
       }},
      {"tensor_of_no_segment", "which is no segment",
       [](const Spoiled& d) {
         const Handle made =
             group_handle(H5Gcreate2(d.file, "/tensors/1/probe.0/speech", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
       }},
  };
  return all;
}

class Refused : public testing::TestWithParam<Case> {};

TEST_P(Refused, WithTheFact) {
  const Folder folder;
  const std::string path = folder.file("a.h5");
  {
    const Spoiled dump(path);
    GetParam().spoil(dump);
  }
  const auto dump = DumpReader::open(path);
  ASSERT_FALSE(dump);
  EXPECT_EQ(dump.error().code, ExitCode::bad_input);
  EXPECT_EQ(dump.error().message.rfind(path + ": ", 0), 0U) << dump.error().message;
  EXPECT_NE(dump.error().message.find(GetParam().fact), std::string::npos) << dump.error().message;
  EXPECT_EQ(dump.error().message.find('\n'), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Dump, Refused, testing::ValuesIn(cases()),
                         [](const auto& one) { return std::string(one.param.what); });

TEST(DumpRefused, WhatIsNoDump) {
  const Folder folder;
  sample::put_bytes(folder.file("text"), "a text, and not a short one: it is longer than HDF5's signature");
  sample::put_bytes(folder.file("empty"), "");
  sample::put_bytes(folder.file("signature"), "\x89HDF\r\n\x1a\n and then nothing of use");
  for (const auto& [name, fact] : {std::pair{"text", "is not an HDF5 file"}, std::pair{"empty", "is empty"},
                                   std::pair{"signature", "is not a readable HDF5 file"},
                                   std::pair{"none", "cannot be opened"}, std::pair{".", "is not a file"}}) {
    const auto dump = DumpReader::open(folder.file(name));
    ASSERT_FALSE(dump) << name;
    EXPECT_EQ(dump.error().code, ExitCode::bad_input);
    EXPECT_NE(dump.error().message.find(fact), std::string::npos) << dump.error().message;
  }
}

// What the format allows others to write, though we do not.
TEST(DumpAccepted, ShuffleDeflateOtherWidthsUnknownFactsAndObjects) {
  const Folder folder;
  const std::string path = folder.file("a.h5");
  {
    const Spoiled dump(path);
    const Handle list = Spoiled::chunked({1});
    H5Pset_shuffle(list.get());
    H5Pset_deflate(list.get(), 6);
    dump.remove("/steps");
    const Handle type = type_handle(H5Tcreate(H5T_COMPOUND, 4 + 4 * 4 + 2));
    H5Tinsert(type.get(), "sigma_audio_next", 0, H5T_IEEE_F32LE);
    H5Tinsert(type.get(), "sigma_video_next", 4, H5T_IEEE_F32LE);
    H5Tinsert(type.get(), "sigma_audio", 8, H5T_IEEE_F32LE);
    H5Tinsert(type.get(), "sigma_video", 12, H5T_IEEE_F32LE);
    H5Tinsert(type.get(), "note", 16, H5T_STD_I16LE);
    H5Tinsert(type.get(), "step", 18, H5T_STD_U16LE);
    const Handle steps = dump.dataset("/steps", type.get(), {2}, list.get());
    ASSERT_TRUE(steps) << hdf5_message();
    const StepRecord records[] = {{0, 1, 0.5, 0.25, 2}, {1, 1, 0.5, 0.25, 2}};
    const Handle memory = table_type(step_table, false);
    ASSERT_GE(H5Dwrite(steps.get(), memory.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, records), 0) << hdf5_message();

    const Handle run = group_handle(H5Gopen2(dump.file, "/run", H5P_DEFAULT));
    const Handle variable = type_handle(H5Tcopy(H5T_C_S1));
    H5Tset_size(variable.get(), H5T_VARIABLE);
    const char* text = "whatever";
    replace_string_attribute(run.get(), "remark", variable.get(), &text); // of no type that a fact has: ignored
    replace_string_attribute(run.get(), "case", string_type(4).get(), "tiny");
    const double load = 0.5;
    replace_string_attribute(run.get(), "load", H5T_IEEE_F64LE, &load);
    const Handle other = group_handle(H5Gcreate2(dump.file, "/notes", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  }
  const auto dump = DumpReader::open(path);
  ASSERT_TRUE(dump) << dump.error().message;
  EXPECT_EQ(sample::difference(*dump, 2), "");
  EXPECT_EQ(dump->steps()[1].sigma_audio, 0.5);
  EXPECT_EQ(dump->steps()[1].sigma_audio_next, 2);
  EXPECT_EQ(dump->fact("remark", "ignored"), "ignored");
  EXPECT_EQ(dump->fact("load"), "0.5");
}

} // namespace
} // namespace h3diff::probes
