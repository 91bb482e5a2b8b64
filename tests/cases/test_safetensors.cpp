#include "fixtures.hpp"
#include <cstring>

namespace h3diff::cases::test {
namespace {

class Safetensors : public Folder {
protected:
  Error refused(const std::string& header, const std::string& data = "") {
    return refused_bytes(safetensors_bytes(header, data));
  }
  Error refused_bytes(const std::string& bytes) {
    write_file(path("bad.safetensors"), bytes);
    const Error error = error_of(SafetensorsFile::open(path("bad.safetensors")));
    EXPECT_NE(error.message.find("bad.safetensors"), std::string::npos);
    return error;
  }
};

const std::string two_tensors = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                                R"("b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})";
const std::string eleven(11, 'x');

TEST_F(Safetensors, reads_a_plain_file) {
  write_file(path("f"), safetensors_bytes(two_tensors + "   ", eleven));
  const auto file = SafetensorsFile::open(path("f"));
  ASSERT_TRUE(file);
  ASSERT_EQ(file->tensors().size(), 2u);
  EXPECT_EQ(file->tensors()[0].name, "a");
  EXPECT_EQ(file->tensors()[1].dtype, probes::DType::uint8);
  EXPECT_EQ(file->find("b")->bytes.size(), 3u);
  EXPECT_EQ(file->find("b")->elements(), 3);
  EXPECT_EQ(file->find("c"), nullptr);
}

TEST_F(Safetensors, takes_scalars_empty_tensors_metadata_and_dtypes_that_probes_lack) {
  write_file(path("f"), safetensors_bytes(R"({"__metadata__":{"format":"pt"},)"
                                          R"("scalar":{"dtype":"F64","shape":[],"data_offsets":[0,8]},)"
                                          R"("empty":{"dtype":"F32","shape":[0,5],"data_offsets":[8,8]},)"
                                          R"("four":{"dtype":"F4","shape":[2,3],"data_offsets":[8,11]},)"
                                          R"("wide":{"dtype":"U64","shape":[1],"data_offsets":[11,19]}})",
                                          std::string(19, '\0')));
  const auto file = SafetensorsFile::open(path("f"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->metadata().at("format"), "pt");
  EXPECT_EQ(file->find("scalar")->elements(), 1);
  EXPECT_EQ(file->find("empty")->elements(), 0);
  EXPECT_FALSE(file->find("wide")->dtype);
  EXPECT_EQ(file->find("four")->dtype_name, "F4");
}

TEST_F(Safetensors, copies_keep_the_mapping) {
  write_file(path("f"), safetensors_bytes(two_tensors, eleven));
  std::optional<SafetensorsFile> copy;
  {
    const auto file = SafetensorsFile::open(path("f"));
    ASSERT_TRUE(file);
    copy = *file;
  }
  EXPECT_EQ(std::to_integer<char>(copy->find("b")->bytes[2]), 'x');
}

TEST_F(Safetensors, refuses_what_is_no_file) {
  EXPECT_SAYS(error_of(SafetensorsFile::open(path("absent"))), ExitCode::bad_input, "absent", "cannot be opened");
  EXPECT_SAYS(error_of(SafetensorsFile::open(path(""))), ExitCode::bad_input, "not a regular file");
}

TEST_F(Safetensors, refuses_a_short_file) {
  EXPECT_SAYS(refused_bytes(""), ExitCode::bad_input, "0 bytes");
  EXPECT_SAYS(refused_bytes("1234567"), ExitCode::bad_input, "7 bytes");
}

TEST_F(Safetensors, refuses_a_header_longer_than_the_file) {
  EXPECT_SAYS(refused_bytes(std::string("\0\0\0\0\0\0\0\x10", 8) + "{}"), ExitCode::bad_input, "1152921504606846976");
  EXPECT_SAYS(refused_bytes(std::string(8, '\xff') + "{}"), ExitCode::bad_input, "18446744073709551615");
  EXPECT_SAYS(refused_bytes(std::string("\x03\0\0\0\0\0\0\0", 8) + "{}"), ExitCode::bad_input, "claims 3");
}

TEST_F(Safetensors, refuses_a_header_above_the_format_limit) {
  // Sparse: only the length is there.
  const std::string name = path("bad.safetensors");
  write_file(name, std::string("\x01\xe1\xf5\x05\0\0\0\0", 8));
  std::filesystem::resize_file(name, 100'000'020);
  EXPECT_SAYS(error_of(SafetensorsFile::open(name)), ExitCode::bad_input, "100000001", "limit");
}

TEST_F(Safetensors, refuses_a_header_that_is_no_object) {
  EXPECT_SAYS(refused(""), ExitCode::bad_input, "start with '{'");
  EXPECT_SAYS(refused("[]"), ExitCode::bad_input, "start with '{'");
  EXPECT_SAYS(refused(" {}"), ExitCode::bad_input, "start with '{'");
  EXPECT_SAYS(refused("{"), ExitCode::bad_input, "not JSON");
  EXPECT_SAYS(refused("{} x"), ExitCode::bad_input, "not JSON");
  EXPECT_SAYS(refused(R"({"a)"
                      "\xff"
                      R"(":1})"),
              ExitCode::bad_input, "not JSON");
  EXPECT_SAYS(refused(std::string("{}\0", 3)), ExitCode::bad_input, "not JSON");
  EXPECT_SAYS(refused(R"({"a":{"shape":[1e999]}})"), ExitCode::bad_input, "number");
}

