#pragma once
#include "h3diff/cases/bundle.hpp"
#include <filesystem>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace h3diff::cases::test {

// A folder of its own for each test, removed afterwards.
class Folder : public ::testing::Test {
protected:
  void SetUp() override;
  void TearDown() override;
  std::string path(const std::string& name) const { return (root_ / name).string(); }

private:
  std::filesystem::path root_;
};

void write_file(const std::string& path, const std::string& bytes);
std::string read_file(const std::string& path);

// A safetensors file from any header text, right or wrong.
std::string safetensors_bytes(const std::string& header, const std::string& data);

// A safetensors file as a map, for tests that change one thing in a good one.
struct LooseTensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};
using LooseFile = std::map<std::string, LooseTensor>;
LooseFile load_loose(const std::string& path);
void save_loose(const std::string& path, const LooseFile&);

// Two blocks, one refiner block, conditioning of every kind; a few kilobytes.
CaseSpec little_case();
// Exports it to `path`; returns the path of its one checkpoint file.
std::string export_little(const std::string& path, Layout, const CaseSpec& spec = little_case());

// The error of a failed result; fails the test where there is none.
template <class T> Error error_of(const Result<T>& result) {
  EXPECT_FALSE(static_cast<bool>(result));
  return result ? Error{} : result.error();
}

#define EXPECT_SAYS(error, expected_code, ...)                                                                         \
  do {                                                                                                                 \
    const h3diff::Error said = (error);                                                                                \
    EXPECT_EQ(said.code, expected_code) << said.message;                                                               \
    for (const std::string& part : std::vector<std::string>{__VA_ARGS__})                                              \
      EXPECT_NE(said.message.find(part), std::string::npos) << "\"" << said.message << "\" lacks \"" << part << "\"";  \
    EXPECT_EQ(said.message.find('\n'), std::string::npos);                                                             \
  } while (false)

} // namespace h3diff::cases::test
