#include "lineage.hpp"
#include <set>

namespace h3diff::goldens {

using probes::RowSpace;
using probes::Segment;

namespace {

std::vector<Segment> segments_of(RowSpace space) {
  switch (space) {
  case RowSpace::packed:
    return {Segment::text, Segment::vision, Segment::cond_video, Segment::cond_audio, Segment::audio, Segment::video};
  case RowSpace::text: return {Segment::text, Segment::vision};
  case RowSpace::video: return {Segment::cond_video, Segment::video};
  case RowSpace::audio: return {Segment::cond_audio, Segment::audio};
  case RowSpace::modulation: return {Segment::text, Segment::audio, Segment::video};
  case RowSpace::timesteps:
  case RowSpace::other: break;
  }
  return {};
}

// The segments of an input that `segment` depends on. None: that input feeds other rows (packing).
std::vector<Segment> feeding(Segment segment, const probes::ProbeInput& input, RowSpace space) {
  if (input.all_segments || segment == Segment::all) {
    auto all = segments_of(space);
    all.push_back(Segment::all); // a producer without segments has one row for all
    return all;
  }
  const Segment one = probes::input_segment(segment, space);
  if (one == Segment::all && !segments_of(space).empty())
    return {};
  return {one};
}

class Walk {
public:
  Walk(const probes::Graph& graph, const std::function<bool(const Place&)>& observed)
      : graph_(graph), observed_(observed) {}

  void from(const Place& place) {
    for (const auto& input : graph_.probes()[static_cast<std::size_t>(place.probe)].inputs) {
      const int position = graph_.position(input.probe);
      if (position < 0)
        continue;
      const auto& info = graph_.probes()[static_cast<std::size_t>(position)];
      const std::int32_t step = info.weight ? -1 : input.previous_step ? place.step - 1 : place.step;
      if (!info.weight && step < 0)
        continue;
      visit(info, Place{step, position, place.segment}, input);
    }
  }

  Lineage take() const {
    Lineage out;
    out.observed.assign(found_.begin(), found_.end());
    for (const int position : passed_)
      (graph_.probes()[static_cast<std::size_t>(position)].weight ? out.unobserved_weights : out.unobserved)
          .push_back(position);
    return out;
  }

private:
  void visit(const probes::ProbeInfo& info, Place place, const probes::ProbeInput& input) {
    const Segment wanted = place.segment;
    std::vector<Place> fresh;
    bool any = false;
    for (const Segment segment : info.weight ? std::vector{Segment::all} : feeding(wanted, input, info.space)) {
      place.segment = segment;
      if (observed_(place)) {
        found_.insert(place);
        any = true;
      } else {
        fresh.push_back(place);
      }
    }
    if (any)
      return; // segments that are not there have no rows
    for (const auto& next : fresh)
      if (visited_.insert(next).second) {
        passed_.insert(next.probe);
        from(next);
      }
  }

  const probes::Graph& graph_;
  const std::function<bool(const Place&)>& observed_;
  std::set<Place> found_, visited_;
  std::set<int> passed_;
};

} // namespace

Lineage lineage(const probes::Graph& graph, const Place& of, const std::function<bool(const Place&)>& observed) {
  Walk walk(graph, observed);
  walk.from(of);
  return walk.take();
}

} // namespace h3diff::goldens
