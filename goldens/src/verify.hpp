// Do captured tensors carry the digests that the index claims for them?
#pragma once
#include "h3diff/probes/dump.hpp"

namespace h3diff::goldens {

// The digest of docs/dump-format.md section 7, fed by rows. Written from the text and sharing no code with the
// producers, so that it checks them; it streams, so that memory stays flat.
class RowDigest {
public:
  explicit RowDigest(std::int64_t row_bytes) : row_bytes_(row_bytes) {}
  void add(const std::byte* rows, std::int64_t count); // all but the last call: a multiple of 4 rows
  probes::Digest finish() const;

private:
  std::int64_t row_bytes_, rows_ = 0;
  std::uint64_t a_ = 0, b_ = 0;
};

// bad_input that names the file and the first tensor that is not what its digest says. Tensors stored in another
// dtype than the digested one, and sampled rows, cannot be checked this way and are not.
Result<void> verify_tensors(const probes::DumpReader&);

} // namespace h3diff::goldens
