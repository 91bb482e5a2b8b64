#include "h3diff/cases/bundle.hpp"
#include "case_json.hpp"
#include "file.hpp"
#include "h3diff/cases/schedule.hpp"
#include "h3diff/probes/dump.hpp" // printable
#include "input_tensors.hpp"
#include "json.hpp"
#include "sha256.hpp"
#include <fmt/format.h>

namespace h3diff::cases {

using nlohmann::json;

namespace {

struct CaseFacts {
  std::int64_t cond_video_rows = 0, cond_audio_rows = 0;
  std::string layout;
  std::optional<probes::ModelShape> shape;
};

// The stated sigmas must be those of the stated steps and shifts: other schedules cannot run.
void check_schedule(Fields& fields, const json& stated, const Bundle& bundle) {
  const Schedule video = make_schedule(bundle.steps, bundle.shift_video);
  const Schedule audio = make_schedule(bundle.steps, bundle.shift_audio);
  if (!stated.is_array() || stated.size() != static_cast<std::size_t>(bundle.steps))
    return fields.fail("schedule", fmt::format("must be a list with one entry for each of the {} steps", bundle.steps));
  for (std::size_t step = 0; step < stated.size(); ++step)
    for (const auto& [key, schedule] : {std::pair("sigma_video", &video), std::pair("sigma_audio", &audio)}) {
      const json& entry = stated[step];
      if (!entry.is_object() || !entry.contains(key) || !entry[key].is_number())
        return fields.fail("schedule", fmt::format("has no number {} at step {}", key, step));
      const float sigma = step < schedule->sigmas.size() ? schedule->sigmas[step] : -1.0f;
      if (static_cast<float>(entry[key].get<double>()) != sigma)
        return fields.fail("schedule", fmt::format("has {} = {} at step {}, but the shift and {} steps give {}", key,
                                                   entry[key].get<double>(), step, bundle.steps, sigma));
    }
}

// Anyone may write a case.json: every key is optional, and keys that we do not know are somebody else's.
Result<CaseFacts> read_case(const std::string& path, Bundle& bundle) {
  auto text = read_text(path);
  if (!text)
    return text.error();
  auto parsed = parse_json(*text, path);
  if (!parsed)
    return parsed.error();
  CaseFacts facts;
  Fields fields(*parsed, path);
  fields.text("name", bundle.case_name);
  fields.unsigned_integer("seed", bundle.seed);
  fields.integer("steps", bundle.steps, 1, 10000);
  fields.number("shift_video", bundle.shift_video, 0.0);
  fields.number("shift_audio", bundle.shift_audio, 0.0);
  fields.integer("cond_video_rows", facts.cond_video_rows, 0, std::int64_t{1} << 40);
  fields.integer("cond_audio_rows", facts.cond_audio_rows, 0, std::int64_t{1} << 40);
  fields.text("layout", facts.layout);
  if (!facts.layout.empty() && !parse_layout(facts.layout))
    fields.fail("layout", fmt::format("is \"{}\", not raw, comfy or diffusers", probes::printable(facts.layout, 40)));
  if (const json* shape = fields.object("shape")) {
    facts.shape.emplace();
    fields.merge(read_shape(*shape, path, *facts.shape));
  }
  if (auto read = fields.finish(); !read)
    return read.error();
  if (fields.has("schedule"))
    check_schedule(fields, (*parsed)["schedule"], bundle);
  if (auto read = fields.finish(); !read)
    return read.error();
  return facts;
}

// Later steps take their timesteps from the schedule, so the first one must be on it.
Result<void> check_first_step(const Bundle& bundle, const std::string& inputs_path) {
  if (bundle.steps < 2)
    return {};
  const Inputs& inputs = bundle.inputs;
  const RowTimesteps expected =
      row_timesteps(inputs.sequence.layout, make_schedule(bundle.steps, bundle.shift_video).timesteps.front(),
                    make_schedule(bundle.steps, bundle.shift_audio).timesteps.front());
  for (std::size_t row = 0; row < expected.indices.size(); ++row) {
    const float given = inputs.timesteps.timesteps[static_cast<std::size_t>(inputs.timesteps.indices[row])];
    const float wanted = expected.timesteps[static_cast<std::size_t>(expected.indices[row])];
    if (given != wanted)
      return bad_input(fmt::format("{}: row {} has the timestep {}, but step 0 of the {} steps that case.json states "
                                   "has {}",
                                   inputs_path, row, given, bundle.steps, wanted));
  }
  return {};
}

Result<std::string> file_digest(const std::string& path) {
  auto file = MappedFile::open(path);
  if (!file)
    return file.error();
  Sha256 hash;
  hash.update((*file)->bytes());
  return hash.hex();
}

} // namespace

bool is_bundle(const std::string& path) { return folder_exists(path) && file_exists(join(path, "inputs.safetensors")); }

Result<Bundle> open_bundle(const std::string& path, const Checkpoint::Options& given) {
  if (!folder_exists(path))
    return bad_input(fmt::format("{}: is no folder", path));
  const std::string inputs_path = join(path, "inputs.safetensors"), case_path = join(path, "case.json");
  if (!file_exists(inputs_path))
    return bad_input(fmt::format("{}: is no bundle: it has no inputs.safetensors", path));
  if (!folder_exists(join(path, "transformer")))
    return bad_input(fmt::format("{}: is no bundle: it has no folder transformer", path));

  Bundle bundle;
  bundle.path = path;
  bundle.name = last_component(path);
  bundle.has_case = file_exists(case_path);
  CaseFacts facts;
  if (bundle.has_case) {
    auto read = read_case(case_path, bundle);
    if (!read)
      return read.error();
    facts = *read;
  }
  Checkpoint::Options options = given;
  if (!options.layout)
    options.layout = parse_layout(facts.layout);
  if (!options.shape)
    options.shape = facts.shape;
  auto checkpoint = Checkpoint::open(join(path, "transformer"), options);
  if (!checkpoint)
    return checkpoint.error();
  bundle.checkpoint = std::move(*checkpoint);

  auto inputs = read_inputs(inputs_path, bundle.checkpoint.shape(), facts.cond_video_rows, facts.cond_audio_rows);
  if (!inputs)
    return inputs.error();
  bundle.inputs = std::move(*inputs);
  if (auto checked = check_first_step(bundle, inputs_path); !checked)
    return checked.error();
  auto digest = file_digest(inputs_path);
  if (!digest)
    return digest.error();
  bundle.case_digest = *digest;
  return bundle;
}

} // namespace h3diff::cases
