// NumPy's .npy files, format versions 1 to 3, mapped.
#pragma once
#include "h3diff/probes/dtype.hpp"
#include "h3diff/probes/result.hpp"
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace h3diff::cases {

struct NpyArray {
  std::string descr;                  // as the file says: "<f4"
  std::optional<probes::DType> dtype; // nullopt for raw bytes ("|V2"), which say only how wide an element is
  std::size_t item_size = 0;
  std::vector<std::int64_t> shape;
  bool fortran = false;             // the first index varies fastest
  std::span<const std::byte> bytes; // mapped; valid while `file` lives
  std::shared_ptr<const void> file;
};

// bad_input naming the file and the fact: no magic, an unknown version, a header that is cut or no dictionary with
// descr, fortran_order and shape, big-endian elements, objects, structures and other types that probes do not know,
// a size that disagrees with the file's.
Result<NpyArray> open_npy(const std::string& path);

} // namespace h3diff::cases
