#include "verify.hpp"
#include "run_builder.hpp"
#include "h3diff/goldens/compare.hpp"
#include <gtest/gtest.h>
#include <fstream>

namespace h3diff::goldens {
namespace {

using namespace testing;

std::string digest_of(std::int64_t rows, std::int64_t row_bytes, const std::vector<unsigned char>& bytes) {
  RowDigest digest(row_bytes);
  const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
  for (std::int64_t begin = 0; begin < rows; begin += 4) // in the smallest pieces that are allowed
    digest.add(data + begin * row_bytes, std::min<std::int64_t>(4, rows - begin));
  return digest.finish().hex();
}

TEST(RowDigest, GivesTheCheckValuesOfTheFormat) {
  EXPECT_EQ(digest_of(0, 0, {}), "00000000000000000000000000000000");
  EXPECT_EQ(digest_of(1, 1, {0}), "821295fcf5ed867af1004d6131041cc8");
  EXPECT_EQ(digest_of(1, 1, {1}), "4aa3f135b3f95c3f911ba4c5589b4dbe");
  std::vector<unsigned char> bytes(15);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<unsigned char>(i);
  EXPECT_EQ(digest_of(3, 5, bytes), "45055e580eb0ce0751968991355bffa6");
  bytes.resize(200);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<unsigned char>(7 * i);
  EXPECT_EQ(digest_of(5, 40, bytes), "5c7859a5bf99f55936ee8e4df01591b0");
}

TEST(RowDigest, AgreesWithTheProducers) {
  for (const std::int64_t rows : {1, 4, 37, 130})
    for (const std::int64_t width : {1, 16, 33, 700}) {
      std::vector<unsigned char> bytes(static_cast<std::size_t>(rows * width));
      for (std::size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = static_cast<unsigned char>(i * i + 11 * i);
      EXPECT_EQ(digest_of(rows, width, bytes), probes::digest_bytes(bytes.data(), rows, width).hex());
    }
}

TEST(Verify, FindsATensorThatIsNotWhatItsDigestSays) {
  SampleRun run;
  run.steps = 1;
  run.level = [](const std::string&) { return Level::full; };
  // A value that stands once in the file.
  run.edit = [](const Where& where, Values& values) {
    if (where == Where{0, "blocks.1.norm2", Segment::video})
      values.at(4, 4) = 12345.678F;
  };
  const auto good = run.write("good.h5"), bad = run.write("bad.h5");
  CompareOptions options;
  options.verify = true;
  ASSERT_TRUE(compare(good, bad, options));

  std::fstream file(bad, std::ios::in | std::ios::out | std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  const float needle = 12345.678F;
  const std::string pattern(reinterpret_cast<const char*>(&needle), 4);
  // The last place is the tensor's: min, max and absmax are float64.
  const auto at = bytes.rfind(pattern);
  ASSERT_NE(at, std::string::npos);
  file.clear();
  file.seekp(static_cast<std::streamoff>(at));
  file.put('\x01');
  file.close();

  const auto trusting = compare(good, bad, {});
  ASSERT_TRUE(trusting);
  EXPECT_EQ(trusting->verdict, Outcome::bitwise); // equal digests are not read twice
  const auto refused = compare(good, bad, options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ExitCode::bad_input);
  EXPECT_NE(refused.error().message.find("blocks.1.norm2"), std::string::npos) << refused.error().message;
}

} // namespace
} // namespace h3diff::goldens
