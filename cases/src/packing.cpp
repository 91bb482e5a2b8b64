#include "h3diff/cases/case_spec.hpp"
#include <algorithm>
#include <array>
#include <cmath>

namespace h3diff::cases {

using probes::SequenceLayout;

namespace {

// Rotary time units per latent frame: 5/3 x (1, 4, 4, 4, 4). Everything here follows diffusers' float64 arithmetic
// operation by operation, including the order of its sums.
constexpr double frame_rescale = 5.0 / 3.0;
constexpr std::array<double, 5> frames_per_latent{1, 4, 4, 4, 4};
constexpr std::int64_t audio_channels = 2;

double frame_span(std::int64_t frame) { return frame_rescale * frames_per_latent[static_cast<std::size_t>(frame % 5)]; }

// numpy's linspace(left, left + ratio, n, endpoint=False) * 32.
std::vector<double> spatial_grid(std::int64_t dim, std::int64_t patch, double sqrt_area) {
  const double ratio = static_cast<double>(dim) / sqrt_area;
  const double left = (1.0 - ratio) / 2.0, right = left + ratio;
  const std::int64_t count = dim / patch;
  const double step = (right - left) / static_cast<double>(count);
  std::vector<double> grid;
  for (std::int64_t i = 0; i < count; ++i)
    grid.push_back((static_cast<double>(i) * step + left) * 32.0);
  return grid;
}

// numpy's sum: sequential below 8 terms, eight partial sums up to 128, halves above.
double pairwise_sum(const double* terms, std::int64_t count) {
  if (count < 8) {
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i)
      sum += terms[i];
    return sum;
  }
  if (count <= 128) {
    std::array<double, 8> part{};
    std::copy_n(terms, 8, part.begin());
    std::int64_t i = 8;
    for (; i < count - count % 8; i += 8)
      for (std::int64_t lane = 0; lane < 8; ++lane)
        part[static_cast<std::size_t>(lane)] += terms[i + lane];
    double sum = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
    for (; i < count; ++i)
      sum += terms[i];
    return sum;
  }
  const std::int64_t half = count / 2 - (count / 2) % 8;
  return pairwise_sum(terms, half) + pairwise_sum(terms + half, count - half);
}

class Packer {
public:
  Packer(const Geometry& geometry, const probes::ModelShape& shape) : geometry_(geometry) {
    const double area = std::sqrt(static_cast<double>(geometry.latent_height * geometry.latent_width));
    height_ = spatial_grid(geometry.latent_height, shape.patch_h, area);
    width_ = spatial_grid(geometry.latent_width, shape.patch_w, area);
    frames_ = geometry.latent_frames / shape.patch_t;
  }

  PackedSequence pack() {
    for (std::int64_t row = 0; row < geometry_.text_rows; ++row) {
      out_.layout.text_indices.push_back(next_row());
      const auto& vision = geometry_.vision_rows;
      add(static_cast<double>(row), 0, 0, std::find(vision.begin(), vision.end(), row) != vision.end() ? 0 : 1);
    }
    double clock = static_cast<double>(geometry_.text_rows);
    // With reference soundtracks the layout is that of a reference request, where an image takes a time slot of
    // its own; without, keyframes are anchored to the ends of the video.
    const bool references = !geometry_.reference_audio.empty();
    for (const std::string& anchor : geometry_.keyframes) {
      add_frame(references ? clock : anchor_time(anchor));
      if (references)
        clock += 1.0;
    }
    out_.layout.cond_video_rows = static_cast<std::int64_t>(out_.layout.video_indices.size());
    for (const std::int64_t latents : geometry_.reference_audio) {
      add_audio(latents, clock);
      clock += static_cast<double>(latents);
    }
    out_.layout.cond_audio_rows = static_cast<std::int64_t>(out_.layout.audio_indices.size());
    add_audio(geometry_.audio_latents, clock);
    double elapsed = 0;
    for (std::int64_t frame = 0; frame < frames_; ++frame) {
      add_frame(clock + elapsed);
      elapsed += frame_span(frame);
    }
    out_.layout.rows = next_row();
    return std::move(out_);
  }

private:
  std::int64_t next_row() const { return static_cast<std::int64_t>(out_.layout.token_tags.size()); }

  void add(double t, double h, double w, std::int32_t tag) {
    out_.position_ids.insert(out_.position_ids.end(), {t, h, w});
    out_.layout.token_tags.push_back(tag);
  }

  double anchor_time(const std::string& anchor) const {
    const auto origin = static_cast<double>(geometry_.text_rows);
    if (anchor == "first")
      return origin;
    std::vector<double> spans;
    for (std::int64_t frame = 0; frame < frames_; ++frame)
      spans.push_back(frame_span(frame));
    return origin + pairwise_sum(spans.data(), frames_) - frame_rescale;
  }

  void add_frame(double t) {
    for (const double h : height_)
      for (const double w : width_) {
        out_.layout.video_indices.push_back(next_row());
        add(t, h, w, 0);
      }
  }

  // Channel-major; the two channels sit at the ends of the width grid.
  void add_audio(std::int64_t latents, double origin) {
    for (std::int64_t channel = 0; channel < audio_channels; ++channel)
      for (std::int64_t latent = 0; latent < latents; ++latent) {
        out_.layout.audio_indices.push_back(next_row());
        add(origin + static_cast<double>(latent), 0, channel == 0 ? width_.front() : width_.back(), 2);
      }
  }

  const Geometry& geometry_;
  std::vector<double> height_, width_;
  std::int64_t frames_ = 0;
  PackedSequence out_;
};

} // namespace

PackedSequence pack(const Geometry& geometry, const probes::ModelShape& shape) {
  return Packer(geometry, shape).pack();
}

RowTimesteps row_timesteps(const SequenceLayout& layout, float video_t, float audio_t) {
  std::vector<float> rows(static_cast<std::size_t>(layout.rows), video_t);
  const auto condition_t = static_cast<float>(std::max(static_cast<double>(video_t), 0.999));
  const auto set = [&](const std::vector<std::int64_t>& indices, std::int64_t begin, std::int64_t end, float t) {
    for (std::int64_t i = begin; i < end; ++i)
      rows[static_cast<std::size_t>(indices[static_cast<std::size_t>(i)])] = t;
  };
  set(layout.video_indices, 0, layout.cond_video_rows, condition_t);
  set(layout.audio_indices, layout.cond_audio_rows, static_cast<std::int64_t>(layout.audio_indices.size()), audio_t);
  set(layout.audio_indices, 0, layout.cond_audio_rows, 1.0f);

  RowTimesteps out;
  out.timesteps = rows;
  std::sort(out.timesteps.begin(), out.timesteps.end());
  out.timesteps.erase(std::unique(out.timesteps.begin(), out.timesteps.end()), out.timesteps.end());
  for (const float t : rows)
    out.indices.push_back(std::lower_bound(out.timesteps.begin(), out.timesteps.end(), t) - out.timesteps.begin());
  return out;
}

} // namespace h3diff::cases
