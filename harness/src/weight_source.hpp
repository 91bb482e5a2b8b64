// Where the values of weights come from: a checkpoint or a case.
#pragma once
#include "h3diff/cases/bundle.hpp"
#include "h3diff/cases/checkpoint.hpp"
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace h3diff::harness {

struct WeightSource {
  struct Entry {
    std::string name; // internal, "blocks.3.attn.qkv_proj.weight"
    probes::DType dtype;
    std::vector<std::int64_t> shape;
  };
  std::string label; // for errors
  std::vector<Entry> entries;
  std::function<Result<void>(const Entry&, std::span<std::byte>)> read;

  static WeightSource from(const cases::Checkpoint&); // borrows
  static WeightSource from(const cases::CaseSpec&);   // borrows
};

} // namespace h3diff::harness
