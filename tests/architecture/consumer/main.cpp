// A stranger's program: writes a dump, reads it, compares it with itself.
#include <h3diff/goldens/compare.hpp>
#include <h3diff/probes/dump.hpp>
#include <cstdio>
#include <vector>

using namespace h3diff;

int main(int argc, char** argv) {
  if (argc != 2)
    return 2;
  const std::string path = argv[1];
  probes::RunFacts facts = probes::shape_facts(probes::ModelShape{});
  facts["compute_dtype"] = std::string("float32");
  auto writer = probes::DumpWriter::create({.path = path, .overwrite = true}, facts);
  if (!writer)
    return std::fprintf(stderr, "%s\n", writer.error().message.c_str()), 3;

  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  const auto view = probes::TensorView::contiguous(values.data(), probes::DType::float32, 2, 3);
  const std::vector<probes::RowRange> rows{{0, 2}};
  const auto measured = probes::measure(view, rows, {});
  probes::IndexRow row;
  row.probe = "pred.video";
  row.segment = probes::Segment::video;
  row.rows = measured.rows;
  row.cols = measured.cols;
  row.digest = measured.digest;
  row.statistics = measured.statistics;
  row.sketch_k = 256;
  writer->add(row, measured.sketch);
  if (auto done = writer->end_step({.step = 0, .sigma_video = 1, .sigma_audio = 1}); !done)
    return 3;
  if (auto done = writer->finish({}); !done)
    return 3;

  const auto result = goldens::compare(path, path, {});
  if (!result)
    return std::fprintf(stderr, "%s\n", result.error().message.c_str()), 3;
  std::printf("compared %lld of %lld\n", static_cast<long long>(result->compared),
              static_cast<long long>(result->expected));
  return result->compared == 1 && result->verdict == goldens::Outcome::bitwise ? 0 : 1;
}
