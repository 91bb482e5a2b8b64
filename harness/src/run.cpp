#include "h3diff/harness/run.hpp"

#include "dispatcher.hpp"
#include "environment.hpp"
#include "model.hpp"
#include "observer.hpp"
#include "problem.hpp"
#include "recorder.hpp"
#include "sampler.hpp"
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <new>

namespace h3diff::harness {
namespace {

#ifndef H3DIFF_VERSION
#error "the build defines H3DIFF_VERSION"
#endif

struct Settings {
  cases::Profile profile;
  Device device;
  ZeroColumns zero_columns;
  probes::CaptureSpec capture;
};

Result<Settings> settle(const RunOptions& options, const Problem& problem) {
  Settings settings;
  auto profile = cases::load_profile(options.profile);
  if (!profile)
    return profile.error();
  settings.profile = *std::move(profile);
  auto device = open_device(options.device);
  if (!device)
    return device.error();
  settings.device = *std::move(device);
  auto zero = ZeroColumns::parse(options.zero_columns);
  if (!zero)
    return zero.error();
  if (auto fits = zero->check(probes::Graph(problem.shape())); !fits)
    return fits.error();
  settings.zero_columns = *std::move(zero);
  auto capture = probes::CaptureSpec::parse(options.capture.empty() ? problem.capture() : options.capture);
  if (!capture)
    return capture.error();
  settings.capture = *std::move(capture);
  return settings;
}

ops::Context op_context(const Settings& settings, const Problem& problem) {
  ops::Context context;
  context.cuda = settings.device.torch.is_cuda();
  context.sm = settings.device.sm;
  context.compute_dtype = settings.profile.compute_dtype;
  context.island_dtype = settings.profile.island_dtype;
  context.shape = problem.shape();
  return context;
}

probes::RunFacts run_facts(const Settings& settings, const Problem& problem) {
  probes::RunFacts facts = problem.facts();
  facts.merge(environment_facts(settings.device));
  facts["producer"] = std::string("h3diff " H3DIFF_VERSION);
  facts["pipeline"] = std::string("h3diff");
  facts["pipeline_version"] = std::string(H3DIFF_VERSION);
  facts["profile"] = settings.profile.name;
  facts["compute_dtype"] = std::string(probes::name(settings.profile.compute_dtype));
  facts["capture"] = settings.capture.text;
  return facts;
}

std::vector<float> values_of(const at::Tensor& tensor) {
  const at::Tensor host = tensor.to(at::kCPU, at::kFloat).contiguous();
  const float* data = host.const_data_ptr<float>();
  return {data, data + host.numel()};
}

// The run proper, once everything that the caller may have got wrong is known to be right.
class Run {
public:
  Run(const RunOptions& options, const Problem& problem, Settings settings, Dispatcher dispatcher)
      : options_(options), problem_(problem), settings_(std::move(settings)), ops_(std::move(dispatcher)) {}

  Result<RunSummary> operator()(const volatile bool* interrupted) {
    if (!options_.output.empty())
      if (auto opened = open_recorder(); !opened)
        return opened.error();
    auto model = load_model();
    if (!model)
      return model.error();
    if (auto recorded = outcome(); !recorded)
      return recorded.error();
    Sampler sampler(problem_.inputs(), settings_.device.torch);
    Prediction prediction;
    for (std::size_t step = 0; step < problem_.plan().size(); ++step) {
      if (interrupted != nullptr && *interrupted)
        return interruption(step);
      if (auto done = evaluate(*model, sampler, static_cast<int>(step), prediction); !done)
        return done.error();
    }
    RunSummary summary;
    summary.steps = static_cast<int>(problem_.plan().size());
    summary.video = values_of(prediction.video);
    summary.audio = values_of(prediction.audio);
    if (recorder_) {
      if (auto finished = recorder_->finish(ops_.table()); !finished)
        return finished.error();
      summary.probes = recorder_->rows();
      summary.over_budget = recorder_->over_budget();
    }
    return summary;
  }

private:
  const RunOptions& options_;
  const Problem& problem_;
  Settings settings_;
  Dispatcher ops_;
  std::optional<Recorder> recorder_;
  std::optional<Observer> observer_;
  int step_ = -1;