TEST_F(Safetensors, refuses_deep_nesting_without_a_crash) {
  EXPECT_SAYS(refused("{\"a\":" + std::string(200'000, '[')), ExitCode::bad_input, "not JSON");
}

TEST_F(Safetensors, refuses_duplicate_keys) {
  const std::string a = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_SAYS(refused("{" + a + "," + a + "}", "x"), ExitCode::bad_input, "\"a\" twice");
  EXPECT_SAYS(refused(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x"),
              ExitCode::bad_input, "\"dtype\" twice");
}

TEST_F(Safetensors, refuses_broken_entries) {
  const auto entry = [&](const std::string& body) { return refused("{\"a\":" + body + "}", "xxxx"); };
  EXPECT_SAYS(entry("3"), ExitCode::bad_input, "tensor a", "object");
  EXPECT_SAYS(entry(R"({"shape":[4],"data_offsets":[0,4]})"), ExitCode::bad_input, "no \"dtype\"");
  EXPECT_SAYS(entry(R"({"dtype":"U8","data_offsets":[0,4]})"), ExitCode::bad_input, "no \"shape\"");
  EXPECT_SAYS(entry(R"({"dtype":"U8","shape":[4]})"), ExitCode::bad_input, "no \"data_offsets\"");
  EXPECT_SAYS(entry(R"({"dtype":7,"shape":[4],"data_offsets":[0,4]})"), ExitCode::bad_input, "not a string");
  EXPECT_SAYS(entry(R"({"dtype":"F17","shape":[4],"data_offsets":[0,4]})"), ExitCode::bad_input, "\"F17\"");
  EXPECT_SAYS(entry(R"({"dtype":"U8","shape":4,"data_offsets":[0,4]})"), ExitCode::bad_input, "not a list");
  EXPECT_SAYS(entry(R"({"dtype":"U8","shape":[-4],"data_offsets":[0,4]})"), ExitCode::bad_input, "non-negative");
  EXPECT_SAYS(entry(R"({"dtype":"U8","shape":[4.0],"data_offsets":[0,4]})"), ExitCode::bad_input, "non-negative");
  EXPECT_SAYS(entry(R"({"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,4]})"), ExitCode::bad_input,
              "non-negative");
  EXPECT_SAYS(entry(R"({"dtype":"U8","shape":[4611686018427387904,8],"data_offsets":[0,4]})"), ExitCode::bad_input,
              "overflows");
  EXPECT_SAYS(entry(R"({"dtype":"F4","shape":[7],"data_offsets":[0,4]})"), ExitCode::bad_input, "whole bytes");
  EXPECT_SAYS(entry(R"({"dtype":"U8","shape":[4],"data_offsets":[0]})"), ExitCode::bad_input, "data_offsets");
  EXPECT_SAYS(entry(R"({"dtype":"U8","shape":[4],"data_offsets":[-4,0]})"), ExitCode::bad_input, "data_offsets");
  EXPECT_SAYS(entry(R"({"dtype":"U8","shape":[4],"data_offsets":[4,0]})"), ExitCode::bad_input, "before its start");
  EXPECT_SAYS(entry(R"({"dtype":"U8","shape":[3],"data_offsets":[0,4]})"), ExitCode::bad_input, "takes 4", "needs 3");
}

TEST_F(Safetensors, refuses_offsets_that_overlap_leave_holes_or_leave_the_file) {
  const auto two = [&](const std::string& first, const std::string& second, const std::string& data) {
    return refused(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + first +
                       R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}",
                   data);
  };
  EXPECT_SAYS(two("[0,4]", "[3,7]", "0123456"), ExitCode::bad_input, "tensor b", "inside");
  EXPECT_SAYS(two("[0,4]", "[0,4]", "0123"), ExitCode::bad_input, "tensor b", "inside");
  EXPECT_SAYS(two("[0,4]", "[5,9]", "012345678"), ExitCode::bad_input, "bytes 4 to 5");
  EXPECT_SAYS(two("[1,5]", "[5,9]", "012345678"), ExitCode::bad_input, "bytes 0 to 1");
  EXPECT_SAYS(two("[0,4]", "[4,8]", "0123456"), ExitCode::bad_input, "tensor b", "7 bytes of data");
  EXPECT_SAYS(two("[0,4]", "[4,8]", "012345678"), ExitCode::bad_input, "1 bytes follow");
  write_file(path("ok"), safetensors_bytes(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]},)"
                                           R"("b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
                                           "01234567"));
  EXPECT_TRUE(SafetensorsFile::open(path("ok"))) << "the order of the header's keys is free";
}

