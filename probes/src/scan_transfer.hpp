// The hand-over of dump_scan.hpp as the parent sees it.
#pragma once
#include "dump_scan.hpp"

#include <string>

namespace h3diff::probes {

std::string encode_facts(const RunFacts&);

// Everything of a hand-over but the sketches, which stay in the file in memory.
struct Scan {
  RunFacts facts;
  std::vector<IndexRecord> index;
  std::vector<ColumnRecord> columns;
  std::vector<DispatchRecord> dispatch;
  std::vector<StepRecord> steps;
  std::vector<UnobservedRecord> unobserved;
  std::vector<TensorRecord> tensors;
  struct Sketches {
    std::uint64_t offset = 0; // in the file in memory
    std::int64_t rows = 0;
  };
  Sketches sketches[3]; // k = 64, 128, 256
};

Result<Scan> read_scan(int fd, const std::string& path);

} // namespace h3diff::probes
