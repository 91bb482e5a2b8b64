#include "sha256.hpp"
#include <fmt/format.h>
#include <openssl/evp.h>
#include <stdexcept>

namespace h3diff::cases {

struct Sha256::Context {
  EVP_MD_CTX* handle = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(handle); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  if (!context_->handle || EVP_DigestInit_ex(context_->handle, EVP_sha256(), nullptr) != 1)
    throw std::runtime_error("the crypto library has no SHA-256");
}
Sha256::~Sha256() = default;

void Sha256::update(std::span<const std::byte> bytes) {
  if (EVP_DigestUpdate(context_->handle, bytes.data(), bytes.size()) != 1)
    throw std::runtime_error("SHA-256 failed");
}

void Sha256::update(std::string_view text) { update(std::as_bytes(std::span(text.data(), text.size()))); }

std::array<std::uint8_t, 32> Sha256::digest() {
  std::array<std::uint8_t, 32> out{};
  unsigned size = 0;
  if (EVP_DigestFinal_ex(context_->handle, out.data(), &size) != 1 || size != out.size())
    throw std::runtime_error("SHA-256 failed");
  return out;
}

std::string Sha256::hex() {
  std::string text;
  for (const std::uint8_t byte : digest())
    text += fmt::format("{:02x}", byte);
  return text;
}

} // namespace h3diff::cases
