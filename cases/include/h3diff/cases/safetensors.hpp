// safetensors files: memory-mapped reading with every rule of the format checked, and streaming writing.
#pragma once
#include "h3diff/probes/dtype.hpp"
#include "h3diff/probes/result.hpp"
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace h3diff::cases {

struct TensorEntry {
  std::string name;
  std::string dtype_name;             // as the file says: "BF16"
  std::optional<probes::DType> dtype; // nullopt for a legal dtype that probes do not know
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes; // mapped; valid while the file lives
  std::int64_t elements() const;
};

// One mapped file. Copies share the mapping.
class SafetensorsFile {
public:
  // bad_input naming the file, the tensor and the fact: header longer than the file or than 100 MB, not UTF-8
  // JSON or not starting with '{', duplicate keys, unknown dtype, negative or overflowing shape, offsets out of
  // order, out of range, overlapping or leaving holes, a size that disagrees with dtype and shape, trailing bytes.
  static Result<SafetensorsFile> open(const std::string& path);
  const std::string& path() const;
  const std::vector<TensorEntry>& tensors() const; // in order of offset
  const TensorEntry* find(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const; // __metadata__

private:
  struct Mapping;
  std::shared_ptr<const Mapping> mapping_;
};

// Writes PATH.partial and renames; data is given tensor by tensor in the order declared.
class SafetensorsWriter {
public:
  struct Declared {
    std::string name;
    probes::DType dtype;
    std::vector<std::int64_t> shape;
  };
  static Result<SafetensorsWriter> create(const std::string& path, std::vector<Declared> tensors,
                                          const std::map<std::string, std::string>& metadata = {});
  SafetensorsWriter(SafetensorsWriter&&) noexcept;
  ~SafetensorsWriter();                                               // removes the .partial file unless finished
  Result<void> write(std::span<const std::byte> next_tensor_or_part); // parts of a tensor may come one by one
  Result<void> finish();                                              // error if bytes are missing

private:
  struct Impl;
  explicit SafetensorsWriter(std::unique_ptr<Impl>);
  std::unique_ptr<Impl> impl_;
};

} // namespace h3diff::cases
