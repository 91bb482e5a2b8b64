// The three checkpoint layouts as one table (layout_table.cpp), and what follows from it for a model's shape.
#pragma once
#include "h3diff/cases/checkpoint.hpp"
#include <string>
#include <vector>

namespace h3diff::cases {

// `rows` consecutive rows of a file's tensor, which are rows [internal_row, internal_row + rows) internally.
struct RowRun {
  std::int64_t internal_row = 0, rows = 0;
};

// One tensor of a checkpoint file. The runs stand in the file's row order and cover it. A 1-D tensor counts as
// one row per element.
struct FileTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<RowRun> runs;
};

struct LayoutWeight {
  std::string name;                // internal
  std::vector<std::int64_t> shape; // internal
  bool island = false;             // float32 in a mixed-precision checkpoint
  std::vector<FileTensor> parts;   // empty where the layout has no such tensor
};

// In the graph's weight order.
std::vector<LayoutWeight> layout_weights(const probes::ModelShape&, Layout);

std::string module_of(std::string_view internal_name); // without ".weight"
std::string probe_of(std::string_view internal_name);  // "weights.blocks.3.adaln_proj.bias"

} // namespace h3diff::cases
