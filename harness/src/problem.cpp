#include "problem.hpp"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>

namespace h3diff::harness {
namespace {

std::optional<float> generated_timestep(const cases::RowTimesteps& rows, const std::vector<std::int64_t>& indices,
                                        std::int64_t conditioning) {
  if (conditioning >= static_cast<std::int64_t>(indices.size()))
    return std::nullopt;
  return rows.timesteps[static_cast<std::size_t>(
      rows.indices[static_cast<std::size_t>(indices[static_cast<std::size_t>(conditioning)])])];
}

} // namespace

Result<Problem> Problem::open(const RunOptions& options) {
  Problem problem;
  std::error_code ignored;
  if (std::filesystem::exists(options.source, ignored)) {
    cases::Checkpoint::Options checkpoint;
    if (!options.layout.empty()) {
      checkpoint.layout = cases::parse_layout(options.layout);
      if (!checkpoint.layout)
        return usage_error(fmt::format("layout '{}' is not raw, comfy or diffusers", options.layout));
    }
    if (options.seed)
      return usage_error(fmt::format("{} is a bundle: a seed belongs to a case given by name", options.source));
    auto bundle = cases::open_bundle(options.source, checkpoint);
    if (!bundle)
      return bundle.error();
    problem.source_ = std::make_unique<std::variant<cases::Bundle, cases::CaseSpec>>(*std::move(bundle));
    const cases::Bundle& opened = *problem.bundle();
    const int steps = options.steps > 0 ? options.steps : std::max(opened.steps, 1);
    if (auto planned = problem.make_plan(steps, opened.shift_video, opened.shift_audio, !opened.has_case); !planned)
      return planned.error();
    return problem;
  }
  if (!options.layout.empty())
    return usage_error(fmt::format("{} is a case: a layout belongs to a bundle", options.source));
  auto spec = cases::load_case(options.source);
  if (!spec)
    return spec.error();
  if (options.seed)
    spec->seed = *options.seed;
  problem.made_ = cases::make_inputs(*spec);
  problem.source_ = std::make_unique<std::variant<cases::Bundle, cases::CaseSpec>>(*std::move(spec));
  const cases::CaseSpec& loaded = *problem.spec();
  problem.capture_ = loaded.capture;
  const int steps = options.steps > 0 ? options.steps : std::max(loaded.steps, 1);
  if (auto planned = problem.make_plan(steps, loaded.shift_video, loaded.shift_audio, false); !planned)
    return planned.error();
  return problem;
}

const probes::ModelShape& Problem::shape() const {
  return bundle() != nullptr ? bundle()->checkpoint.shape() : spec()->shape;
}

const cases::Inputs& Problem::inputs() const { return bundle() != nullptr ? bundle()->inputs : made_; }

// Step 0 takes the timesteps that came with the inputs. A bundle without case.json says nothing of a schedule: its
// one step goes from the given timesteps to sigma 0; more steps follow the model's schedule from its beginning.
Result<void> Problem::make_plan(int steps, float shift_video, float shift_audio, bool timesteps_given_alone) {
  const cases::Inputs& given = inputs();
  const probes::SequenceLayout& layout = given.sequence.layout;
  if (timesteps_given_alone && steps == 1) {
    StepPlan step;
    step.rows = given.timesteps;
    step.t_video = generated_timestep(step.rows, layout.video_indices, layout.cond_video_rows).value_or(1.0f);
    step.t_audio = generated_timestep(step.rows, layout.audio_indices, layout.cond_audio_rows).value_or(1.0f);
    step.sigma_video = 1.0f - step.t_video;
    step.sigma_audio = 1.0f - step.t_audio;
    plan_.push_back(std::move(step));
    return {};
  }
  const cases::Schedule video = cases::make_schedule(steps, shift_video);
  const cases::Schedule audio = cases::make_schedule(steps, shift_audio);
  if (static_cast<int>(video.timesteps.size()) != steps || static_cast<int>(audio.timesteps.size()) != steps)
    return usage_error(fmt::format("{} steps are more than the schedule has distinct sigmas for", steps));
  for (std::size_t i = 0; i < video.timesteps.size(); ++i) {
    StepPlan step;
    step.t_video = video.timesteps[i];
    step.t_audio = audio.timesteps[i];
    step.rows =
        i == 0 && !timesteps_given_alone ? given.timesteps : cases::row_timesteps(layout, step.t_video, step.t_audio);
    step.sigma_video = video.sigmas[i];
    step.sigma_audio = audio.sigmas[i];
    step.sigma_video_next = video.sigmas[i + 1];
    step.sigma_audio_next = audio.sigmas[i + 1];
    plan_.push_back(std::move(step));
  }
  return {};
}

probes::RunFacts Problem::facts() const {
  probes::RunFacts facts = probes::shape_facts(shape());
  if (const cases::Bundle* opened = bundle()) {
    facts["bundle"] = opened->name;
    facts["case_digest"] = opened->case_digest;
    facts["checkpoint_digest"] = opened->checkpoint.digest();
    if (opened->has_case) {
      facts["case"] = opened->case_name;
      facts["seed"] = static_cast<std::int64_t>(opened->seed);
    }
  } else {
    facts["case"] = spec()->name;
    facts["seed"] = static_cast<std::int64_t>(spec()->seed);
  }
  facts["steps_planned"] = static_cast<std::int64_t>(plan_.size());
  return facts;
}

} // namespace h3diff::harness
