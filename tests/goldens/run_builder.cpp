#include "run_builder.hpp"
#include "h3diff/probes/measure.hpp"
#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <unistd.h>

namespace h3diff::testing {

using probes::RowSpace;

namespace {

const std::map<Segment, std::int64_t> token_rows = {{Segment::text, 5},       {Segment::vision, 3},
                                                    {Segment::cond_video, 4}, {Segment::cond_audio, 2},
                                                    {Segment::audio, 6},      {Segment::video, 20}};
constexpr std::int64_t timesteps = 2;

std::vector<Segment> segments_of(RowSpace space) {
  switch (space) {
  case RowSpace::packed:
    return {Segment::text, Segment::vision, Segment::cond_video, Segment::cond_audio, Segment::audio, Segment::video};
  case RowSpace::text: return {Segment::text, Segment::vision};
  case RowSpace::video: return {Segment::cond_video, Segment::video};
  case RowSpace::audio: return {Segment::cond_audio, Segment::audio};
  case RowSpace::modulation: return {Segment::text, Segment::audio, Segment::video};
  default: return {Segment::all};
  }
}

std::int64_t rows_of(const probes::ProbeInfo& info, Segment segment) {
  if (info.weight)
    return info.rows;
  if (info.space == RowSpace::modulation || info.space == RowSpace::timesteps)
    return timesteps;
  return token_rows.at(segment);
}

std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

std::uint64_t key_of(std::uint64_t seed, const Where& where) {
  const auto& [step, probe, segment] = where;
  std::uint64_t key = mixed(seed + 0x9E3779B97F4A7C15);
  for (const char c : probe)
    key = mixed(key ^ static_cast<unsigned char>(c)) + 0x9E3779B97F4A7C15;
  // Weights and inputs given by the caller do not depend on the step.
  const bool follows = !probe.starts_with("input.") || probe == "input.video" || probe == "input.audio";
  return mixed(key ^ (static_cast<std::uint64_t>(segment) << 32) ^
               (follows ? static_cast<std::uint64_t>(step + 1) : 0));
}

float normal(std::uint64_t key, std::uint64_t index) { // a sum of four uniforms, unit variance
  const std::uint64_t bits = mixed(key + index * 0x9E3779B97F4A7C15);
  double sum = 0;
  for (int i = 0; i < 4; ++i)
    sum += static_cast<double>((bits >> (16 * i)) & 0xFFFF) / 65536.0 - 0.5;
  return static_cast<float>(sum * std::sqrt(3.0));
}

std::uint16_t to_bfloat16(float value) {
  std::uint32_t word;
  std::memcpy(&word, &value, 4);
  if (std::isnan(value))
    return static_cast<std::uint16_t>((word >> 16) | 0x40);
  return static_cast<std::uint16_t>((word + 0x7FFF + ((word >> 16) & 1)) >> 16);
}

Values make(const SampleRun& run, const probes::ProbeInfo& info, const Where& where) {
  Values values;
  values.rows = rows_of(info, std::get<2>(where));
  values.cols = info.cols;
  values.dtype = run.compute;
  values.data.resize(static_cast<std::size_t>(values.rows * values.cols));
  const std::uint64_t key = key_of(run.seed, where);
  for (std::size_t i = 0; i < values.data.size(); ++i)
    values.data[i] = normal(key, i);
  const bool integer = info.name == "input.timestep_indices" || info.name == "input.token_tags";
  if (integer) {
    values.dtype = DType::int32;
    for (std::size_t i = 0; i < values.data.size(); ++i)
      values.data[i] = static_cast<float>((key + i) % 3);
  }
  if (info.op == "input" && !integer)
    values.dtype = DType::float32;
  if (info.name == "input.timestep")
    for (std::size_t i = 0; i < values.data.size(); ++i)
      values.data[i] = 0.9F + 0.01F * static_cast<float>(i) - 0.1F * static_cast<float>(std::get<0>(where));
  return values;
}

std::vector<std::byte> encode(const Values& values) {
  std::vector<std::byte> out(values.data.size() * probes::item_size(values.dtype));
  for (std::size_t i = 0; i < values.data.size(); ++i) {
    const float value = values.data[i];
    if (values.dtype == DType::float32) {
      std::memcpy(out.data() + 4 * i, &value, 4);
    } else if (values.dtype == DType::bfloat16) {
      const std::uint16_t half = to_bfloat16(value);
      std::memcpy(out.data() + 2 * i, &half, 2);
    } else if (values.dtype == DType::float64) {
      const double wide = value;
      std::memcpy(out.data() + 8 * i, &wide, 8);
    } else if (values.dtype == DType::int32) {
      const auto whole = static_cast<std::int32_t>(value);
      std::memcpy(out.data() + 4 * i, &whole, 4);
    } else {
      ADD_FAILURE() << "the builder does not write " << probes::name(values.dtype);
    }
  }
  return out;
}

void add(probes::DumpWriter& writer, const SampleRun& run, const probes::ProbeInfo& info, Segment segment,
         std::int32_t step) {
  const Where where{step, info.name, segment};
  Values values = make(run, info, where);
  run.edit(where, values);
  if (values.omit)
    return;
  const std::string name = run.rename(info.name);
  const Level level = run.level(info.name);
  const auto bytes = encode(values);
  const auto view = probes::TensorView::contiguous(bytes.data(), values.dtype, values.rows, values.cols);
  const probes::RowRange all{0, values.rows};
  probes::MeasureOptions options;
  options.statistics = level >= Level::stats;
  options.sketch_k = options.statistics ? run.sketch_k : 0;
  options.columns = info.per_column && options.statistics;
  const auto measured = probes::measure(view, {&all, 1}, options);
  probes::IndexRow row;
  row.step = step;
  row.probe = name;
  row.segment = segment;
  row.dtype = row.stored_dtype = values.dtype;
  row.rows = values.rows;
  row.cols = values.cols;
  row.digest = measured.digest;
  row.level = level;
  if (options.statistics)
    row.statistics = measured.statistics;
  row.sketch_k = options.sketch_k;
  writer.add(row, measured.sketch);
  if (options.columns)
    writer.add_columns(name, measured.columns);
  if (level >= Level::rows) {
    const auto added = writer.add_tensor(step, name, segment, view, {&all, 1}, level == Level::rows ? 4 : 0);
    ASSERT_TRUE(added) << added.error().message;
  }
}

double sigma(const SampleRun& run, int step, double shift) {
  const double u = 1 - static_cast<double>(step) / run.steps;
  return shift * u / (1 + (shift - 1) * u);
}

} // namespace

void Values::resize_columns(std::int64_t columns, float fill) {
  Values wide = *this;
  wide.cols = columns;
  wide.data.assign(static_cast<std::size_t>(rows * columns), fill);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < std::min(cols, columns); ++c)
      wide.at(r, c) = at(r, c);
  *this = std::move(wide);
}

