// The comparison that one would write with numpy and h5py: the same figures as ours, in chunks of 16 MiB.
#pragma once

namespace h3diff::cli {

inline constexpr const char* numpy_comparison = R"python(
import sys
import h5py
import numpy as np

reference, candidate = (h5py.File(path, "r") for path in sys.argv[1:3])
names = []
reference["tensors"].visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
outside = 0
for name in names:
    a, b = reference["tensors"][name], candidate["tensors"][name]
    step = max(1, (16 << 20) // (a.shape[1] * a.dtype.itemsize))
    difference = squares_a = squares_b = product = sum_a = sum_b = 0.0
    worst, finite = 0.0, True
    for begin in range(0, a.shape[0], step):
        x = a[begin:begin + step].ravel().astype(np.float64)
        y = b[begin:begin + step].ravel().astype(np.float64)
        d = y - x
        difference += d @ d
        squares_a += x @ x
        squares_b += y @ y
        product += x @ y
        sum_a += x.sum()
        sum_b += y.sum()
        worst = max(worst, np.abs(d).max())
        finite = finite and bool(np.isfinite(d).all())
    relative = (difference / squares_a) ** 0.5
    cosine = product / (squares_a * squares_b) ** 0.5
    std_ratio = ((squares_b / a.size - (sum_b / a.size) ** 2) / (squares_a / a.size - (sum_a / a.size) ** 2)) ** 0.5
    outside += relative > 1e-5 or not finite
    print(name, relative, cosine, std_ratio, worst)
print(len(names), "compared,", outside, "outside")
)python";

} // namespace h3diff::cli
