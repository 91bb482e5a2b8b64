// Flipped bits and missing ends: an error or a correct read, and the process lives.
#include "dump_sample.hpp"
#include "hdf5_handle.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>

#include <chrono>

namespace h3diff::probes {
namespace {

using sample::Folder;

// Marks the raw data of all datasets: flips there change values, which nothing can notice.
void mark_raw(hid_t file, const char* path, std::vector<bool>& raw) {
  const Handle dataset = dataset_handle(H5Dopen2(file, path, H5P_DEFAULT));
  ASSERT_TRUE(dataset) << path;
  const auto mark = [&](haddr_t begin, hsize_t size) {
    std::fill(raw.begin() + static_cast<std::ptrdiff_t>(begin), raw.begin() + static_cast<std::ptrdiff_t>(begin + size),
              true);
  };
  const Handle list = list_handle(H5Dget_create_plist(dataset.get()));
  if (H5Pget_layout(list.get()) == H5D_CONTIGUOUS) {
    mark(H5Dget_offset(dataset.get()), H5Dget_storage_size(dataset.get()));
    return;
  }
  const Handle space = space_handle(H5Dget_space(dataset.get()));
  hsize_t chunks = 0;
  ASSERT_GE(H5Dget_num_chunks(dataset.get(), space.get(), &chunks), 0);
  for (hsize_t i = 0; i < chunks; ++i) {
    hsize_t where[2];
    unsigned filters = 0;
    haddr_t begin = 0;
    hsize_t size = 0;
    ASSERT_GE(H5Dget_chunk_info(dataset.get(), space.get(), i, where, &filters, &begin, &size), 0);
    mark(begin, size);
  }
}

// Reads everything that a dump has to give; the values do not matter here.
void read_all(const DumpReader& dump) {
  for (const IndexRow& row : dump.index()) {
    static_cast<void>(dump.sketch(row));
    static_cast<void>(dump.columns(row.probe));
    if (const auto tensor = dump.tensor(row); tensor && *tensor) {
      std::vector<char> bytes(static_cast<std::size_t>((*tensor)->rows * (*tensor)->cols) *
                              item_size((*tensor)->dtype));
      static_cast<void>((*tensor)->read_rows(0, (*tensor)->rows, bytes.data()));
    }
  }
}

TEST(DumpDamage, FlippedMetadata) {
  const Folder folder;
  const std::string path = folder.file("a.h5");
  ASSERT_TRUE(sample::write(path));
  const std::string good = sample::bytes_of(path);
  std::vector<bool> raw(good.size());
  start_hdf5();
  {
    const Handle file = file_handle(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT));
    for (const char* dataset : {"/index", "/steps", "/columns", "/dispatch", "/unobserved", "/sketches/k64",
                                "/sketches/k256", "/tensors/0/probe.0/video", "/tensors/1/probe.0/video"})
      mark_raw(file.get(), dataset, raw);
  }
  // Every byte of metadata that says something, and some of the many that are zero.
  std::vector<std::size_t> positions;
  for (std::size_t i = 0; i < good.size(); ++i)
    if (!raw[i] && (good[i] != 0 || i % 61 == 0))
      positions.push_back(i);
  ASSERT_GT(positions.size(), 2000U);
#ifdef __SANITIZE_ADDRESS__
  // A fork takes twenty times as long there, and libhdf5 is not instrumented: a quarter has to do.
  std::size_t kept = 0;
  std::erase_if(positions, [&](std::size_t) { return kept++ % 4 != 0; });
#endif

  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  int errors = 0, crashes = 0, moved = 0;
  for (const std::size_t at : positions) {
    const char flipped = static_cast<char>(good[at] ^ (1 << (at * 5 % 8)));
    ASSERT_EQ(pwrite(fd, &flipped, 1, static_cast<off_t>(at)), 1);
    const auto begin = std::chrono::steady_clock::now();
    const auto dump = DumpReader::open(path);
    if (dump) {
      read_all(*dump);
      if (dump->finished()) {
        // Nothing repeats where a tensor or a chunk of sketches starts, so a flip there can go unnoticed; all else
        // is right or refused.
        const std::string wrong = sample::difference(*dump, 2);
        EXPECT_TRUE(wrong.empty() || wrong.starts_with("tensor of") || wrong.starts_with("sketch of"))
            << "byte " << at << ": " << wrong;
        moved += !wrong.empty(); // else it is a run that was cut off, and says so
        EXPECT_EQ(dump->index().size(), 7U) << "byte " << at;
        EXPECT_EQ(dump->steps().size(), 2U) << "byte " << at;
      }
    } else {
      ++errors;
      crashes += dump.error().message.find("crashes") != std::string::npos;
      EXPECT_EQ(dump.error().code, ExitCode::bad_input) << dump.error().message;
      EXPECT_NE(dump.error().message.find(path), std::string::npos) << dump.error().message;
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60)) << "byte " << at;
    ASSERT_EQ(pwrite(fd, &good[at], 1, static_cast<off_t>(at)), 1);
  }
  close(fd);
  RecordProperty("positions", static_cast<int>(positions.size()));
  RecordProperty("errors", errors);
  RecordProperty("libhdf5_crashes", crashes);
  std::printf("%zu flips: %d errors, of which libhdf5 crashed on %d; %d moved tensors or sketches\n", positions.size(),
              errors, crashes, moved);
  EXPECT_GT(errors, static_cast<int>(positions.size() / 8));
  EXPECT_LT(moved, 20);
  EXPECT_TRUE(DumpReader::open(path));
}

TEST(DumpDamage, FlippedTables) {
  const Folder folder;
  const std::string path = folder.file("a.h5");
  ASSERT_TRUE(sample::write(path));
  const std::string good = sample::bytes_of(path);
  std::vector<bool> raw(good.size());
  start_hdf5();
  {
    const Handle file = file_handle(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT));
    for (const char* dataset : {"/index", "/steps", "/columns", "/dispatch"})
      mark_raw(file.get(), dataset, raw);
  }
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  int errors = 0, flips = 0;
  for (std::size_t at = 0, said = 0; at < good.size(); ++at) {
    if (!raw[at] || good[at] == 0 || said++ % 3 != 0)
      continue;
    const char flipped = static_cast<char>(~good[at]);
    ASSERT_EQ(pwrite(fd, &flipped, 1, static_cast<off_t>(at)), 1);
    const auto dump = DumpReader::open(path);
    if (dump)
      read_all(*dump);
    errors += !dump;
    ++flips;
    ASSERT_EQ(pwrite(fd, &good[at], 1, static_cast<off_t>(at)), 1);
  }
  close(fd);
  EXPECT_GT(flips, 500);
  EXPECT_GT(errors, 150); // names, digests and shapes are noticed; a mean is not
}

TEST(DumpDamage, TruncatedFiles) {
  const Folder folder;
  const std::string path = folder.file("a.h5");
  ASSERT_TRUE(sample::write(path));
  const std::string good = sample::bytes_of(path);
  for (std::size_t i = 0; i < 300; ++i) {
    // Close together at the start, where the structure is, and over the whole file.
    const std::size_t length = i < 100 ? i * 29 : good.size() * (i - 100) / 200;
    ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(length)), 0);
    const auto dump = DumpReader::open(path);
    ASSERT_FALSE(dump) << length << " of " << good.size();
    EXPECT_EQ(dump.error().code, ExitCode::bad_input);
    EXPECT_NE(dump.error().message.find(path), std::string::npos) << dump.error().message;
    sample::put_bytes(path, good);
  }
}

} // namespace
} // namespace h3diff::probes
