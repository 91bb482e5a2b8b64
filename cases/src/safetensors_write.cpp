#include "file.hpp"
#include "safetensors_format.hpp"
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace h3diff::cases {
namespace {

std::uint64_t bytes_of(const SafetensorsWriter::Declared& tensor) {
  std::uint64_t bytes = probes::item_size(tensor.dtype);
  for (const std::int64_t size : tensor.shape)
    bytes *= static_cast<std::uint64_t>(size);
  return bytes;
}

} // namespace

std::string safetensors_header(const std::vector<SafetensorsWriter::Declared>& tensors,
                               const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty())
    header["__metadata__"] = metadata;
  std::uint64_t offset = 0;
  for (const auto& tensor : tensors) {
    const std::uint64_t end = offset + bytes_of(tensor);
    header[tensor.name] = {
        {"dtype", safetensors_name(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string out;
  for (int byte = 0; byte < 8; ++byte)
    out += static_cast<char>((std::uint64_t{text.size()} >> (8 * byte)) & 0xFF);
  return out + text;
}

struct SafetensorsWriter::Impl {
  std::string path;
  OutputFile file;
  std::uint64_t remaining = 0;
};

SafetensorsWriter::SafetensorsWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&&) noexcept = default;
SafetensorsWriter::~SafetensorsWriter() = default;

Result<SafetensorsWriter> SafetensorsWriter::create(const std::string& path, std::vector<Declared> tensors,
                                                    const std::map<std::string, std::string>& metadata) {
  auto file = OutputFile::create(path);
  if (!file)
    return file.error();
  std::uint64_t total = 0;
  for (const Declared& tensor : tensors)
    total += bytes_of(tensor);
  auto impl = std::make_unique<Impl>(Impl{path, std::move(*file), total});
  const std::string header = safetensors_header(tensors, metadata);
  if (auto written = impl->file.write(std::as_bytes(std::span(header))); !written)
    return written.error();
  return SafetensorsWriter(std::move(impl));
}

Result<void> SafetensorsWriter::write(std::span<const std::byte> part) {
  if (part.size() > impl_->remaining)
    return Error{ExitCode::internal, fmt::format("{}: {} bytes more than its tensors were declared to have",
                                                 impl_->path, part.size() - impl_->remaining)};
  impl_->remaining -= part.size();
  return impl_->file.write(part);
}

Result<void> SafetensorsWriter::finish() {
  if (impl_->remaining != 0)
    return Error{ExitCode::internal,
                 fmt::format("{}: {} declared bytes were not written", impl_->path, impl_->remaining)};
  return impl_->file.commit();
}

} // namespace h3diff::cases
