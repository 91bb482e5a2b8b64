// What a run computes, made one thing of a bundle or a named case: inputs, schedule, and where weights come from.
#pragma once
#include "h3diff/cases/bundle.hpp"
#include "h3diff/cases/schedule.hpp"
#include "h3diff/harness/run.hpp"
#include "h3diff/probes/dump.hpp"
#include <memory>
#include <variant>

namespace h3diff::harness {

struct StepPlan {
  cases::RowTimesteps rows;
  float t_video = 0, t_audio = 0; // of the generated rows
  float sigma_video = 0, sigma_audio = 0, sigma_video_next = 0, sigma_audio_next = 0;
};

class Problem {
public:
  // usage error: an unknown case, an option that does not fit; bad_input: see cases::open_bundle.
  static Result<Problem> open(const RunOptions&);

  const probes::ModelShape& shape() const;
  const cases::Inputs& inputs() const;
  const cases::Bundle* bundle() const { return std::get_if<cases::Bundle>(source_.get()); }
  const cases::CaseSpec* spec() const { return std::get_if<cases::CaseSpec>(source_.get()); }
  const std::string& capture() const { return capture_; } // the problem's own
  const std::vector<StepPlan>& plan() const { return plan_; }
  probes::RunFacts facts() const;

private:
  Problem() = default;
  Result<void> make_plan(int steps, float shift_video, float shift_audio, bool timesteps_given_alone);

  std::unique_ptr<std::variant<cases::Bundle, cases::CaseSpec>> source_; // stable address: weights borrow it
  cases::Inputs made_;                                                   // of a case
  std::string capture_ = "stats";
  std::vector<StepPlan> plan_;
};

} // namespace h3diff::harness
