// Numbers of docs/stream-format.md, and a reader of packed little-endian payloads.
#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace h3diff::probes::stream {

static_assert(std::endian::native == std::endian::little);

inline constexpr std::size_t header_bytes = 16, frame_bytes = 12; // tag, length and CRC around a payload
inline constexpr std::array<unsigned char, 8> magic{0x89, 'H', '3', 'S', 'T', 'R', '\r', '\n'};
inline constexpr std::uint32_t version = 1;
inline constexpr std::uint32_t max_payload = 1u << 24;

inline constexpr std::size_t probe_limit = 80, fact_name_limit = 64, fact_text_limit = 4096, op_limit = 32,
                             implementation_limit = 64, reason_limit = 160;

constexpr std::uint32_t tag(const char (&text)[5]) {
  std::uint32_t value = 0;
  for (int i = 3; i >= 0; --i)
    value = value << 8 | static_cast<unsigned char>(text[i]);
  return value;
}

// zlib's CRC-32, continued: begin with 0.
std::uint32_t crc32(std::uint32_t crc, std::span<const unsigned char> bytes);

// Takes numbers and text from the front of a payload. What is not there reads as 0 and makes ok() false.
class Payload {
public:
  explicit Payload(std::span<const unsigned char> bytes) : bytes_(bytes) {}
  bool ok() const { return ok_; }
  std::size_t left() const { return bytes_.size() - at_; }
  std::size_t position() const { return at_; }

  template <class T> T take() {
    T value{};
    if (left() < sizeof value) {
      ok_ = false;
      at_ = bytes_.size();
    } else {
      std::memcpy(&value, bytes_.data() + at_, sizeof value);
      at_ += sizeof value;
    }
    return value;
  }
  std::string text(std::size_t size) {
    if (left() < size) {
      ok_ = false;
      size = left();
    }
    std::string out(reinterpret_cast<const char*>(bytes_.data() + at_), size);
    at_ += size;
    return out;
  }

private:
  std::span<const unsigned char> bytes_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

} // namespace h3diff::probes::stream