probes::ModelShape tiny_shape(bool curve) {
  probes::ModelShape shape;
  shape.num_layers = 3;
  shape.num_refiner_layers = 1;
  shape.hidden_size = 32;
  shape.num_attention_heads = 2;
  shape.attention_head_dim = 24;
  shape.ffn_dim = 40;
  shape.in_channels = 4;
  shape.audio_in_channels = 8;
  shape.text_dim = 24;
  shape.freq_dim = 16;
  shape.time_embed_hidden_dim = 32;
  shape.time_embed_dim = curve ? 16 : 12;
  shape.rope_freq_dim = 2;
  shape.curve_grid = curve ? 33 : 0;
  return shape;
}

std::string temporary(const std::string& name) {
  static const std::filesystem::path folder = [] {
    auto path = std::filesystem::temp_directory_path() / ("h3diff_goldens_" + std::to_string(::getpid()));
    std::filesystem::create_directories(path);
    return path;
  }();
  const auto path = folder / name;
  std::filesystem::remove(path);
  return path.string();
}

std::string SampleRun::write(const std::string& name) const {
  const std::string path = temporary(name);
  const probes::Graph graph(shape);
  probes::RunFacts all = probes::shape_facts(shape);
  all["producer"] = "tests";
  all["device"] = "cpu";
  all["pipeline"] = "h3diff";
  all["case"] = "tiny";
  all["bundle"] = "bundle";
  all["profile"] = compute == DType::bfloat16 ? "diffusers-bf16" : "diffusers-f32";
  all["compute_dtype"] = std::string(probes::name(compute));
  all["steps_planned"] = static_cast<std::int64_t>(steps);
  for (const auto& [key, value] : facts) {
    all.erase(key);
    if (const auto* text = std::get_if<std::string>(&value); !text || !text->empty())
      all[key] = value;
  }
  auto writer = probes::DumpWriter::create({path, true}, all);
  EXPECT_TRUE(writer) << writer.error().message;

  std::vector<const probes::ProbeInfo*> order;
  for (const auto& info : graph.probes())
    order.push_back(&info);
  for (const auto& [first, second] : swap_order)
    std::swap(order[static_cast<std::size_t>(graph.position(first))],
              order[static_cast<std::size_t>(graph.position(second))]);
  const int done = complete_steps < 0 ? steps : complete_steps;
  for (std::int32_t step = -1; step < done; ++step) {
    for (const auto* info : order) {
      if (info->weight != (step < 0))
        continue;
      for (const Segment segment : info->weight ? std::vector{Segment::all} : segments_of(info->space))
        add(*writer, *this, *info, segment, step);
    }
    probes::StepRow row{step, 0, 0, 0, 0};
    if (step >= 0)
      row = {step, sigma(*this, step, shift), sigma(*this, step, 3), sigma(*this, step + 1, shift),
             sigma(*this, step + 1, 3)};
    const auto ended = writer->end_step(row);
    EXPECT_TRUE(ended) << ended.error().message;
  }
  if (!finish)
    return writer->partial_path();
  const auto finished = writer->finish(dispatch, unobserved);
  EXPECT_TRUE(finished) << finished.error().message;
  return path;
}

std::set<Where> downstream(const SampleRun& run, const Where& start) {
  const probes::Graph graph(run.shape);
  std::set<Where> spoiled{start};
  for (std::int32_t step = std::max(0, std::get<0>(start)); step < run.steps; ++step)
    for (const auto& info : graph.probes()) {
      if (info.weight)
        continue;
      for (const Segment segment : segments_of(info.space))
        for (const auto& input : info.inputs) {
          const auto* source = graph.find(input.probe);
          const std::int32_t from = source->weight ? -1 : input.previous_step ? step - 1 : step;
          const bool any = input.all_segments || segment == Segment::all || source->weight;
          const Segment fed = probes::input_segment(segment, source->space);
          for (const Segment other : source->weight ? std::vector{Segment::all} : segments_of(source->space))
            if ((any || other == fed) && spoiled.contains({from, input.probe, other}))
              spoiled.insert({step, info.name, segment});
        }
    }
  return spoiled;
}

std::function<void(const Where&, Values&)> perturb(std::set<Where> places, float amount) {
  return [places = std::move(places), amount](const Where& where, Values& values) {
    if (!places.contains(where))
      return;
    const std::uint64_t key = key_of(99, where);
    for (std::size_t i = 0; i < values.data.size(); ++i)
      values.data[i] *= 1 + amount * normal(key, i);
  };
}

} // namespace h3diff::testing
