#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace h3diff::cases {

class Sha256 {
public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  std::array<std::uint8_t, 32> digest(); // once
  std::string hex();                     // once, instead of digest()

private:
  struct Context;
  std::unique_ptr<Context> context_;
};

} // namespace h3diff::cases
