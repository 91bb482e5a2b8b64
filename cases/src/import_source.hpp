// What the folder to import holds, with what its dump.json says about it.
#pragma once
#include "h3diff/probes/dump.hpp"
#include "import_tensor.hpp"
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace h3diff::cases {

struct SourceTensor {
  std::string name; // without "stepN/"
  int step = 0;
  bool step_given = false;
  std::string file; // path, for messages
  ImportTensor tensor;
  std::optional<probes::DType> compute_dtype;
  bool fortran = false; // an .npy whose first index varies fastest: `tensor` holds the reversed axes
};

struct ImportSource {
  std::string path;
  std::vector<SourceTensor> tensors; // in the order of dump.json, else of files and names
  bool ordered = false;              // dump.json gave an order
  std::optional<probes::DType> compute_dtype;
  std::vector<probes::StepRow> sigmas;
  std::vector<probes::DispatchRow> dispatch;
  std::vector<probes::Unobserved> unobserved;
  probes::RunFacts facts; // pipeline, device and the like

  const SourceTensor* find(int step, std::string_view name) const;
  // The elements, row-major.
  static ImportTensor load(const SourceTensor&);
};

Result<ImportSource> open_import_source(const std::string& path);

} // namespace h3diff::cases
