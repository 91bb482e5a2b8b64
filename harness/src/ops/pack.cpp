#include "ops/ops.hpp"

#include <ATen/ops/index_copy.h>
#include <ATen/ops/zeros.h>

namespace h3diff::harness::ops {
namespace {

Tensor index_copy(const Tensor& text, const Tensor& video, const Tensor& audio, const PackIndices& at_rows,
                  std::int64_t rows) {
  Tensor packed = at::zeros({text.size(0), rows, text.size(-1)}, text.options());
  packed.index_copy_(1, at_rows.text, text);
  packed.index_copy_(1, at_rows.video, video.to(text.scalar_type()));
  packed.index_copy_(1, at_rows.audio, audio.to(text.scalar_type()));
  return packed;
}

} // namespace

std::span<const Implementation<Pack>> pack_implementations() {
  static const std::vector<Implementation<Pack>> all = {{"torch", {floating_dtypes()}, index_copy}};
  return all;
}

} // namespace h3diff::harness::ops
