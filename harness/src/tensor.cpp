#include "tensor.hpp"

#include <c10/util/Exception.h>

namespace h3diff::harness {

at::ScalarType scalar_type(probes::DType dtype) {
  using probes::DType;
  switch (dtype) {
  case DType::float64: return at::kDouble;
  case DType::float32: return at::kFloat;
  case DType::bfloat16: return at::kBFloat16;
  case DType::float16: return at::kHalf;
  case DType::float8_e4m3fn: return at::kFloat8_e4m3fn;
  case DType::float8_e5m2: return at::kFloat8_e5m2;
  case DType::int8: return at::kChar;
  case DType::uint8: return at::kByte;
  case DType::int32: return at::kInt;
  case DType::int64: return at::kLong;
  case DType::boolean: return at::kBool;
  }
  TORCH_INTERNAL_ASSERT(false, "unknown dtype");
}

std::optional<probes::DType> probe_dtype(at::ScalarType type) {
  for (int i = 0; i < probes::dtype_count; ++i)
    if (scalar_type(static_cast<probes::DType>(i)) == type)
      return static_cast<probes::DType>(i);
  return std::nullopt;
}

probes::TensorView view_of(const at::Tensor& host, int row_dims, Halves halves) {
  TORCH_INTERNAL_ASSERT(host.device().is_cpu() && host.dim() < 6 && row_dims <= host.dim());
  const auto dtype = probe_dtype(host.scalar_type());
  TORCH_INTERNAL_ASSERT(dtype.has_value());
  probes::TensorView view;
  view.data = host.const_data_ptr();
  view.dtype = *dtype;
  view.row_dims = row_dims;
  for (const std::int64_t size : host.sizes())
    view.sizes[view.dims++] = size;
  for (int i = 0; i < view.dims; ++i)
    view.strides[i] = host.stride(i);
  if (halves == Halves::swapped) {
    // The last dimension 2n becomes [2, n], the first of which runs backwards from the second half.
    const int last = view.dims - 1;
    const std::int64_t half = view.sizes[last] / 2, stride = view.strides[last];
    TORCH_INTERNAL_ASSERT(last >= row_dims && view.sizes[last] == 2 * half);
    view.data = static_cast<const std::byte*>(view.data) + half * stride * host.element_size();
    view.sizes[last] = 2;
    view.strides[last] = -half * stride;
    view.sizes[view.dims] = half;
    view.strides[view.dims] = stride;
    ++view.dims;
  }
  return view;
}

} // namespace h3diff::harness
