// The cases library as JSON and files, for the Python tests beside it.
//   case_tool schedule STEPS SHIFT
//   case_tool pack CASE_FILE VIDEO_T AUDIO_T
//   case_tool normals SEED NAME BEGIN COUNT
//   case_tool export CASE_FILE LAYOUT FOLDER [GRID RANK [COLUMNS PAD]]
//   case_tool weights BUNDLE LAYOUT|- FILE      the weights in internal form, as safetensors
#include "h3diff/cases/bundle.hpp"
#include "h3diff/cases/philox.hpp"
#include "h3diff/cases/schedule.hpp"
#include <fmt/format.h>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

using namespace h3diff;
using namespace h3diff::cases;

namespace {

[[noreturn]] void fail(const Error& error) {
  std::cerr << error.message << "\n";
  std::exit(static_cast<int>(error.code));
}

CaseSpec read_case(const std::string& path) {
  std::ifstream file(path);
  auto spec = CaseSpec::parse(std::string(std::istreambuf_iterator<char>(file), {}), path);
  if (!spec)
    fail(spec.error());
  return *spec;
}

void print(const nlohmann::json& value) { std::cout << value.dump() << "\n"; }

std::vector<double> doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }

void pack_case(const CaseSpec& spec, float video_t, float audio_t) {
  const PackedSequence packed = pack(spec.geometry, spec.shape);
  const RowTimesteps rows = row_timesteps(packed.layout, video_t, audio_t);
  print({{"position_ids", packed.position_ids},
         {"token_tags", packed.layout.token_tags},
         {"video_indices", packed.layout.video_indices},
         {"audio_indices", packed.layout.audio_indices},
         {"text_indices", packed.layout.text_indices},
         {"cond_video_rows", packed.layout.cond_video_rows},
         {"cond_audio_rows", packed.layout.cond_audio_rows},
         {"timesteps", doubles(rows.timesteps)},
         {"timestep_indices", rows.indices}});
}

Result<void> write_weights(const Bundle& bundle, const std::string& path) {
  std::vector<SafetensorsWriter::Declared> declared;
  for (const WeightInfo& weight : bundle.checkpoint.weights())
    declared.push_back({weight.name, weight.dtype, weight.shape});
  auto writer = SafetensorsWriter::create(path, declared);
  if (!writer)
    return writer.error();
  for (const WeightInfo& weight : bundle.checkpoint.weights()) {
    std::size_t bytes = probes::item_size(weight.dtype);
    for (const std::int64_t size : weight.shape)
      bytes *= static_cast<std::size_t>(size);
    std::vector<std::byte> data(bytes);
    if (auto read = bundle.checkpoint.read(weight.name, data); !read)
      return read;
    if (auto written = writer->write(data); !written)
      return written;
  }
  return writer->finish();
}

int run(const std::vector<std::string>& words) {
  const std::string verb = words.at(0);
  if (verb == "schedule") {
    const Schedule schedule = make_schedule(std::stoi(words.at(1)), std::stod(words.at(2)));
    print({{"sigmas", doubles(schedule.sigmas)}, {"timesteps", doubles(schedule.timesteps)}});
  } else if (verb == "pack") {
    pack_case(read_case(words.at(1)), std::stof(words.at(2)), std::stof(words.at(3)));
  } else if (verb == "normals") {
    std::vector<float> values(std::stoul(words.at(4)));
    TensorStream(std::stoull(words.at(1)), words.at(2)).normals(std::stoull(words.at(3)), values);
    print(doubles(values));
  } else if (verb == "export") {
    ExportOptions options;
    options.layout = parse_layout(words.at(2)).value();
    options.path = words.at(3);
    if (words.size() > 5)
      options.curve_grid = std::stoll(words[4]), options.curve_rank = std::stoll(words[5]);
    if (words.size() > 7)
      options.pad_columns = std::stoll(words[6]), options.pad = words[7];
    if (auto done = export_bundle(read_case(words.at(1)), options); !done)
      fail(done.error());
  } else if (verb == "weights") {
    const auto bundle = open_bundle(words.at(1), {parse_layout(words.at(2)), std::nullopt});
    if (!bundle)
      fail(bundle.error());
    if (auto written = write_weights(*bundle, words.at(3)); !written)
      fail(written.error());
  } else {
    fail(usage_error("unknown verb " + verb));
  }
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& failure) {
    std::cerr << "case_tool: " << failure.what() << "\n";
    return 70;
  }
}