TEST_F(Safetensors, refuses_metadata_that_is_no_map_of_strings) {
  EXPECT_SAYS(refused(R"({"__metadata__":[]})"), ExitCode::bad_input, "__metadata__");
  EXPECT_SAYS(refused(R"({"__metadata__":{"a":1}})"), ExitCode::bad_input, "__metadata__");
}

TEST_F(Safetensors, names_from_a_strange_file_are_escaped) {
  EXPECT_SAYS(refused(R"({"\u001b[31m\nred":{"dtype":"F17","shape":[],"data_offsets":[0,0]}})"), ExitCode::bad_input,
              "\\x1b[31m\\x0ared");
}

TEST_F(Safetensors, a_written_file_is_read_back_and_aligned) {
  auto writer = SafetensorsWriter::create(
      path("w"), {{"x", probes::DType::float32, {2, 3}}, {"y", probes::DType::int8, {}}}, {{"who", "test"}});
  ASSERT_TRUE(writer);
  const std::vector<float> x{1, 2, 3, 4, 5, 6};
  ASSERT_TRUE(writer->write(std::as_bytes(std::span(x).first(4))));
  ASSERT_TRUE(writer->write(std::as_bytes(std::span(x).subspan(4))));
  EXPECT_FALSE(std::filesystem::exists(path("w")));
  ASSERT_TRUE(writer->write(std::vector<std::byte>{std::byte{7}}));
  ASSERT_TRUE(writer->finish());
  EXPECT_FALSE(std::filesystem::exists(path("w.partial")));
  const auto file = SafetensorsFile::open(path("w"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(std::memcmp(file->find("x")->bytes.data(), x.data(), 24), 0);
  EXPECT_EQ(file->find("y")->bytes[0], std::byte{7});
  EXPECT_EQ(file->metadata().at("who"), "test");
  const std::string bytes = read_file(path("w"));
  EXPECT_EQ((8 + static_cast<unsigned char>(bytes[0])) % 8, 0);
}

TEST_F(Safetensors, an_unfinished_file_leaves_nothing) {
  {
    auto writer = SafetensorsWriter::create(path("w"), {{"x", probes::DType::float32, {2}}});
    ASSERT_TRUE(writer);
    EXPECT_TRUE(std::filesystem::exists(path("w.partial")));
    EXPECT_SAYS(error_of(writer->finish()), ExitCode::internal, "8 declared bytes");
    const std::vector<std::byte> many(9);
    EXPECT_SAYS(error_of(writer->write(many)), ExitCode::internal, "1 bytes more");
  }
  EXPECT_TRUE(std::filesystem::is_empty(path("")));
}

TEST_F(Safetensors, an_unwritable_place_is_an_environment_error) {
  EXPECT_SAYS(error_of(SafetensorsWriter::create(path("no/such/folder/w"), {})), ExitCode::environment,
              "cannot be written");
}

} // namespace
} // namespace h3diff::cases::test
