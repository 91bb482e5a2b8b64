// Between torch's tensors and the torch-free halves: dtypes, views, host copies.
#pragma once
#include "h3diff/probes/dtype.hpp"
#include "h3diff/probes/tensor_view.hpp"
#include <ATen/core/Tensor.h>
#include <optional>

namespace h3diff::harness {

at::ScalarType scalar_type(probes::DType);
std::optional<probes::DType> probe_dtype(at::ScalarType); // nullopt for a dtype that probes do not know

// Element order of a probe's columns relative to the tensor's: `swapped` exchanges the two halves of the last
// dimension, without a copy.
enum class Halves { as_is, swapped };

// A borrowed reading of a host tensor: its leading `row_dims` dimensions are rows. Valid while the tensor lives.
probes::TensorView view_of(const at::Tensor& host, int row_dims, Halves = Halves::as_is);

} // namespace h3diff::harness