  ProbeSink* sink() { return observer_ ? &*observer_ : nullptr; }
  Result<void> outcome() { return observer_ ? observer_->outcome() : Result<void>(); }

  Result<void> open_recorder() {
    const int steps = static_cast<int>(problem_.plan().size());
    auto recorder = Recorder::create({options_.output, options_.overwrite, settings_.capture, options_.threads, steps},
                                     problem_.shape(), run_facts(settings_, problem_));
    if (!recorder)
      return recorder.error();
    recorder_.emplace(*std::move(recorder));
    Observer::Progress progress;
    if (options_.progress)
      progress = [this, steps](const std::string& probe) { options_.progress(step_, steps, probe); };
    observer_.emplace(*recorder_, std::move(progress));
    return {};
  }

  Result<Model> load_model() {
    LoadOptions load;
    load.compute_dtype = settings_.profile.compute_dtype;
    load.island_dtype = settings_.profile.island_dtype;
    load.device = settings_.device.torch;
    load.zero_columns = settings_.zero_columns;
    load.flat_qkv = ops_.attn_qkv.chosen().flat;
    load.gate_first = ops_.fc1.chosen().gate_first;
    load.rope_inv_freq =
        ops_.rope.use().inverse_frequencies(problem_.shape().rope_freq_dim, problem_.shape().rope_theta);
    const WeightSource source = problem_.bundle() != nullptr ? WeightSource::from(problem_.bundle()->checkpoint)
                                                             : WeightSource::from(*problem_.spec());
    auto weights = load_weights(source, problem_.shape(), load, sink());
    if (!weights)
      return weights.error();
    if (recorder_)
      if (auto written = recorder_->end_weights(); !written)
        return written.error();
    return Model(problem_.shape(), *std::move(weights));
  }

  Result<void> evaluate(const Model& model, Sampler& sampler, int step, Prediction& prediction) {
    const StepPlan& plan = problem_.plan()[static_cast<std::size_t>(step)];
    step_ = step;
    if (recorder_)
      recorder_->begin_step(step, problem_.inputs().sequence.layout, plan.rows.timesteps);
    prediction = model.forward(sampler.arguments(plan), ops_, sink());
    sampler.advance(prediction, plan, ops_, sink());
    if (auto recorded = outcome(); !recorded)
      return recorded.error();
    if (!recorder_)
      return {};
    return recorder_->end_step(
        {step, plan.sigma_video, plan.sigma_audio, plan.sigma_video_next, plan.sigma_audio_next});
  }

  Error interruption(std::size_t finished) const {
    const std::string steps = fmt::format("interrupted after {} of {} steps", finished, problem_.plan().size());
    return environment_error(
        recorder_ ? fmt::format("{}; the finished ones are in {}", steps, recorder_->partial_path()) : steps);
  }
};

Result<RunSummary> run_checked(const RunOptions& options, const volatile bool* interrupted) {
  const c10::InferenceMode no_gradients;
  set_determinism(options.threads);
  auto problem = Problem::open(options);
  if (!problem)
    return problem.error();
  auto settings = settle(options, *problem);
  if (!settings)
    return settings.error();
  auto dispatcher = Dispatcher::build(settings->profile, op_context(*settings, *problem));
  if (!dispatcher)
    return dispatcher.error();
  return Run(options, *problem, *std::move(settings), *std::move(dispatcher))(interrupted);
}

} // namespace

Result<RunSummary> run(const RunOptions& options, const volatile bool* interrupted) {
  if (options.threads < 1)
    return usage_error(fmt::format("{} threads: at least 1 is needed", options.threads));
  try {
    return run_checked(options, interrupted);
  } catch (const c10::OutOfMemoryError& error) {
    return environment_error(
        fmt::format("{}: out of memory on {}: {}", options.source, options.device, error.what_without_backtrace()));
  } catch (const std::bad_alloc&) {
    return environment_error(fmt::format("{}: out of memory", options.source));
  } catch (const c10::Error& error) {
    return Error{ExitCode::internal, fmt::format("torch refused an op: {}", error.what_without_backtrace())};
  }
}

} // namespace h3diff::harness
