// Readers that are not ours: h5dump and h5py see numbers and names.
#include "dump_sample.hpp"

#include <gtest/gtest.h>

#include <cstdio>

namespace h3diff::probes {
namespace {

using sample::Folder;

struct Ran {
  int status = -1;
  std::string output;
};

Ran shell(const std::string& command) {
  Ran ran;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr)
    return ran;
  char buffer[4096];
  for (std::size_t got; (got = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    ran.output.append(buffer, got);
  ran.status = pclose(pipe);
  return ran;
}

std::string with_tensors(const Folder& folder) {
  const std::string path = folder.file("a.h5");
  auto writer = DumpWriter::create({path}, sample::facts());
  // 1.5, -2, 0.15625 as the upper halves of their float32 patterns; then the same in IEEE half.
  const std::uint16_t bfloat[] = {0x3FC0, 0xC000, 0x3E20}, half[] = {0x3E00, 0xC000, 0x3100};
  const std::uint8_t flags[] = {1, 0, 1};
  const RowRange all[] = {{0, 1}};
  const std::pair<DType, const void*> tensors[] = {
      {DType::bfloat16, bfloat}, {DType::float16, half}, {DType::boolean, flags}};
  for (const auto& [dtype, data] : tensors) {
    IndexRow row = sample::row(0, 0, std::string("as.") + std::string(name(dtype)), Segment::all, 1, 3);
    row.dtype = row.stored_dtype = dtype;
    row.statistics = Statistics{};
    row.statistics.mean = -0.125;
    row.level = Level::full;
    writer->add(row, sample::sketch_of(0, 0, 128));
    if (auto ok = writer->add_tensor(0, row.probe, row.segment, TensorView::contiguous(data, dtype, 1, 3), all); !ok)
      return ok.error().message;
  }
  if (auto ok = writer->end_step({0, 0.75, 0.5, 0.25, 0.125}); !ok)
    return ok.error().message;
  if (auto ok = writer->finish({}); !ok)
    return ok.error().message;
  return path;
}

TEST(DumpTools, H5dumpPrintsNumbers) {
  const std::string h5dump = H3DIFF_H5DUMP;
  if (h5dump.empty())
    GTEST_SKIP() << "h5dump is not installed";
  const Folder folder;
  const std::string path = with_tensors(folder);
  for (const char* dtype : {"bfloat16", "float16"}) {
    const Ran ran = shell(h5dump + " -d /tensors/0/as." + dtype + "/all " + path);
    EXPECT_EQ(ran.status, 0) << ran.output;
    EXPECT_NE(ran.output.find("1.5, -2, 0.15625"), std::string::npos) << ran.output;
  }
  const Ran whole = shell(h5dump + " " + path);
  EXPECT_EQ(whole.status, 0) << whole.output.substr(0, 2000);
  EXPECT_NE(whole.output.find("\"as.bfloat16"), std::string::npos);
}

TEST(DumpTools, H5pyReadsNumbersAndNames) {
  const std::string python = H3DIFF_PYTHON;
  if (shell(python + " -c 'import h5py'").status != 0)
    GTEST_SKIP() << python << " has no h5py";
  const Folder folder;
  const std::string path = with_tensors(folder);
  sample::put_bytes(folder.file("check.py"), R"(
import sys, h5py, numpy
f = h5py.File(sys.argv[1])
assert f.attrs["format"] == b"h3diff-dump" or f.attrs["format"] == "h3diff-dump", f.attrs["format"]
assert f.attrs["version"] == 1
for dtype in ("bfloat16", "float16"):
    tensor = f["tensors/0/as." + dtype + "/all"]
    assert tensor[...].tolist() == [[1.5, -2.0, 0.15625]], tensor[...]
    assert tensor.attrs["dtype"] in (dtype, dtype.encode())
assert f["tensors/0/as.float16/all"].dtype == numpy.float16
assert f["tensors/0/as.bool/all"].dtype == numpy.uint8
index = f["index"][...]
assert len(index) == 3 and index["probe"][0] == b"as.bfloat16" and index["level"][2] == b"full"
assert index["mean"].tolist() == [-0.125] * 3 and index["row_bands"].shape == (3, 16)
assert len(index["digest"][0]) == 32
assert f["sketches/k128"].shape == (3, 128) and f["sketches/k128"].dtype == numpy.float32
assert f["steps"]["sigma_audio_next"].tolist() == [0.125]
assert f["run"].attrs["finished"] == 1 and f["run"].attrs["hidden_size"] == 5376
print("read")
)");
  const Ran ran = shell(python + " " + folder.file("check.py") + " " + path);
  EXPECT_EQ(ran.status, 0) << ran.output;
  EXPECT_EQ(ran.output, "read\n");
}

// Steps on disk are complete at every moment, so nothing has to be repaired before others can read them.
TEST(DumpTools, H5pyReadsAFileThatIsBeingWritten) {
  const std::string python = H3DIFF_PYTHON;
  if (shell(python + " -c 'import h5py'").status != 0)
    GTEST_SKIP() << python << " has no h5py";
  const Folder folder;
  auto writer = DumpWriter::create({folder.file("a.h5")}, sample::facts());
  ASSERT_TRUE(sample::add_step(*writer, 0));
  ASSERT_TRUE(sample::add_step(*writer, 1));
  const Ran ran = shell(
      python + " -c 'import sys, h5py; f = h5py.File(sys.argv[1]); print(len(f[\"index\"]), len(f[\"steps\"]))' " +
      writer->partial_path());
  EXPECT_EQ(ran.output, "6 2\n");
}

} // namespace
} // namespace h3diff::probes
